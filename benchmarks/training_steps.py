"""Create a training step of every task, with new weights on the current device."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks.untrained import double_dqn as make_double_dqn
from rrl_tf.data.nth_farthest import sample_nth_farthest as make_questions
from rrl_tf.envs import SeededVectorEnv
from rrl_tf.models import DecisionTransformer
from rrl_tf.offline.config import DecisionTransformerConfig
from rrl_tf.offline.decision_transformer import compile_network
from rrl_tf.training.fit import train_step
from train_scripts import train_doorkey, train_mnist, train_nth_farthest, train_text

STATES, ACTIONS = 17, 6  # of Walker2d


class Step(NamedTuple):
    """A training step.

    Attributes:
        train: function that does the step and returns the loss.
        optimizer: Keras optimizer of the step.
    """

    train: Callable[[], float]
    optimizer: Any


def make(task, dtype, jit_compile, small=False):
    """Return the `Step` of a task, always with the same weights and batch.

    There is no dropout, whose random numbers depend on the device.

    Args:
        task: one of `MAKERS`.
        dtype: Keras dtype policy.
        jit_compile: whether to compile with XLA.
        small: whether to use toy sizes.
    """
    tf.keras.utils.set_random_seed(0)
    return MAKERS[task]({"dtype": dtype, "jit_compile": jit_compile}, small)


def mnist(options, small):
    """Return the step of the relational image classifier `fast`."""
    config = dataclasses.replace(train_mnist.FAST, **options)
    size, rng = 4 if small else config.batch_size, np.random.default_rng(0)
    images = rng.random((size, *train_mnist.IMAGE_SHAPE), np.float32)
    return fit_step(train_mnist.make_model(config), (images, rng.integers(10, size=size)))


def nth_farthest(options, small):
    """Return the step of the Relational Memory Core on the paper's Nth farthest."""
    preset = train_nth_farthest.FAST if small else train_nth_farthest.PAPER
    config = dataclasses.replace(preset, **options)
    size = 4 if small else config.batch_size
    batch = make_questions(size, config.num_vectors, config.dimension, config.order)
    model = train_nth_farthest.make_model(config, batch[0].shape)
    return fit_step(model, batch)


def text(options, small):
    """Return the step of the Relational Memory Core on characters."""
    characters, sizes = 64, {"batch_size": 2, "length": 5} if small else {}
    config = dataclasses.replace(train_text.PRESETS["rmc"], **options, **sizes)
    model = train_text.make_model(config, characters, steps_per_epoch=100)
    shape = config.batch_size, config.length + 1
    codes = np.random.default_rng(0).integers(characters, size=shape, dtype=np.int32)
    return fit_step(model, (codes[:, :-1], codes[:, 1:]))


def decision_transformer(options, small):
    """Return the step of a network with min-decision-transformer's size on windows of Walker2d."""
    batch, width, blocks, length = (2, 16, 1, 3) if small else (64, 128, 3, 20)
    network = DecisionTransformer.from_preset(
        "fast",
        state_size=STATES,
        action_size=ACTIONS,
        width=width,
        num_blocks=blocks,
        context_length=length,
        heads=("action",),
        dtype=options["dtype"],
        dropout=0.0,
    )
    compile_network(network, DecisionTransformerConfig(**options))
    rng = np.random.default_rng(0)
    sizes = {"states": STATES, "actions": ACTIONS, "returns_to_go": 1}
    window = {k: rng.normal(size=(batch, length, n)).astype("float32") for k, n in sizes.items()}
    window["timesteps"] = np.tile(np.arange(length, dtype=np.int32), (batch, 1))
    window["mask"] = np.ones((batch, length), np.float32)
    return fit_step(network, (window, {"action": window["actions"]}, {"action": window["mask"]}))


def double_dqn(options, small):
    """Return the step of the relational double DQN `fast` of DoorKey."""
    config = dataclasses.replace(train_doorkey.FAST, **options)
    size = 4 if small else config.batch_size
    task, agent = make_double_dqn(config)
    env = SeededVectorEnv(lambda: task.make_env(0), size, seed=0)
    observation, rng = env.reset()[0], np.random.default_rng(0)
    arrays = {
        "observation_t": observation,
        "action_t": rng.integers(task.num_actions, size=size, dtype=np.int32),
        "return_t": rng.random(size, np.float32),
        "discount_t": np.full(size, config.discount, np.float32),
        "return_lower_bound": np.full(size, -np.inf, np.float32),
        "observation_tpn": observation[::-1].copy(),
        "weight_t": np.ones(size, np.float32),
    }
    batch = tf.nest.map_structure(tf.constant, arrays)
    return Step(lambda: float(agent.update(batch)[0]["loss"]), agent.optimizer)


def fit_step(model, batch):
    """Return the step of `fit` for a batch that is already on the device."""
    batch = tf.nest.map_structure(tf.constant, batch)
    step = functools.partial(train_step, model)
    compiled = tf.function(step, jit_compile=model.jit_compile, autograph=False)
    return Step(lambda: float(compiled(batch)["loss"]), model.optimizer)


MAKERS = {
    "mnist": mnist,
    "nth_farthest": nth_farthest,
    "text": text,
    "decision_transformer": decision_transformer,
    "double_dqn": double_dqn,
}
