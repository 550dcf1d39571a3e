"""Measure what the docs report: `speed`, and in `reproductions` the results of training.

`python -m benchmarks` lists all benchmarks and runs the one that is named.
"""

from rrl_tf._tf_logging import interrupt_quietly, quiet_tensorflow

interrupt_quietly()
quiet_tensorflow()
