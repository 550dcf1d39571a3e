"""Small networks whose attention and memory are traced, and their inputs."""

import functools

import keras
import numpy as np

from rrl_tf.layers import MultiHeadDotProductAttention
from rrl_tf.models import RelationalQNetwork

GRID, ENTITIES, ACTIONS = (2, 4, 5), 8, 3


def with_random_weights(model):
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(rng.normal(0.0, 0.5, size=weight.shape))
    return model


@functools.cache
def agent(**arguments):
    """Return a Q network with two rounds that reads entity 6; all cells are visible by default."""
    arguments = {"conv_filters": (8,), "block": {"num_heads": 2, "key_size": 4}} | arguments
    arguments = {"hidden_units": (8,), "readout_cell": (1, 2)} | arguments
    model = RelationalQNetwork.from_preset("fast", num_actions=ACTIONS, **arguments)
    model.build((None, *GRID))
    return with_random_weights(model)


@functools.cache
def functional():
    """Return a functional model of a user: attention between five entities, then their mean."""
    entities = keras.Input((5, 3))
    x = keras.layers.Dense(8, activation="relu")(entities)
    relate = MultiHeadDotProductAttention(num_heads=2, key_size=4, output_size=8)
    x, _ = relate(x, return_attention_scores=True)
    q = keras.layers.Dense(ACTIONS)(keras.layers.GlobalAveragePooling1D()(x))
    return with_random_weights(keras.Model(entities, q))


def states(count=4, seed=0, shape=GRID):
    return np.random.default_rng(seed).normal(size=(count, *shape)).astype("float32")
