"""One short script a task: numbers on top, `main(config)` below."""
