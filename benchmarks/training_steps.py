"""One training step of every task with new weights, on the device that is current then."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks import untrained
from rrl_tf.agents.replay import Batch
from rrl_tf.data.nth_farthest import sample_nth_farthest
from rrl_tf.envs import SeededVectorEnv
from rrl_tf.models import DecisionTransformer
from rrl_tf.offline.decision_transformer import DecisionTransformerConfig, compile_network
from rrl_tf.training.train_function import train_step
from train_scripts import train_doorkey, train_mnist, train_nth_farthest, train_text

STATES, ACTIONS = 17, 6  # Walker2d's
CHARACTERS = 64

Task = Literal["mnist", "nth_farthest", "text", "decision_transformer", "double_dqn"]


class Step(NamedTuple):
    """A training step.

    Attributes:
        train: takes it, and returns the loss.
        optimizer: that of Keras, whose variables it changes.
        graph: makes its graph.
        loop_steps: how often a loop in that graph runs.
    """

    train: Callable[[], float]
    optimizer: Any
    graph: Callable[[], tf.Graph]
    loop_steps: int


def make(task, dtype, jit_compile, small=False):
    """The `Step` of a task, with weights and a batch that are always the same, without dropout.

    Its random numbers would depend on the device.

    Args:
        task: one of `MAKERS`.
        dtype: Keras' name of the precision.
        jit_compile: compile with XLA.
        small: toy sizes.
    """
    tf.keras.utils.set_random_seed(0)
    options = {"dtype": dtype, "jit_compile": jit_compile}
    return MAKERS[task](options, small)


def mnist(options, small):
    """The relational classifier of images, `fast`."""
    config = dataclasses.replace(train_mnist.FAST, **options)
    size, rng = 4 if small else config.batch_size, np.random.default_rng(0)
    images = rng.random((size, *train_mnist.IMAGE_SHAPE), np.float32)
    return _of_fit(train_mnist.make_model(config), (images, rng.integers(10, size=size)))


def farthest(options, small):
    """The Relational Memory Core of the paper's Nth farthest."""
    preset = train_nth_farthest.FAST if small else train_nth_farthest.PAPER
    config = dataclasses.replace(preset, **options)
    size = 4 if small else config.batch_size
    batch = sample_nth_farthest(size, config.num_vectors, config.dimension, config.order)
    model = train_nth_farthest.make_model(config, batch[0].shape)
    return _of_fit(model, batch, loop_steps=config.num_vectors)


def text(options, small):
    """The Relational Memory Core that reads characters."""
    config = dataclasses.replace(train_text.PRESETS["rmc"], **options)
    if small:
        config = dataclasses.replace(config, lanes=2, length=5)
    model = train_text.make_model(config, CHARACTERS, steps_per_epoch=100)
    shape = config.lanes, config.length + 1
    codes = np.random.default_rng(0).integers(CHARACTERS, size=shape, dtype=np.int32)
    return _of_fit(model, (codes[:, :-1], codes[:, 1:]), loop_steps=config.length)


def decision_transformer(options, small):
    """Of the size that min-decision-transformer has, on windows of Walker2d's."""
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
    return _of_fit(network, (window, {"action": window["actions"]}, {"action": window["mask"]}))


def double_dqn(options, small):
    """The relational double DQN of DoorKey, `fast`; its batch comes from NumPy."""
    config = dataclasses.replace(train_doorkey.FAST, **options)
    size = 4 if small else config.batch_size
    task, agent = untrained.double_dqn(config)
    env = SeededVectorEnv(lambda: task.make_env(0), size, seed=0)
    observation, rng = env.reset()[0], np.random.default_rng(0)
    batch = Batch(
        observation_t=observation,
        action_t=rng.integers(task.num_actions, size=size, dtype=np.int32),
        return_t=rng.random(size, np.float32),
        discount_t=np.full(size, config.discount, np.float32),
        floor_t=np.full(size, -np.inf, np.float32),
        observation_tpn=observation[::-1].copy(),
        weight_t=np.ones(size, np.float32),
        index=np.arange(size),
    )

    def graph():
        arrays = [v for k, v in vars(batch).items() if k != "index"]
        return agent.update_in_graph.get_concrete_function(*arrays).graph

    return Step(lambda: agent.update(batch)[0]["loss"], agent.learner.optimizer, graph, 1)


def _of_fit(model, batch, loop_steps=1):
    """What `fit` does with a batch, which lies on the device already."""
    batch = tf.nest.map_structure(tf.constant, batch)
    step = functools.partial(train_step, model)
    compiled = tf.function(step, jit_compile=model.jit_compile, autograph=False)
    return Step(
        lambda: float(compiled(batch)["loss"]),
        model.optimizer,
        lambda: compiled.get_concrete_function(batch).graph,
        loop_steps,
    )


MAKERS = {
    "mnist": mnist,
    "nth_farthest": farthest,
    "text": text,
    "decision_transformer": decision_transformer,
    "double_dqn": double_dqn,
}
