"""One short script a task: numbers on top, `main(config)` below."""

from rrl_tf.quiet import load_tensorflow

load_tensorflow()
