"""Define training scripts, one for each task, with presets and a function `main(config)`."""

from rrl_tf._tf_logging import interrupt_quietly, quiet_tensorflow

interrupt_quietly()
quiet_tensorflow()  # `--help` does not import it
