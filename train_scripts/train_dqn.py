"""Train a double DQN on any Gymnasium environment with discrete actions.

python -m train_scripts.train_dqn --env CartPole-v1
python -m train_scripts.train_dqn --env MiniGrid-KeyCorridorS3R1-v0
python -m train_scripts.train_dqn --env MiniGrid-MemoryS7-v0 --actions 0 1 2 --max-steps 100
python -m train_scripts.train_dqn --env my_module:MyEnv-v0   # my_module.py registers MyEnv-v0
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import rrl_tf
from rrl_tf._arguments import one_of
from rrl_tf.agents.config import DoubleDQNConfig
from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import require_positive
from train_scripts import command_line
from train_scripts.network_config import NetworkConfig

if TYPE_CHECKING:  # `--help` is shown without Keras
    import keras

NETWORKS = ("dense", "convolutional", "book", "zambaldi", "fast", "fast-relative", "grid", "atari")


@dataclasses.dataclass(frozen=True)
class GymnasiumConfig:
    """Set the environment, and properties that the environment does not report itself."""

    env: str = ""
    """Id of the environment, `Name-v0` or `module:Name-v0`."""
    test_env: str = ""
    """Id of the environment for evaluation, if it differs from `env`."""
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
class Config(NetworkConfig, GymnasiumConfig, DoubleDQNConfig):
    """Set the options of a run. Steps are counted over all environments together."""

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
    """dense, convolutional, or an architecture of `RelationalQNetwork`: book, zambaldi, fast,
    fast-relative, grid or atari; by default grid for grids, fast for MiniGrid, convolutional for
    pictures and dense for vectors."""

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
    """Train a double DQN on any Gymnasium environment. Repeat the command to resume the run."""
    import keras

    replicas = rrl_tf.training.make_replicas(config, config.batch_size)
    task = rrl_tf.envs.gymnasium_task(
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
    return rrl_tf.agents.train_double_dqn(
        *(task, make_network(config, task), config, replicas),
        draw_episode=rrl_tf.interpret.draw_episode,
    )


def make_network(config: Config, task: rrl_tf.envs.Task) -> keras.Model:
    """Return a Q network with new weights, by default one that fits the observations."""
    preprocessor, shape = task.preprocessor, task.preprocessor.shape
    name = one_of("network", config.network or _fitting_network(preprocessor), NETWORKS)
    arguments: dict[str, Any] = {"num_actions": task.num_actions, "dtype": config.dtype}
    sizes = config.network_sizes(name not in ("dense", "convolutional"))
    if preprocessor.parts:
        make = rrl_tf.models.MultiInputQNetwork.for_preprocessor
        return make(preprocessor, name, **arguments, **sizes)
    if name == "dense":
        return rrl_tf.models.dense_q_network(**arguments)
    if len(shape) != 3:
        raise InvalidInput(
            f"network {name!r} takes grids (height, width, features); received observations of "
            f"shape {shape}. Use `--network dense`."
        )
    if name == "convolutional":
        kind = "convolutional" if _is_picture(shape) else "grid"
        return getattr(rrl_tf.models, f"{kind}_q_network")(**arguments)
    network = rrl_tf.models.RelationalQNetwork.from_preset(name, preprocessor, **arguments, **sizes)
    try:
        network.grid_shape((None, *shape))
    except ValueError as error:  # from Keras
        raise InvalidInput(
            f"network {name!r} takes larger grids; received observations of shape {shape}. Use "
            "`--network grid`."
        ) from error
    return network


def _fitting_network(preprocessor):
    """Return the name of the network for preprocessed observations, or for the grids in a dict."""
    if preprocessor.parts:
        fitting = set(map(_fitting_network, preprocessor.parts.values()))
        return next(name for name in ("grid", "fast", "convolutional", "dense") if name in fitting)
    if len(preprocessor.shape) != 3:
        return "dense"
    if _is_picture(preprocessor.shape):
        return "convolutional"
    return "grid" if preprocessor.agent_cell is None else "fast"


def _is_picture(shape):
    return min(shape[:2]) >= rrl_tf.models.encoders.SMALLEST_PICTURE


if __name__ == "__main__":
    command_line.run(main, Config)
