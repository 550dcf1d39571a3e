"""Trains a double DQN that remembers: R2D2 on MiniGrid's DoorKey, Memory and KeyCorridor.

Comparison is ours: two objects are seen one after the other, and compared later.

python -m train_scripts.train_recurrent                          # MemoryS7
python -m train_scripts.train_recurrent --preset memory-s17
python -m train_scripts.train_recurrent --preset doorkey-8x8     # 5, 6, 8; tested on new layouts
python -m train_scripts.train_recurrent --preset doorkey-16x16
python -m train_scripts.train_recurrent --preset comparison
python -m train_scripts.train_recurrent --network relational-memory-entities
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import keras

from rrl_tf.envs import Task, comparison_task, doorkey_task, key_corridor_task, memory_task
from rrl_tf.models import RecurrentQNetwork
from rrl_tf.training.recurrent_double_dqn import (
    RecurrentDoubleDQNConfig,
    train_recurrent_double_dqn,
)
from train_scripts import command_line


@dataclasses.dataclass(frozen=True)
class Config(RecurrentDoubleDQNConfig):
    """The numbers of the training, and of the environment."""

    preset: str = "memory-s7"
    """Where the numbers below come from."""
    runs: str = "runs/recurrent"
    """Where runs are kept."""

    environment: Literal["memory", "doorkey", "key_corridor", "comparison"] = "memory"
    """MiniGrid's Memory, DoorKey or KeyCorridor, or two objects to compare."""
    sizes: tuple[int, ...] = (7,)
    """Sides of the grid, Comparison's widths, or rows of KeyCorridor's rooms: a curriculum from
    first to last; the last one is evaluated."""
    held_out: bool = False
    """Keep a third of the last size's layouts for evaluation; of Memory, of the lengths."""
    held_out_seed: int = 0
    """Which third."""
    random_length: bool = False
    """Memory: draw the length of the hallway."""
    frames: int = 1
    """Observations stacked."""
    max_steps: int | None = None
    """Time limit of an episode; MiniGrid's if not given."""
    network: str = "lstm-dense"
    """Preset of `RecurrentQNetwork`."""


MEMORY = Config(steps=30_000, learning_rate_updates=4000)
DOORKEY = Config(
    preset="doorkey-6x6",
    environment="doorkey",
    loop="graph",
    sizes=(5, 6),
    held_out=True,
    network="lstm",
    steps=60_000,
    discount=0.93,
    observe_returns=True,
    batch_size=8,
    epsilon_end=0.15,
    learning_rate_updates=7000,
)
PRESETS = {
    "memory-s7": MEMORY,
    "memory-s17": dataclasses.replace(
        MEMORY, preset="memory-s17", sizes=(9, 13, 17), steps=100_000, discount=0.97
    ),
    "memory-s17-random": dataclasses.replace(
        MEMORY,
        preset="memory-s17-random",
        sizes=(7, 9, 13, 17),
        random_length=True,
        steps=150_000,
        discount=0.97,
    ),
    "comparison": dataclasses.replace(
        MEMORY,
        preset="comparison",
        environment="comparison",
        sizes=(11, 14),
        steps=100_000,
        discount=0.97,
    ),
    "doorkey-6x6": DOORKEY,
    "doorkey-8x8": dataclasses.replace(
        DOORKEY, preset="doorkey-8x8", sizes=(5, 6, 8), steps=100_000, learning_rate_updates=12_000
    ),
    "doorkey-16x16": dataclasses.replace(
        DOORKEY,
        preset="doorkey-16x16",
        sizes=(5, 6, 8, 16),
        held_out=False,
        steps=1_000_000,
        learning_rate_updates=60_000,
        updates_per_step=0.0625,
        replay_capacity=200_000,
        discount=0.97,
        evaluate_every=20_000,
    ),
    "key-corridor-s3r3": dataclasses.replace(
        MEMORY,
        preset="key-corridor-s3r3",
        environment="key_corridor",
        sizes=(1, 2, 3),
        network="lstm",
        steps=500_000,
        discount=0.97,
        evaluate_every=10_000,
    ),
}


def main(config: Config):
    """Trains a double DQN that remembers; the same command again continues."""
    task = make_task(config)
    keras.utils.set_random_seed(config.seed)
    return train_recurrent_double_dqn(task, make_network(config, task), config)


def make_task(config: Config) -> Task:
    """The environment as the configuration wants it."""
    make = {
        "memory": _memory,
        "doorkey": _doorkey,
        "key_corridor": _key_corridor,
        "comparison": _comparison,
    }
    return make[config.environment](config, frames=config.frames, max_steps=config.max_steps)


def _memory(config, **options):
    held_out = {"held_out": config.held_out, "held_out_seed": config.held_out_seed}
    return memory_task(config.sizes, random_length=config.random_length, **held_out, **options)


def _doorkey(config, **options):
    held_out = {"held_out": config.held_out, "held_out_seed": config.held_out_seed}
    return doorkey_task(config.sizes, **held_out, **options)


def _key_corridor(config, **options):
    return key_corridor_task(config.sizes, **options)


def _comparison(config, **options):
    return comparison_task(config.sizes, **options)


def make_network(config: Config, task: Task) -> RecurrentQNetwork:
    """A Q network with a memory and new weights."""
    return RecurrentQNetwork.from_preset(
        config.network, task.preparation, num_actions=task.num_actions, dtype=config.dtype
    )


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="memory-s7")
