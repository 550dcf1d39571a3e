"""RelationalMemory layers with the same random weights for the same sizes."""

import numpy as np
from keras import ops
from relational_memory_oracle import identity, random_variables

from rrl_tf.convert import sonnet_relational_memory
from rrl_tf.layers import RelationalMemory

RNG = np.random.default_rng(0)
FEATURES = 3
ARGUMENTS = {"mem_slots": 3, "head_size": 2, "num_heads": 2}
STATE = 12
START = identity(3, 4).reshape(-1).astype("float32")


def array(tensor):
    return ops.convert_to_numpy(tensor)


def random_inputs(steps=5, num_rows=None, batch=2):
    rows = () if num_rows is None else (num_rows,)
    return RNG.normal(size=(batch, steps, *rows, FEATURES)).astype("float32")


def variables(num_rows=None, **arguments):
    return random_variables({**ARGUMENTS, **arguments}, FEATURES, num_rows or 1)


def random_layer(num_rows=None, **options):
    """Return a layer whose weights depend only on its sizes."""
    layer = RelationalMemory(**{**ARGUMENTS, **options})
    rows = () if num_rows is None else (num_rows,)
    layer.build((2 if layer.stateful else None, None, *rows, FEATURES))
    sizes = {k: v for k, v in options.items() if k in ("num_blocks", "gate_style", "key_size")}
    sonnet_relational_memory(layer.cell, variables(num_rows, **sizes))
    return layer


def assert_equal(one, other):
    np.testing.assert_allclose(array(one), array(other), atol=2e-6, rtol=0)
