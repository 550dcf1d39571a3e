"""One short script a task: numbers on top, `main(config)` below."""

from rrl_tf._tf_logging import interrupt_quietly, load_tensorflow

interrupt_quietly()
load_tensorflow()
