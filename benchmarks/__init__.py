"""Every claim of the docs: `speed`, `reproductions` of what was learned, `pytorch` to compare with.

`python -m benchmarks` names all of them and runs each.
"""

from rrl_tf.quiet import interrupt_quietly, load_tensorflow

interrupt_quietly()
load_tensorflow()
