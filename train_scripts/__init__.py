"""One short script a task: numbers on top, `main(config)` below."""

import rrl_tf  # noqa: F401  (quietens TensorFlow, if nothing has loaded it yet)
