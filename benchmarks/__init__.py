"""The measurements behind the docs: `speed`, and `reproductions` of what agents learn.

`python -m benchmarks` lists all of them and runs each.
"""

from rrl_tf._tf_logging import interrupt_quietly, load_tensorflow

interrupt_quietly()
load_tensorflow()
