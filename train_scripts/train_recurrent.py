"""Trains a double DQN that remembers: R2D2 on MiniGrid, or on any environment of Gymnasium.

Comparison is ours: two objects are seen one after the other, and compared later.

python -m train_scripts.train_recurrent                          # MemoryS7
python -m train_scripts.train_recurrent --preset memory-s17
python -m train_scripts.train_recurrent --preset doorkey-8x8     # 5, 6, 8; tested on new layouts
python -m train_scripts.train_recurrent --preset doorkey-16x16
python -m train_scripts.train_recurrent --preset comparison
python -m train_scripts.train_recurrent --network relational-memory-entities --name entities
python -m train_scripts.train_recurrent --preset gymnasium --env my_module:MyEnv-v0
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Literal

import keras

from rrl_tf._arguments import one_of
from rrl_tf.agents import (
    RecurrentDoubleDQNConfig,
    train_recurrent_double_dqn,
)
from rrl_tf.envs import (
    Task,
    comparison_task,
    doorkey_task,
    gymnasium_task,
    key_corridor_task,
    memory_task,
)
from rrl_tf.envs.minigrid_view import most_in_sight
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RecurrentQNetwork
from rrl_tf.models.recurrent_presets import RECURRENT_Q_NETWORK
from train_scripts import command_line
from train_scripts.gymnasium_config import GymnasiumConfig


@dataclasses.dataclass(frozen=True)
class Config(GymnasiumConfig, RecurrentDoubleDQNConfig):
    """The numbers of the training, and of the environment."""

    preset: str = "memory-s7"
    """Where the numbers below come from."""
    runs: str = "runs/recurrent"
    """Where runs are kept."""

    environment: Literal["memory", "doorkey", "key_corridor", "comparison", "gymnasium"] = "memory"
    """MiniGrid's Memory, DoorKey or KeyCorridor, two objects to compare, or what `env` names."""
    sizes: tuple[int, ...] = (7,)
    """Sides of the grid, Comparison's widths, or rows of KeyCorridor's rooms: a curriculum from
    first to last; the last one is evaluated."""
    held_out: bool = False
    """Keep a third of the last size's layouts for evaluation; of Memory, of the lengths."""
    held_out_seed: int = 0
    """Which third."""
    random_length: bool = False
    """Memory: draw the length of the hallway, in the last size."""
    network: str = "lstm-dense"
    """Preset of `RecurrentQNetwork`: lstm, lstm-long, relational-memory, relational-memory-long,
    window or none, each of related cells, or as lstm-dense behind dense layers; or
    relational-memory-entities."""
    hidden_activation: Literal["relu", "leaky_relu"] = "relu"
    """Of the layers after the memory. Where rewards are rare, units of a ReLU may all be off."""
    bound_entities: bool = False
    """DoorKey: relate no more cells than can be in sight in the largest room: the same values,
    with less work, of a network that larger rooms than these are no use to. One that relates no
    cells, or reads all of them, is as without it."""

    @property
    def default_name(self) -> str:
        """The folder under `runs` where no name is given."""
        return f"{self.env_name}-seed{self.seed}" if self.env else super().default_name


TASKS: dict[str, Callable[..., Task]] = {
    "memory": memory_task,
    "doorkey": doorkey_task,
    "key_corridor": key_corridor_task,
    "comparison": comparison_task,
    "gymnasium": gymnasium_task,
}
OPTIONS = (
    *("held_out", "held_out_seed", "random_length"),
    *(field.name for field in dataclasses.fields(GymnasiumConfig)),
)
"""What tasks may take, besides the sizes."""

MEMORY = Config(steps=60_000, updates_per_step=0.25, learning_rate_updates=10_000)
MEMORY_S17 = dataclasses.replace(
    MEMORY,
    preset="memory-s17",
    sizes=(7, 9, 11, 13, 15, 17),  # two cells longer at a time: what is remembered still carries
    network="lstm-long-dense",
    unroll_length=24,
    steps=400_000,
    evaluate_every=4000,  # on long hallways an evaluation costs as much as a thousand steps
    updates_per_step=0.0625,
    learning_rate_updates=18_750,
    learning_rate_hold=10_000,  # until the last level is reached, larger steps get further
    discount=0.98,
    epsilon_end=0.4,
    epsilon_exponent=7.0,  # some environments play almost as they have learned
)
DOORKEY = Config(
    preset="doorkey-6x6",
    environment="doorkey",
    network="lstm",
    loop="graph",
    sizes=(5, 6),
    held_out=True,
    bound_entities=True,
    steps=60_000,
    batch_size=8,
    updates_per_step=0.25,
    learning_rate_updates=14_000,
    discount=0.93,
    use_return_lower_bound=True,
    epsilon_end=0.15,
    evaluate_every=5000,
)
PRESETS = {
    "memory-s7": MEMORY,
    "memory-s17": MEMORY_S17,
    "memory-s17-random": dataclasses.replace(
        MEMORY_S17, preset="memory-s17-random", random_length=True
    ),
    "comparison": dataclasses.replace(
        MEMORY_S17,
        preset="comparison",
        environment="comparison",
        sizes=(6, 7, 8, 9, 10, 11, 12, 13, 14),  # up to 10, some view shows both objects
        steps=600_000,
        learning_rate_updates=31_250,
        learning_rate_hold=20_000,
    ),
    "doorkey-6x6": DOORKEY,
    "doorkey-8x8": dataclasses.replace(
        DOORKEY,
        preset="doorkey-8x8",
        sizes=(5, 6, 8),
        network="lstm-long",  # a little better than `lstm`, see docs/memory.md
        bound_entities=False,  # from 8 x 8 on all of a view can be in sight
        steps=100_000,
        updates_per_step=0.125,
        learning_rate_updates=12_000,
    ),
    "doorkey-16x16": dataclasses.replace(
        DOORKEY,
        preset="doorkey-16x16",
        sizes=(5, 6, 8, 16),
        held_out=False,
        bound_entities=False,
        steps=400_000,
        learning_rate_updates=30_000,
        updates_per_step=0.0625,
        replay_capacity=200_000,
        discount=0.97,
        evaluate_every=10_000,
        log_every=2000,
    ),
    "key-corridor-s3r3": dataclasses.replace(
        MEMORY,
        preset="key-corridor-s3r3",
        environment="key_corridor",
        sizes=(1, 2, 3),
        network="lstm-long",
        hidden_activation="leaky_relu",  # of a ReLU all units may be off in most views
        unroll_length=24,
        steps=500_000,
        batch_size=8,
        updates_per_step=0.0625,
        learning_rate_updates=25_000,
        learning_rate_hold=15_000,
        discount=0.97,
        # The key is not in view, so an observed return may be luck.
        use_return_lower_bound=False,
        replay_capacity=100_000,
        epsilon_end=0.6,  # whoever hardly explores is never rewarded
        epsilon_exponent=4.0,
        epsilon_steps=50_000,
        evaluate_every=20_000,  # an episode without success takes 270 steps
        evaluation_episodes=100,
    ),
    "gymnasium": dataclasses.replace(
        MEMORY, preset="gymnasium", environment="gymnasium", discount=0.97
    ),
}


def main(config: Config):
    """Trains a double DQN that remembers; the same command again continues."""
    task = make_task(config)
    keras.utils.set_random_seed(config.seed)
    return train_recurrent_double_dqn(task, make_network(config, task), config)


def make_task(config: Config) -> Task:
    """The environment as the configuration wants it.

    Raises:
        InvalidInput: if it has no such option, or an option is not possible.
    """
    if bool(config.env) != (config.environment == "gymnasium"):
        raise InvalidInput(
            "--preset gymnasium goes with --env and an id such as CartPole-v1; received "
            f"env {config.env!r} and environment {config.environment!r}"
        )
    make = TASKS[config.environment]
    takes = inspect.signature(make).parameters
    options = {name: getattr(config, name) for name in OPTIONS}
    for name, value in options.items():
        if name not in takes and value != getattr(Config, name):
            raise InvalidInput(f"{config.environment} has no {name}; received {value!r}")
    if config.env and config.sizes != Config.sizes:
        raise InvalidInput(f"gymnasium has no sizes; received {config.sizes!r}")
    levels = () if config.env else (config.sizes,)
    return make(*levels, **{name: options[name] for name in OPTIONS if name in takes})


def make_network(config: Config, task: Task) -> RecurrentQNetwork:
    """A Q network with a memory and new weights.

    Raises:
        InvalidInput: if there is no such network, or cells are to be bounded that are not of rooms.
    """
    one_of("network", config.network, tuple(RECURRENT_Q_NETWORK))
    if config.bound_entities and config.environment != "doorkey":
        raise InvalidInput(f"bound_entities goes with doorkey; received {config.environment!r}")
    arguments: dict[str, Any] = {
        "num_actions": task.num_actions,
        "hidden_activation": config.hidden_activation,
        "dtype": config.dtype,
    }
    if config.bound_entities and reads_one_cell(config.network):
        arguments["encoder_arguments"] = {"max_entities": most_in_sight(max(config.sizes))}
    return RecurrentQNetwork.from_preset(config.network, task.preprocessor, **arguments)


def reads_one_cell(network: str) -> bool:
    """Whether a preset of `RecurrentQNetwork` relates cells, and reads the agent's alone."""
    preset = RECURRENT_Q_NETWORK[network]["config"]
    return preset["encoder"] == "relational" and "readout" not in preset["encoder_arguments"]


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="memory-s7")
