"""Train a recurrent double DQN, R2D2, on MiniGrid or any Gymnasium environment.

Comparison is our own environment: the agent sees two objects one after the other and compares them.

python -m train_scripts.train_recurrent                          # MemoryS7
python -m train_scripts.train_recurrent --preset memory-s17
python -m train_scripts.train_recurrent --preset doorkey-8x8     # 5, 6, 8; tested on new layouts
python -m train_scripts.train_recurrent --preset doorkey-16x16
python -m train_scripts.train_recurrent --preset comparison
python -m train_scripts.train_recurrent --network relational-memory-entities --name entities
python -m train_scripts.train_recurrent --env my_module:MyEnv-v0
python -m train_scripts.train_recurrent --preset minigrid --env MiniGrid-Unlock-v0
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Literal

import rrl_tf
from rrl_tf.agents.config import GymnasiumConfig, RecurrentDQNConfig
from rrl_tf.errors import InvalidInput
from train_scripts import agents, command_line


@dataclasses.dataclass(frozen=True)
class Config(RecurrentDQNConfig):
    """Set the options of a run. Steps are counted over all environments together."""

    environment: Literal["memory", "doorkey", "key_corridor", "comparison", "gymnasium"] = "memory"
    """MiniGrid's Memory, DoorKey or KeyCorridor; Comparison; or the environment in `env`."""
    sizes: tuple[int, ...] = (7,)
    """Sides of the grid, widths of Comparison, or rows of KeyCorridor's rooms: a curriculum from
    first to last; the last one is evaluated."""
    held_out: bool = False
    """Hold out a third of the last size's layouts for evaluation; for Memory, of its lengths."""
    held_out_seed: int = 0
    """Seed that selects this third."""
    random_length: bool = False
    """Memory: draw the length of the hallway, in the last size."""
    bound_entities: bool = False
    """For DoorKey: process only as many cells as can be visible in the largest room. The Q values
    are the same and cost less, but the network cannot be used in larger rooms. Dense networks and
    networks that read all cells ignore this option."""


OPTIONS = (
    *("held_out", "held_out_seed", "random_length"),
    *(field.name for field in dataclasses.fields(GymnasiumConfig)),
)
"""Options of some tasks, in addition to the sizes."""

MEMORY = Config(preset="memory-s7", discount=0.95)
MEMORY_S17 = dataclasses.replace(
    MEMORY,
    preset="memory-s17",
    sizes=(7, 9, 11, 13, 15, 17),  # small steps, to which the memory generalises
    network="lstm-long-dense",
    unroll_length=24,
    steps=400_000,
    evaluate_every=4000,  # an evaluation costs as much as a thousand steps
    updates_per_step=0.0625,
    learning_rate_updates=18_750,
    learning_rate_hold=10_000,  # larger steps help until the last level
    discount=0.98,
    epsilon_end=0.4,
    epsilon_exponent=7.0,  # some environments play almost greedily
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
KEY_CORRIDOR = dataclasses.replace(
    MEMORY,
    preset="key-corridor-s3r3",
    environment="key_corridor",
    sizes=(1, 2, 3),
    network="lstm-long",
    hidden_activation="leaky_relu",  # all units of a ReLU may be inactive in most views
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
    epsilon_end=0.6,  # without exploration there are no rewards
    epsilon_exponent=4.0,
    epsilon_steps=50_000,
    evaluate_every=20_000,  # an episode without success takes 270 steps
    evaluation_episodes=100,
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
        sizes=(6, 7, 8, 9, 10, 11, 12, 13, 14),  # up to 10, one view can show both objects
        steps=600_000,
        learning_rate_updates=31_250,
        learning_rate_hold=20_000,
    ),
    "doorkey-6x6": DOORKEY,
    "doorkey-8x8": dataclasses.replace(
        DOORKEY,
        preset="doorkey-8x8",
        sizes=(5, 6, 8),
        network="lstm-long",  # a little better than `lstm`, see docs/experiments/memory_results.md
        bound_entities=False,  # from 8x8 on, all cells of a view can be visible
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
    "key-corridor-s3r3": KEY_CORRIDOR,
    "minigrid": dataclasses.replace(
        KEY_CORRIDOR, preset="minigrid", environment="gymnasium", sizes=Config.sizes
    ),
    "gymnasium": Config(preset="gymnasium", environment="gymnasium"),
}

ABOUT = {
    "memory-s7": "MiniGrid-MemoryS7, for a first try",
    "memory-s17": "MiniGrid-MemoryS17, by a curriculum of hallways",
    "memory-s17-random": "MiniGrid-MemoryS17Random, hallways of random length",
    "comparison": "our own task: compare two objects seen one after the other",
    "doorkey-6x6": "DoorKey 5x5, then 6x6; evaluated on new layouts",
    "doorkey-8x8": "DoorKey up to 8x8; evaluated on new layouts",
    "doorkey-16x16": "DoorKey up to 16x16",
    "key-corridor-s3r3": "MiniGrid-KeyCorridorS3R3, by a curriculum of rooms",
    "minigrid": "settings for MiniGrid's hard environments; give --env",
    "gymnasium": "any environment; the default with --env",
}


def main(config: Config):
    """Train a recurrent double DQN. Repeat the command to resume the run."""
    return agents.train(config, make_task, make_network)


def make_task(config: Config) -> rrl_tf.envs.Task:
    """Return the task of a configuration.

    Raises:
        InvalidInput: if the environment has no such option, or an option is out of range.
    """
    if bool(config.env) != (config.environment == "gymnasium"):
        raise InvalidInput(
            "the presets gymnasium and minigrid need --env, such as CartPole-v1; received "
            f"env {config.env!r} and environment {config.environment!r}"
        )
    make = getattr(rrl_tf.envs, f"{config.environment}_task")
    parameters = inspect.signature(make).parameters
    options = {name: getattr(config, name) for name in OPTIONS}
    for name, value in options.items():
        if name not in parameters and value != getattr(Config, name):
            raise InvalidInput(f"{config.environment} has no {name}; received {value!r}")
    if config.env and config.sizes != Config.sizes:
        raise InvalidInput(f"gymnasium has no sizes; received {config.sizes!r}")
    levels = () if config.env else (config.sizes,)
    return make(*levels, **{name: options[name] for name in OPTIONS if name in parameters})


def make_network(config: Config, task: rrl_tf.envs.Task) -> rrl_tf.models.RecurrentQNetwork:
    """Return a recurrent Q network with new weights.

    Raises:
        InvalidInput: if there is no such network, `bound_entities` is set without DoorKey, or a
            size is set for a network without relations.
    """
    if config.bound_entities and config.environment != "doorkey":
        raise InvalidInput(f"bound_entities needs doorkey; received {config.environment!r}")
    visible = rrl_tf.envs.most_in_sight(max(config.sizes)) if config.bound_entities else None
    return rrl_tf.agents.make_recurrent_q_network(config, task, visible)


if __name__ == "__main__":
    command_line.run_preset(
        main, PRESETS, "memory-s7", about=ABOUT, implied={"env": lambda env: "gymnasium"}
    )
