"""The run of a double DQN on any task: train, evaluate, draw, export; the same command goes on."""

from __future__ import annotations

import dataclasses

import keras

from rrl_tf.agents import DoubleDQN
from rrl_tf.agents.loops import make_loop
from rrl_tf.agents.run import AgentConfig, FurtherTrials, train_agent
from rrl_tf.envs import Task
from rrl_tf.training.config import require_positive
from rrl_tf.training.devices import Replicas, make_replicas
from rrl_tf.training.run import Run


@dataclasses.dataclass(frozen=True)
class DoubleDQNConfig(AgentConfig):
    """Every number of a run. Steps are environment steps, over all environments."""

    select_at_t: bool = False
    """The published book agent chooses the action to value at t instead of t + 1."""
    jit_compile: bool = True
    """Compile the update with XLA."""
    positive_copies: int = 1
    """How often a transition with a positive reward is stored."""
    ignore_time_limit: bool = False
    """Play on after a time-out, as the published book agent does."""
    actors: int | None = None
    """Processes that play `num_envs` environments each, by Ray; by default the learner plays."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "positive_copies")
        if self.actors is not None:
            require_positive(self, "actors")


def train_double_dqn(
    task: Task,
    network: keras.Model,
    config: DoubleDQNConfig,
    replicas: Replicas | None = None,
    further_trials: FurtherTrials | None = None,
) -> tuple[Run, DoubleDQN]:
    """Trains a Q network on a task, evaluates it, draws an episode and exports the policy.

    Everything is checked before the run's folder is made; how it goes on, `train_agent` says.

    Args:
        task: what is to be learned.
        network: any `keras.Model`, prepared observations `(B, *task.preparation.shape)` → Q values
            `(B, A)`; a `keras.Sequential` will do. Its weights are trained in place.
        config: every number, and the folder.
        replicas: the devices and hosts that share every update, by default those that `config`
            asks for; several hosts must be joined before the network is made.
        further_trials: agent → what else is to be told of it in the end, of numbers and dicts of
            them; `evaluation.json` and `report.html` have it beside the evaluation.

    Returns:
        The `Run`, whose folder holds everything, and the trained `DoubleDQN`.

    Raises:
        InvalidInput: if a number is out of range, network and task do not fit each other, the
            folder holds another run, or the training diverges: loss, weights or rewards are nan.

    Example:
        >>> from rrl_tf.envs import gymnasium_task
        >>> from rrl_tf.models import dense_q_network
        >>> task = gymnasium_task("CartPole-v1", max_steps=10)
        >>> config = DoubleDQNConfig(
        ...     name="cartpole", steps=192, learning_starts=64, evaluation_episodes=2
        ... )
        >>> network = dense_q_network(task.num_actions)
        >>> run, agent = train_double_dqn(task, network, config)  # doctest: +ELLIPSIS
        step 192: greedily a mean return of ... in 2 episodes; ...
        >>> observation, _ = task.make_env().reset(seed=0)
        >>> agent.greedy(observation[None]).shape
        (1,)
    """
    replicas = replicas or make_replicas(config, config.batch_size)
    loop = make_loop(task, network, config, replicas)
    return train_agent(task, loop, config, replicas, further_trials)
