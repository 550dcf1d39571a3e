"""Trains a double DQN on any Gymnasium environment with discrete actions.

python -m train_scripts.train_dqn --env CartPole-v1
python -m train_scripts.train_dqn --env MiniGrid-KeyCorridorS3R1-v0
python -m train_scripts.train_dqn --env MiniGrid-MemoryS7-v0 --actions 0 1 2 --max-steps 100
python -m train_scripts.train_dqn --env my_module:MyEnv-v0   # my_module.py registers MyEnv-v0
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import keras

from rrl_tf._arguments import one_of
from rrl_tf.agents import DoubleDQNConfig, train_double_dqn
from rrl_tf.envs import Task, gymnasium_task
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RelationalQNetwork, convolutional_q_network, dense_q_network
from rrl_tf.models.presets import RELATIONAL_Q_NETWORK
from rrl_tf.training import make_replicas
from rrl_tf.training.config import require_positive
from train_scripts import command_line
from train_scripts.gymnasium_config import GymnasiumConfig

SMALLEST_PICTURE = 36
"""Sides from which three axes are a picture to be convolved; below, cells attend to each other."""


@dataclasses.dataclass(frozen=True)
class Config(GymnasiumConfig, DoubleDQNConfig):
    """The numbers of the training, and of the environment."""

    name: str = ""
    """Folder under `runs`; by default the environment and the seed."""
    runs: str = "runs/dqn"
    """Where runs are kept."""
    discount: float = 0.99
    updates_per_step: float = 0.5
    epsilon_end: float = 0.05
    steps: int = 50_000
    """When to stop. The same command with a larger number goes on."""
    learning_rate_end: float = 5e-4
    """Adam's step size from `learning_rate_updates` on, a straight line between."""
    learning_rate_updates: int = 12_000
    """Updates after which Adam's step size is `learning_rate_end`."""
    evaluation_episodes: int = 100
    """Always the same ones."""
    evaluate_every: int = 2500

    network: str = ""
    """dense, convolutional, or a preset of `RelationalQNetwork`; by default what fits: relational
    for grids, convolutional for pictures, dense for vectors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "frames")
        if self.preset:
            raise InvalidInput(f"train_dqn has no presets, but networks; received {self.preset!r}")
        if not self.env:
            raise InvalidInput("--env is missing; expected an id such as CartPole-v1")

    @property
    def default_name(self) -> str:
        """The folder under `runs` where no name is given."""
        return f"{self.env_name}-seed{self.seed}"


def main(config: Config):
    """Trains a double DQN on any Gymnasium environment; the same command again continues."""
    replicas = make_replicas(config, config.batch_size)
    task = gymnasium_task(
        config.env,
        test_env=config.test_env or None,
        success_return=config.success_return,
        max_steps=config.max_steps,
        frames=config.frames,
        actions=config.actions,
    )
    keras.utils.set_random_seed(config.seed)
    return train_double_dqn(task, make_network(config, task), config, replicas)


def make_network(config: Config, task: Task) -> keras.Model:
    """A Q network with new weights: the one asked for, or one that fits the observations."""
    name = config.network or fitting_network(task)
    plain: dict[str, Callable[..., keras.Model]] = {
        "dense": dense_q_network,
        "convolutional": convolutional_q_network,
    }
    if name in plain:
        return plain[name](task.num_actions, dtype=config.dtype)
    one_of("network", name, (*plain, *RELATIONAL_Q_NETWORK))
    if len(task.preprocessor.shape) != 3:
        raise InvalidInput(
            f"network {name!r} takes grids (height, width, features); received observations of "
            f"shape {task.preprocessor.shape}"
        )
    return RelationalQNetwork.from_preset(
        name, task.preprocessor, num_actions=task.num_actions, dtype=config.dtype
    )


def fitting_network(task: Task) -> str:
    """The name of a network for the task's observations."""
    if len(task.preprocessor.shape) != 3:
        return "dense"
    return "convolutional" if min(task.preprocessor.shape[:2]) >= SMALLEST_PICTURE else "fast"


if __name__ == "__main__":
    command_line.run(main, Config)
