"""Define training scripts, one for each task, with presets and a function `main(config)`."""

from rrl_tf._tf_logging import interrupt_quietly, load_tensorflow

interrupt_quietly()
load_tensorflow()
