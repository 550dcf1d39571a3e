"""Small recurrent networks and input sequences."""

import functools
from types import SimpleNamespace

import numpy as np
from keras import ops

from rrl_tf.models import RecurrentQNetwork

GRID = (3, 3, 5)
ACTIONS = 3
SEEN = SimpleNamespace(unseen_feature=0, agent_cell=(1, 2), agent_feature=None)  # as a preprocessor
SMALL = {
    "num_actions": ACTIONS,
    "hidden_units": (8,),
    "encoder_arguments": {"conv_filters": (8,), "block": {"num_heads": 2, "key_size": 4}},
}
CORES = {
    "relational-memory-entities": {"mem_slots": 3, "head_size": 4, "forget_bias": 1.0},
    "relational-memory": {"mem_slots": 3, "head_size": 4, "forget_bias": 1.0},
    "lstm": {"units": 6},
    "window": {"context_length": 4, "width": 8, "num_blocks": 2},
    "none": {"units": 6},
}


def array(tensor):
    return ops.convert_to_numpy(tensor)


def network(preset, preprocessor=SEEN, **overrides):
    arguments = {**SMALL, "core_arguments": CORES[preset], **overrides}
    model = RecurrentQNetwork.from_preset(preset, preprocessor, **arguments)
    model.build({"observation": (None, *GRID)})
    rng = np.random.default_rng(1)
    for weight in model.weights:  # random gains and biases, so that all weights matter
        weight.assign(rng.normal(0.0, 0.4, size=weight.shape))
    return model


@functools.cache
def shared(preset):
    """Return a cached network. Tests must not change it."""
    return network(preset)


def sequences(batch=2, times=5, seed=0):
    rng = np.random.default_rng(seed)
    observation = rng.random((batch, times, *GRID)).astype("float32")
    observation[..., 0] = rng.random((batch, times, *GRID[:-1])) < 0.3  # not visible
    return {
        "observation": observation,
        "previous_action": rng.integers(-1, ACTIONS, (batch, times)).astype("int32"),
        "previous_reward": rng.random((batch, times)).astype("float32"),
    }


def some_memory(model, batch, seed=3):
    """Return a memory from the middle of an episode."""
    _, memories = model.unroll(sequences(batch, 2, seed))
    return array(memories)[:, -1]
