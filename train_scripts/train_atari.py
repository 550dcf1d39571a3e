"""Train a relational double DQN on an Atari game, for 100,000 steps.

python -m train_scripts.train_atari                          # Alien, relational
python -m train_scripts.train_atari --network convolutional  # no relations, as many parameters
python -m train_scripts.train_atari --env ALE/MsPacman-v5    # another game
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

import rrl_tf
from rrl_tf.agents.config import DoubleDQNConfig, NetworkConfig
from train_scripts import agents, command_line

if TYPE_CHECKING:  # `--help` is shown without Keras
    import keras


@dataclasses.dataclass(frozen=True)
class Config(NetworkConfig, DoubleDQNConfig):
    """Set the options of a run. An environment step repeats the action for 4 frames."""

    runs: str = "runs/atari"
    env: str = "ALE/Alien-v5"
    """Id of the game."""
    frames: int = 4
    """Number of frames stacked in an observation."""
    network: Literal["atari", "convolutional"] = "atari"
    """Architecture of `RelationalQNetwork`, or a convolutional network."""

    @property
    def default_name(self) -> str:
        """The game, the network and the seed."""
        game = self.env.rpartition("/")[2]
        return f"{game}-{self.network}-seed{self.seed}"


PRESETS = {
    "atari-100k": Config(
        preset="atari-100k",
        steps=100_000,
        num_envs=4,
        updates_per_step=1.0,
        batch_size=32,
        learning_starts=1600,
        replay_capacity=100_000,  # 0.7 GB of frames
        n_step=10,
        discount=0.99,
        priority_exponent=0.0,
        jit_compile=False,  # XLA makes this update slower on a CPU
        learning_rate=1e-4,
        learning_rate_end=1e-4,
        epsilon_end=0.05,
        epsilon_steps=5000,
        evaluation_episodes=30,  # full games
        evaluate_every=25_000,
        checkpoint_every=10_000,
    )
}

ABOUT = {"atari-100k": "100,000 steps of one game, as in the Atari 100k benchmark"}


def main(config: Config):
    """Train a relational double DQN on an Atari game. Repeat the command to resume the run."""
    return agents.train(config, make_task, make_network)


def make_task(config: Config) -> rrl_tf.envs.Task:
    """Return the task of a configuration."""
    return rrl_tf.envs.atari_task(config.env, frames=config.frames)


def make_network(config: Config, task: rrl_tf.envs.Task) -> keras.Model:
    """Return a Q network with new weights."""
    sizes = config.network_sizes(config.network != "convolutional")
    if config.network == "convolutional":
        return rrl_tf.models.convolutional_q_network(
            task.num_actions, (16, 32, 16), (50,), random_shift=4, dtype=config.dtype
        )
    return rrl_tf.models.RelationalQNetwork.from_preset(
        *(config.network, task.preprocessor),
        num_actions=task.num_actions,
        dtype=config.dtype,
        **sizes,
    )


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="atari-100k", about=ABOUT)
