"""Every claim of the docs: `speed`, `reproductions` of what was learned, `pytorch` to compare with.

`python -m benchmarks` names all of them and runs each.
"""

from rrl_tf._tf_logging import interrupt_quietly, load_tensorflow

interrupt_quietly()
load_tensorflow()
