"""Trains a double DQN on any Gymnasium environment with discrete actions.

python -m train_scripts.train_dqn --env CartPole-v1
python -m train_scripts.train_dqn --env MiniGrid-KeyCorridorS3R1-v0
python -m train_scripts.train_dqn --env MiniGrid-MemoryS7-v0 --actions 0 1 2 --max-steps 100
python -m train_scripts.train_dqn --env my_module:MyEnv-v0   # my_module.py registers MyEnv-v0
"""

from __future__ import annotations

import dataclasses
from typing import Any

import keras

from rrl_tf._arguments import one_of
from rrl_tf.agents import train_double_dqn
from rrl_tf.agents.config import DoubleDQNConfig
from rrl_tf.envs import Task, gymnasium_task
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret import draw_episode
from rrl_tf.models import (
    RelationalQNetwork,
    convolutional_q_network,
    dense_q_network,
    grid_q_network,
)
from rrl_tf.models.architectures import RELATIONAL_Q_NETWORK
from rrl_tf.training import make_replicas
from rrl_tf.training.config import require_positive
from train_scripts import command_line

SMALLEST_PICTURE = 36
"""Minimum height and width of a picture; smaller grids get a relational network."""
NETWORKS = ("dense", "convolutional", *RELATIONAL_Q_NETWORK)


@dataclasses.dataclass(frozen=True)
class GymnasiumConfig:
    """The environment, and properties that it does not report itself."""

    env: str = ""
    """Id of the environment, `Name-v0` or `module:Name-v0`."""
    test_env: str = ""
    """Id of the environment for evaluation, if it is another one."""
    success_return: float | None = None
    """Minimum return of a success, if the environment does not report success; by default its
    registered threshold, and any reward in MiniGrid."""
    max_steps: int | None = None
    """Time limit of an episode; by default the environment's own."""
    frames: int = 1
    """Observations stacked."""
    actions: tuple[int, ...] = ()
    """Actions to choose from; by default all."""

    @property
    def env_name(self) -> str:
        """The id as part of a folder name."""
        return self.env.rpartition(":")[2].replace("/", "-")


@dataclasses.dataclass(frozen=True)
class Config(GymnasiumConfig, DoubleDQNConfig):
    """Options of a run. A step is an environment step, over all environments."""

    runs: str = "runs/dqn"
    discount: float | None = None  # type: ignore[assignment]  # `main` replaces None
    """Discount factor; by default 0.95 for small grids except MiniGrid's, otherwise 0.99."""
    updates_per_step: float = 0.5
    epsilon_end: float = 0.05
    steps: int = 50_000
    learning_rate_end: float = 5e-4
    learning_rate_updates: int = 12_000
    evaluation_episodes: int = 100
    evaluate_every: int = 2500
    network: str = ""
    """dense, convolutional, or an architecture of `RelationalQNetwork`; by default grid for grids,
    fast for MiniGrid, convolutional for pictures and dense for vectors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "frames")
        if self.preset:
            raise InvalidInput(f"train_dqn has no presets; received {self.preset!r}")
        if not self.env:
            raise InvalidInput("--env is missing; expected an id such as CartPole-v1")

    @property
    def default_name(self) -> str:
        """The environment and the seed."""
        return f"{self.env_name}-seed{self.seed}"


def main(config: Config):
    """Trains a double DQN on any Gymnasium environment; the same command again resumes."""
    replicas = make_replicas(config, config.batch_size)
    task = gymnasium_task(
        config.env,
        test_env=config.test_env or None,
        success_return=config.success_return,
        max_steps=config.max_steps,
        frames=config.frames,
        actions=config.actions,
    )
    if config.discount is None:
        is_grid = _fitting_network(task.preprocessor) == "grid"
        config = dataclasses.replace(config, discount=0.95 if is_grid else 0.99)
    keras.utils.set_random_seed(config.seed)
    return train_double_dqn(
        task, make_network(config, task), config, replicas, draw_episode=draw_episode
    )


def make_network(config: Config, task: Task) -> keras.Model:
    """Return a Q network with new weights, by default one that fits the observations."""
    preprocessor, shape = task.preprocessor, task.preprocessor.shape
    arguments: dict[str, Any] = {"num_actions": task.num_actions, "dtype": config.dtype}
    name = one_of("network", config.network or _fitting_network(preprocessor), NETWORKS)
    if name == "dense":
        return dense_q_network(**arguments)
    if len(shape) != 3:
        raise InvalidInput(
            f"network {name!r} takes grids (height, width, features); received observations of "
            f"shape {shape}. Use `--network dense`."
        )
    if name == "convolutional":
        return (convolutional_q_network if _is_picture(shape) else grid_q_network)(**arguments)
    network = RelationalQNetwork.from_preset(name, preprocessor, **arguments)
    try:
        network.grid_shape((None, *shape))
    except ValueError as error:  # from Keras
        raise InvalidInput(
            f"network {name!r} takes larger grids; received observations of shape {shape}. Use "
            "`--network grid`."
        ) from error
    return network


def _fitting_network(preprocessor):
    if len(preprocessor.shape) != 3:
        return "dense"
    if _is_picture(preprocessor.shape):
        return "convolutional"
    return "grid" if preprocessor.agent_cell is None else "fast"


def _is_picture(shape):
    return min(shape[:2]) >= SMALLEST_PICTURE


if __name__ == "__main__":
    command_line.run(main, Config)
