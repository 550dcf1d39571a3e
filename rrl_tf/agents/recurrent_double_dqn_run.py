"""The run of a recurrent double DQN on any task; the same command goes on."""

from __future__ import annotations

import dataclasses

from rrl_tf.agents import RecurrentDoubleDQN
from rrl_tf.agents.loops import make_recurrent_loop
from rrl_tf.agents.run import AgentConfig, train_agent
from rrl_tf.envs import Task
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RecurrentQNetwork
from rrl_tf.training.config import require_fraction, require_not_negative, require_positive
from rrl_tf.training.devices import Replicas
from rrl_tf.training.hosts import find_cluster
from rrl_tf.training.run import Run


@dataclasses.dataclass(frozen=True)
class RecurrentDoubleDQNConfig(AgentConfig):
    """Every number of a run. Steps are environment steps, over all environments."""

    burn_in: int = 5
    """Steps of a sequence that only bring its memory up to date."""
    learned_steps: int = 16
    """Steps of a sequence that are learned from, after those; `n_step` more follow."""
    sequence_period: int = 8
    """Steps from the beginning of a sequence to that of the next."""
    stored_memory: bool = True
    """Go through a sequence from the memory that it was played with, or from an empty one."""
    max_share: float = 0.9
    """η: the priority of a sequence is η times its largest error and 1 - η times the mean."""
    epsilon_exponent: float = 0.0
    """α: of E environments, number i explores with ε^(1 + α i / (E - 1))."""
    batch_size: int = 16
    """Sequences of a gradient step."""
    updates_per_step: float = 0.125
    discount: float = 0.95
    epsilon_end: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "learned_steps", "sequence_period")
        require_not_negative(self, "burn_in", "epsilon_exponent")
        require_fraction(self, "max_share")
        kept = self.replay_capacity // self.num_envs
        needed = self.sequence_length + self.sequence_period - 1
        if needed > kept:
            raise InvalidInput(
                "the replay must always hold a whole sequence, burn_in + learned_steps + n_step + "
                f"sequence_period - 1 = {needed} steps of each environment; received {kept}"
            )
        if self.devices > 1:
            raise InvalidInput(
                f"a recurrent agent trains on one device; received devices={self.devices}"
            )

    @property
    def sequence_length(self) -> int:
        """L, the steps of a sequence."""
        return self.burn_in + self.learned_steps + self.n_step


def train_recurrent_double_dqn(
    task: Task, network: RecurrentQNetwork, config: RecurrentDoubleDQNConfig
) -> tuple[Run, RecurrentDoubleDQN]:
    """Trains a network that remembers on a task, evaluates it, draws an episode and exports it.

    Everything is checked before the run's folder is made; how it goes on, `train_agent` says.

    Args:
        task: what is to be learned.
        network: its weights are trained in place.
        config: every number, and the folder.

    Returns:
        The `Run`, whose folder holds everything, and the trained `RecurrentDoubleDQN`.

    Raises:
        InvalidInput: if a number is out of range, network and task do not fit each other, there
            are other hosts, the folder holds another run, or the training diverges: loss, weights
            or rewards are nan.

    Example:
        >>> from rrl_tf.envs import gymnasium_task
        >>> task = gymnasium_task("CartPole-v1", max_steps=5)
        >>> network = RecurrentQNetwork.from_preset(
        ...     "lstm-dense", num_actions=task.num_actions, core_arguments={"units": 4}
        ... )
        >>> config = RecurrentDoubleDQNConfig(
        ...     name="cartpole", steps=32, burn_in=0, learned_steps=2, evaluation_episodes=2
        ... )
        >>> run, agent = train_recurrent_double_dqn(task, network, config)  # doctest: +ELLIPSIS
        step 32: greedily a mean return of 5 in 2 episodes; ...
    """
    if cluster := find_cluster(config.cluster):
        raise InvalidInput(
            f"a recurrent agent trains on one host; received a cluster of {cluster.size}"
        )
    return train_agent(task, make_recurrent_loop(task, network, config), config, Replicas())
