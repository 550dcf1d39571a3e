"""The training loop that a configuration asks for: in Python, in the graph, or with actors."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from rrl_tf.agents import ActorLoop, DoubleDQN, Loop, RecurrentDoubleDQN, ReplayBuffer
from rrl_tf.agents.curriculum import training_env
from rrl_tf.agents.graph_envs import CurriculumGraph, PythonEnvs
from rrl_tf.agents.graph_loop import GraphLoop
from rrl_tf.agents.ray_actors import ray_actors
from rrl_tf.agents.sequence_timeline import SequenceTimeline
from rrl_tf.agents.timeline import Timeline
from rrl_tf.envs import Task
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RecurrentQNetwork
from rrl_tf.training import linear_schedule
from rrl_tf.training.devices import Replicas
from rrl_tf.training.schedules import LinearDecay

if TYPE_CHECKING:
    from rrl_tf.agents.double_dqn_run import DoubleDQNConfig
    from rrl_tf.agents.recurrent_double_dqn_run import RecurrentDoubleDQNConfig
    from rrl_tf.agents.run import AgentConfig


def make_loop(
    task: Task, network: keras.Model, config: DoubleDQNConfig, replicas: Replicas | None = None
) -> Loop | GraphLoop:
    """The training loop with its agent, environments and replay, all new.

    Args:
        task, network, config, replicas: as in `train_double_dqn`; by default one device.
    """
    numbers = _loop_numbers(config)
    if config.loop == "graph":
        return _graph_loop(task, network, config, replicas, numbers)
    agent = make_agent(task, network, config, replicas)
    make_env = functools.partial(
        training_env, task, config.num_envs, reset_on_truncation=not config.ignore_time_limit
    )
    replay = _make_replay(functools.partial(ReplayBuffer, frames=task.frames), task, config)
    numbers["trace"] = tf.profiler.experimental.Trace
    if config.actors is None:
        return Loop(agent, make_env(config.seed), replay, **numbers)
    return ActorLoop(agent, ray_actors(agent, make_env, config, replicas), replay, **numbers)


def _graph_loop(task, network, config, replicas, numbers):
    if replicas and replicas.count > 1:
        raise InvalidInput(
            f"loop='graph' trains on one device; received {replicas.count}: use loop='python'"
        )
    if config.actors is not None:
        raise InvalidInput(
            f"loop='graph' plays itself; received {config.actors} actors: use loop='python'"
        )
    env = _graph_envs(task, config, reset_on_truncation=not config.ignore_time_limit)
    timeline = functools.partial(Timeline, jit_compile=config.jit_compile)
    return GraphLoop(
        make_agent(task, network, config),
        env,
        _make_replay(timeline, task, config),
        **numbers,
        **_pauses(config),
    )


def make_recurrent_loop(
    task: Task, network: RecurrentQNetwork, config: RecurrentDoubleDQNConfig
) -> GraphLoop:
    """The training loop of an agent that remembers, with environments and replay, all new.

    Args:
        task, network, config: as in `train_recurrent_double_dqn`.
    """
    agent = make_recurrent_agent(task, network, config)
    env: CurriculumGraph | PythonEnvs
    if config.loop == "graph":
        env = _graph_envs(task, config)
    else:
        env = PythonEnvs(training_env(task, config.num_envs, config.seed))
    replay = SequenceTimeline(
        config.replay_capacity,
        task.observation_space.shape,
        task.observation_space.dtype,
        num_envs=config.num_envs,
        length=config.sequence_length,
        period=config.sequence_period,
        memory_size=network.memory_size,
        discount=config.discount,
        priority_exponent=config.priority_exponent,
        observe_returns=config.observe_returns,
    )
    numbers = _loop_numbers(config)
    numbers["epsilon"] = functools.partial(_epsilons, numbers["epsilon"], config)
    return GraphLoop(agent, env, replay, **numbers, **_pauses(config))


def _epsilons(schedule, config, step):
    """ε of every environment, from that of the schedule."""
    place = np.linspace(0.0, 1.0, config.num_envs)  # one alone is the first
    return schedule(step) ** (1 + config.epsilon_exponent * place)


def _loop_numbers(config: AgentConfig) -> dict[str, Any]:
    """What every loop is told."""
    return {
        "epsilon": functools.partial(
            linear_schedule,
            start=config.epsilon_start,
            end=config.epsilon_end,
            steps=config.epsilon_steps,
        ),
        "updates_per_step": config.updates_per_step,
        "batch_size": config.batch_size,
        "learning_starts": config.learning_starts,
        "seed": config.seed,
    }


def _pauses(config):
    every = (config.log_every, config.evaluate_every, config.checkpoint_every, config.draw_every)
    return {"pauses": tuple(filter(None, every))}


def _graph_envs(task, config, **options):
    makers = [level.make_graph for level in task.levels]
    if None in makers:
        raise InvalidInput(
            f"loop='graph' needs a task whose levels have a make_graph, as those of DoorKey with "
            f"one frame and of Box-World; received task {task.name!r}: use loop='python'"
        )
    return CurriculumGraph([make(**options) for make in makers], config.num_envs)


def _make_replay(kind, task, config):
    return kind(
        config.replay_capacity,
        task.observation_space.shape,
        task.observation_space.dtype,
        num_envs=config.num_envs * (config.actors or 1),
        n_step=config.n_step,
        discount=config.discount,
        priority_exponent=config.priority_exponent,
        positive_copies=config.positive_copies,
        observe_returns=config.observe_returns,
    )


def make_agent(
    task: Task, network: keras.Model, config: DoubleDQNConfig, replicas: Replicas | None = None
) -> DoubleDQN:
    """A double DQN with the weights that the network has; they are made if there are none yet.

    Args:
        task, network, config, replicas: as in `train_double_dqn`; by default one device.

    Raises:
        InvalidInput: if the network does not answer prepared observations with A values each.
    """
    shape = (None, *task.preparation.shape)
    _check_network(network, shape, task, lambda views: network(views, training=False))
    return DoubleDQN(
        network,
        task.preparation,
        **_learner_numbers(config),
        select_at_t=config.select_at_t,
        jit_compile=config.jit_compile,
        spread=replicas.spread if replicas and replicas.count > 1 else None,
    )


def make_recurrent_agent(
    task: Task, network: RecurrentQNetwork, config: RecurrentDoubleDQNConfig
) -> RecurrentDoubleDQN:
    """A recurrent double DQN with the weights that the network has, or new ones.

    Args:
        task, network, config: as in `train_recurrent_double_dqn`.

    Raises:
        InvalidInput: if the network does not answer prepared observations with A values each.
    """
    if not isinstance(network, RecurrentQNetwork):
        raise InvalidInput(f"a recurrent agent needs a RecurrentQNetwork; received {network!r}")

    def answer_to(views):
        nothing = {"previous_action": ops.array([-1, -1]), "previous_reward": ops.zeros(2)}
        return network({"observation": views, **nothing})[0]

    shape = {"observation": (None, *task.preparation.shape)}
    _check_network(network, shape, task, answer_to)
    return RecurrentDoubleDQN(
        network,
        task.preparation,
        burn_in=config.burn_in,
        n_step=config.n_step,
        discount=config.discount,
        max_share=config.max_share,
        stored_memory=config.stored_memory,
        **_learner_numbers(config),
    )


def _check_network(network, input_shape, task, answer_to):
    """Raises `InvalidInput` unless the network answers observations with a value an action."""
    shape = task.preparation.shape
    try:
        if not network.built:
            network.build(input_shape)
        answer = tuple(answer_to(ops.zeros((2, *shape))).shape)
    except Exception as error:
        raise InvalidInput(
            f"network {network.name!r} cannot answer prepared observations (B, "
            f"{', '.join(map(str, shape))}): {error}"
        ) from error
    if answer != (2, task.num_actions):
        raise InvalidInput(
            f"network {network.name!r} must answer 2 observations with Q values of shape "
            f"(2, {task.num_actions}); received {answer}"
        )


def _learner_numbers(config):
    return {
        "learning_rate": LinearDecay(
            config.learning_rate,
            config.learning_rate_end,
            config.learning_rate_updates,
            config.learning_rate_hold,
        ),
        "clip_norm": config.clip_norm,
        "optimizer": config.optimizer,
        "loss": config.loss,
        "target_period": config.target_period,
        "target_rate": config.target_rate,
    }
