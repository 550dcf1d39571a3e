"""Trains a relational double DQN on an Atari game, for 100,000 steps.

python -m train_scripts.train_atari                          # Alien, relational
python -m train_scripts.train_atari --network convolutional  # no relations, as many parameters
python -m train_scripts.train_atari --env ALE/MsPacman-v5    # another game
"""

from __future__ import annotations

import dataclasses

import keras

from rrl_tf._arguments import one_of
from rrl_tf.agents import DoubleDQNConfig, train_double_dqn
from rrl_tf.envs import Task, atari_task
from rrl_tf.models import RelationalQNetwork, convolutional_q_network
from rrl_tf.training import make_replicas
from train_scripts import command_line


@dataclasses.dataclass(frozen=True)
class Config(DoubleDQNConfig):
    """The numbers of the training, and of the game."""

    preset: str = "atari-100k"
    """Where the numbers below come from."""
    name: str = ""
    """Folder under `runs`; by default the game, the network and the seed."""
    runs: str = "runs/atari"
    """Where runs are kept."""
    steps: int = 100_000
    """When to stop; each is four frames. The same command with a larger number goes on."""
    num_envs: int = 4
    updates_per_step: float = 1.0
    batch_size: int = 32
    learning_starts: int = 1600
    replay_capacity: int = 100_000
    """Transitions kept; with their frames they take 0.7 GB."""
    n_step: int = 10
    discount: float = 0.99
    priority_exponent: float = 0.0
    jit_compile: bool = False  # XLA makes this update slower on a CPU
    learning_rate: float = 1e-4
    learning_rate_end: float = 1e-4
    epsilon_end: float = 0.05
    epsilon_steps: int = 5000
    evaluation_episodes: int = 30
    """Full games."""
    evaluate_every: int = 25_000
    checkpoint_every: int = 10_000

    env: str = "ALE/Alien-v5"
    """Id of the game."""
    frames: int = 4
    """Pictures stacked."""
    network: str = "atari"
    """atari, a preset of `RelationalQNetwork`; or convolutional."""

    @property
    def default_name(self) -> str:
        """The folder under `runs` where no name is given: networks are there to be compared."""
        game = self.env.rpartition("/")[2]
        return f"{game}-{self.network}-seed{self.seed}"


NETWORKS = ("atari", "convolutional")
"""The other presets of `RelationalQNetwork` have weights already, or relate every pixel."""
PRESETS = {"atari-100k": Config()}


def main(config: Config):
    """Trains a relational double DQN on an Atari game; the same command again continues."""
    replicas = make_replicas(config, config.batch_size)
    task = atari_task(config.env, frames=config.frames)
    keras.utils.set_random_seed(config.seed)
    return train_double_dqn(task, make_network(config, task), config, replicas)


def make_network(config: Config, task: Task) -> keras.Model:
    """A Q network with new weights."""
    one_of("network", config.network, NETWORKS)
    if config.network == "convolutional":
        return convolutional_q_network(
            task.num_actions, (16, 32, 16), (50,), random_shift=4, dtype=config.dtype
        )
    return RelationalQNetwork.from_preset(
        config.network, task.preprocessor, num_actions=task.num_actions, dtype=config.dtype
    )


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="atari-100k")
