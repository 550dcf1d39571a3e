"""Train, evaluate and export a double DQN agent on any task."""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import keras
import numpy as np
from tqdm import tqdm

from rrl_tf.agents.actors import ActorCollector, RayPool
from rrl_tf.agents.config import AgentConfig, DoubleDQNConfig, RecurrentDoubleDQNConfig
from rrl_tf.agents.double_dqn import DoubleDQN
from rrl_tf.agents.environments import (
    Curriculum,
    GraphEnvs,
    PythonEnvs,
    level_of,
    training_env,
)
from rrl_tf.agents.evaluation import (
    Play,
    evaluate_level,
    first_perfect_step,
    format_summary,
    is_solved,
    make_play,
    zero_shot_scores,
)
from rrl_tf.agents.loop import Collector, Loop, RolloutStatistics
from rrl_tf.agents.networks import fitting_network
from rrl_tf.agents.recurrent_double_dqn import RecurrentDoubleDQN
from rrl_tf.agents.replay import ReplayBuffer, SequenceReplayBuffer
from rrl_tf.envs.task import Task
from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_policy, export_recurrent_policy
from rrl_tf.models import RecurrentQNetwork
from rrl_tf.models.base import BaseModel
from rrl_tf.training.devices import Replicas, make_replicas
from rrl_tf.training.loggers import MetricsLog
from rrl_tf.training.optimizers import LinearDecay, linear_schedule
from rrl_tf.training.profiling import WARM_UP, profiled
from rrl_tf.training.run import LogCallback, Run
from rrl_tf.training.safeguards import GracefulShutdown, require_finite, translate_xla_errors
from rrl_tf.training.summary import describe_env, describe_network

DrawEpisode: TypeAlias = Callable[
    [keras.Model, Task, pathlib.Path, MetricsLog], "list[pathlib.Path]"
]
"""Function that draws an episode and returns the paths of the figures. Its arguments are a network,
a task, the folder for figures and the log."""

ExtraEvaluation: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""Function of the trained agent that returns further results for `evaluation.json`."""


def train_double_dqn(
    task: Task,
    network: keras.Model,
    config: AgentConfig,
    replicas: Replicas | None = None,
    *,
    draw_episode: DrawEpisode | None = None,
    extra_evaluation: ExtraEvaluation | None = None,
    callbacks: Iterable[LogCallback] = (),
) -> tuple[Run, DoubleDQN]:
    """Train a Q network on a task, evaluate it, draw an episode and export the policy.

    Repeating the call resumes from the last checkpoint, and does nothing if the run is finished.
    After Ctrl-C or SIGTERM, the run saves a checkpoint before it stops. All arguments are checked
    before the run folder is created.

    Args:
        task: task to learn.
        network: any `keras.Model` that maps preprocessed observations
            `(B, *task.preprocessor.shape)`, or a dict of such arrays, to Q values `(B, A)`. With a
            `RecurrentDoubleDQNConfig`, it must be a `RecurrentQNetwork`. Its weights are trained in
            place.
        config: hyper-parameters and run folder. A `DoubleDQNConfig` trains a `DoubleDQN`, a
            `RecurrentDoubleDQNConfig` a `RecurrentDoubleDQN`.
        replicas: devices and hosts that share every gradient step; by default those selected by
            `config`. With several hosts, call `make_replicas` before you create the network.
        draw_episode: function that draws figures at the end and every `draw_every` steps, such as
            `rrl_tf.interpret.draw_episode`; `None` draws nothing.
        extra_evaluation: function of the trained agent that returns further results; `None` adds
            none.
        callbacks: functions `callback(step, metrics)` that are called after every log entry. If one
            returns True, training stops; the agent is then evaluated and exported, and the same
            call continues the training.

    Returns:
        The `Run` and the trained `DoubleDQN` or `RecurrentDoubleDQN`.

    Raises:
        InvalidInput: if a number is out of range, the network does not fit the task, the folder
            contains another run, or a loss or weight becomes nan or infinite.

    Example:
        >>> from rrl_tf.envs import gymnasium_task
        >>> from rrl_tf.models import dense_q_network
        >>> task = gymnasium_task("CartPole-v1", max_steps=10)
        >>> config = DoubleDQNConfig(
        ...     name="cartpole", steps=192, learning_starts=64, evaluation_episodes=2
        ... )
        >>> network = dense_q_network(task.num_actions)
        >>> run, agent = train_double_dqn(task, network, config)  # doctest: +ELLIPSIS
        environment ...
        step 192: greedy: 0/2 solved, mean return ...
        >>> observation, _ = task.make_env().reset(seed=0)
        >>> agent.greedy(observation[None]).shape
        (1,)
    """
    replicas = replicas or make_replicas(config, config.batch_size)
    loop = make_loop(task, network, config, replicas)
    return _train(task, loop, config, replicas, draw_episode, extra_evaluation, tuple(callbacks))


def make_loop(
    task: Task, network: keras.Model, config: AgentConfig, replicas: Replicas | None = None
) -> Loop:
    """Return a new training loop with an agent, environments and a replay buffer.

    Args:
        task, network, config: as for `train_double_dqn`.
        replicas: devices and hosts that share every gradient step; by default one device.
    """
    agent = make_agent(task, network, config, replicas)
    return Loop(
        agent,
        _make_collector(task, agent, config, replicas),
        _make_replay(task, agent, config),
        epsilon=functools.partial(_epsilons, config),
        updates_per_step=config.updates_per_step,
        batch_size=config.batch_size,
        learning_starts=config.learning_starts,
        seed=config.seed,
        pauses=tuple(
            filter(
                None,
                (
                    config.log_every,
                    config.evaluate_every,
                    config.checkpoint_every,
                    config.draw_every,
                ),
            )
        ),
    )


def make_agent(
    task: Task, network: keras.Model, config: AgentConfig, replicas: Replicas | None = None
) -> DoubleDQN:
    """Return a new agent for a network, which is built if necessary.

    Args:
        task, network, config, replicas: as for `make_loop`.

    Raises:
        InvalidInput: if the network does not map preprocessed observations to one value per action.
    """
    _check_network(task, network, isinstance(config, RecurrentDoubleDQNConfig))
    options: dict[str, Any] = {
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
        "jit_compile": config.jit_compile,
        "spread": replicas.spread if replicas and replicas.count > 1 else None,
    }
    if isinstance(config, RecurrentDoubleDQNConfig):
        names = ("burn_in", "n_step", "discount", "priority_max_weight", "stored_state")
        options |= {name: getattr(config, name) for name in names}
        return RecurrentDoubleDQN(network, task.preprocessor, **options)
    assert isinstance(config, DoubleDQNConfig)
    return DoubleDQN(network, task.preprocessor, select_at_t=config.select_at_t, **options)


def _check_network(task, network, recurrent):
    """Raise `InvalidInput` unless the network returns one value per action."""
    if recurrent and not isinstance(network, RecurrentQNetwork):
        raise InvalidInput(
            f"`network` of a recurrent agent must be a RecurrentQNetwork; received {network!r}."
        )
    shape = task.preprocessor.batch_shape(None)
    space: Any = task.observation_space
    try:
        if not network.built:
            network.build({"observation": shape} if recurrent else shape)
        views = task.preprocessor(np.zeros((2, *space.shape), space.dtype))
        if recurrent:
            inputs = {"observation": views, **network.initial_state(2)}
            values, _ = network(inputs, inputs.pop("memory"))
        else:
            values = network(views, training=False)
    except Exception as error:
        raise InvalidInput(
            f"Network {network.name!r} cannot take preprocessed observations of the shape {shape}: "
            f"{error}"
        ) from error
    if tuple(values.shape) != (2, task.num_actions):
        raise InvalidInput(
            f"Network {network.name!r} must return Q values of shape (2, {task.num_actions}) for 2 "
            f"observations; received {tuple(values.shape)}."
        )


def _make_collector(task, agent, config, replicas):
    options = {"reset_on_truncation": not getattr(config, "ignore_time_limit", False)}
    make_env = functools.partial(training_env, task, config.num_envs, **options)
    if config.actors is not None:
        if replicas and replicas.hosts > 1:
            raise InvalidInput(
                "`actors` can only be used on one host, because several hosts need equal replay "
                f"buffers; received {replicas.hosts} hosts."
            )
        pool = RayPool(agent, make_env, config.actors, config.seed)
        return ActorCollector(agent, pool, config.actors, config.num_envs)
    if config.loop == "python":
        return Collector(agent, PythonEnvs(make_env(config.seed)), config.seed)
    makers = [level.make_graph for level in task.levels]
    if None in makers:
        raise InvalidInput(
            "loop='graph' needs a task whose levels have `make_graph`, such as Box-World or "
            f"DoorKey with one frame; received task {task.name!r}. Use `--loop python`."
        )
    graphs = [make(**options) for make in makers]
    return Collector(agent, GraphEnvs(graphs, config.num_envs), config.seed)


def _make_replay(task, agent, config):
    space: Any = task.observation_space
    common = {
        "num_envs": config.all_envs,
        "discount": config.discount,
        "priority_exponent": config.priority_exponent,
        "use_return_lower_bound": config.use_return_lower_bound,
        "frames": task.frames,
        "jit_compile": config.jit_compile,
    }
    if isinstance(config, RecurrentDoubleDQNConfig):
        return SequenceReplayBuffer(
            *(config.replay_capacity, space.shape, space.dtype),
            length=config.sequence_length,
            period=config.sequence_period,
            memory_size=agent.network.memory_size,
            **common,
        )
    return ReplayBuffer(
        *(config.replay_capacity, space.shape, space.dtype),
        n_step=config.n_step,
        positive_copies=config.positive_copies,
        **common,
    )


def _epsilons(config, step):
    """Return the probability of a random action at a step, one value or one per environment."""
    epsilon = linear_schedule(step, config.epsilon_start, config.epsilon_end, config.epsilon_steps)
    exponent = config.epsilon_exponent
    if exponent is None:
        exponent = 7.0 if config.actors else 0.0
    if exponent == 0:
        return epsilon
    return epsilon ** (1 + exponent * np.linspace(0.0, 1.0, config.all_envs))


def _train(task, loop, config, replicas, draw_episode, extra_evaluation, callbacks):
    play = make_play(loop.agent, task, config.evaluation_episodes, config.loop == "graph")
    curriculum, statistics = Curriculum(len(task.levels)), RolloutStatistics()
    run = Run(
        config,
        config.steps,
        identity=_identity(task, loop.agent.policy),
        stop=lambda rows: is_solved(rows, len(task.levels), config.stop_after_perfect),
        restore=functools.partial(_restore, loop, curriculum, statistics),
        replicas=replicas,
        setup=_setup(task, loop.agent.policy, config),
    )
    draw = functools.partial(_draw, draw_episode, loop.agent, task, run)
    if not run.is_finished():
        with (
            replicas.translate_worker_errors(),
            translate_xla_errors(),
            GracefulShutdown(replicas.any) as shutdown,
        ):
            _learn(run, loop, play, curriculum, statistics, shutdown, draw, callbacks)
        run.by_chief(_finish, run, loop.agent, play, task, draw, extra_evaluation)
    return run, loop.agent


def _setup(task, network, config):
    """Return what a run prints at its start about the environment and the network."""
    levels = "".join(f", level {level.name}" for level in task.levels if level.name)
    function = getattr(task.preprocessor.function, "__qualname__", "function")
    with contextlib.closing(task.make_env()) as env:
        setup = describe_env(env)
    names = ", ".join(task.action_names)
    described = describe_network(network)
    if hasattr(config, "network"):
        described = f"{config.network or fitting_network(task.preprocessor)}: {described}"
    return {
        "environment": f"{task.name}{levels}, {config.all_envs} in parallel",
        **setup,
        "actions": f"{setup['actions']}: {names}",
        "preprocessing": f"{function.partition('.')[0]}, result {task.preprocessor.shape}",
        "network": described,
    }


def _identity(task, network):
    """Return values that must be equal when a run resumes, in addition to the configuration.

    For a generic Keras model, only the number of parameters is compared, because its configuration
    contains automatic layer names, which differ between processes.
    """
    identity = {"task": task.name, "parameters": network.count_params()}
    if isinstance(network, BaseModel):
        plain = json.dumps(network.get_config(), default=keras.saving.serialize_keras_object)
        architecture = {"class": type(network).__name__, **json.loads(plain)}
        identity["architecture"] = {
            name: value for name, value in architecture.items() if name not in ("name", "dtype")
        }
    return identity


def _restore(loop, curriculum, statistics, step, state):
    """Restore a checkpoint that `_learn` saved.

    Raises:
        InvalidInput: if a part does not fit the run, or two parts contradict each other.
        KeyError, TypeError, ...: if a part is missing or has the wrong type.
    """
    loop.set_state(state)
    curriculum.set_state(state["curriculum"])
    statistics.set_state(state["statistics"])
    if loop.step != step:
        raise InvalidInput(
            f"`loop.step` must be {step}, the step of the checkpoint; received {loop.step}."
        )
    options = loop.collector.reset_options
    if level_of(options, curriculum.levels) != curriculum.level:
        raise InvalidInput(
            "`environment.reset_options` must have the level of the curriculum, "
            f"{curriculum.level}; received {options}."
        )


def _learn(run, loop, play, curriculum, statistics, shutdown, draw, callbacks):
    """Train until the run ends or is interrupted, and save checkpoints."""
    config = run.config

    def save():
        parts = {"curriculum": curriculum.get_state(), "statistics": statistics.get_state()}
        state = loop.get_state()
        require_finite(
            loop.step,
            {
                f"{part} {name}": value
                for part in ("agent", "replay", "episodes", "recurrent_state")
                for name, value in state.get(part, {}).items()
                if name != "return_lower_bound"  # -inf: unknown
            },
        )
        run.save(loop.step, state | parts, loop.agent.policy)

    def due(every):
        """Return whether the last step passed a multiple of `every`; 0 is never due."""
        return every and loop.step % every < loop.collector.num_envs

    bar_options = {"unit": "step", "mininterval": 0.5, "disable": not run.replicas.is_chief}
    with tqdm(total=run.steps, initial=run.step, **bar_options) as bar:
        until = 0 if run.is_over() else config.steps
        for record in profiled(loop.run(until), run.folder.path, _profile(loop, until, config), 1):
            statistics.add(record)
            bar.update(min(record.step, run.steps) - bar.n)  # all environments step at once
            last = shutdown.requested() or record.step >= until
            evaluates, saves = due(config.evaluate_every), due(config.checkpoint_every)
            draws = due(config.draw_every)
            if not (last or evaluates or saves or draws or due(config.log_every)):
                continue
            metrics = statistics.averages()
            metrics["train/learning_rate"] = float(loop.agent.optimizer.learning_rate)
            require_finite(record.step, {"train/loss": metrics.get("train/loss", 0.0)})
            if evaluates:
                metrics |= _evaluate(loop, play, curriculum)
            run.log.write(record.step, metrics)
            run.keep_best(loop.agent.policy)
            stops = [callback(record.step, metrics) for callback in callbacks]
            bar.set_postfix(_progress(metrics), refresh=False)
            if draws and not last and run.replicas.is_chief:  # `_finish` draws at the end
                draw()
            if saves:
                save()
            if run.replicas.any(last or any(stops) or run.is_over(record.step)):
                break
        if loop.step > run.step:
            save()


def _evaluate(loop, play, curriculum):
    """Evaluate the current level, and move to the next one when it is mastered."""
    metrics = evaluate_level(play, curriculum.level, curriculum.levels)
    if curriculum.report(metrics.get("eval/success", 0.0)):
        loop.collector.reset_options = {"level": curriculum.level}
        metrics |= zero_shot_scores(play, curriculum.level, curriculum.levels)
    return metrics


def _profile(loop, until, config):
    """Return a function that decides at which record the profile begins."""
    # Begin when the replay buffer is full enough for gradient steps.
    before = config.learning_starts + (config.n_step + WARM_UP) * config.all_envs
    first = loop.step + min(before, (until - loop.step) // 2)
    return lambda number: config.profile and loop.step >= first


def _finish(
    run: Run,
    agent: DoubleDQN,
    play: Play,
    task: Task,
    draw: Callable[[], list[pathlib.Path]],
    extra_evaluation: ExtraEvaluation | None,
) -> None:
    """Evaluate, draw and export the trained agent."""
    levels = len(task.levels)
    summary: dict[str, Any] = evaluate_level(play, levels - 1, levels)
    episodes = len(task.evaluation_resets(-1, run.config.evaluation_episodes))
    report = format_summary(summary, episodes, levels)
    if "eval/success" in summary:
        summary["first_perfect"] = first_perfect_step(run.log.rows, levels)
    figures = draw()
    with _exported_weights(run, agent.policy, {"step": run.step, **summary}) as exported:
        version = export_agent(run.folder.export, agent, task, exported)
    extra = extra_evaluation(agent) if extra_evaluation else {}
    run.finish({**summary, **extra}, report, [*figures, version])


def export_agent(
    folder: pathlib.Path, agent: DoubleDQN, task: Task, scores: Mapping[str, Any]
) -> pathlib.Path:
    """Export the policy of an agent, and return the new version folder.

    Args:
        folder: parent of the version folders.
        agent: `DoubleDQN` or `RecurrentDoubleDQN`.
        task: task that the agent has learned.
        scores: results to store in `policy.json`.
    """
    export = export_recurrent_policy if isinstance(agent, RecurrentDoubleDQN) else export_policy
    return export(
        folder,
        agent.policy,
        *task.raw_observation,
        env_actions=task.env_actions,
        details={
            "environment": task.name,
            "action_names": list(task.action_names),
            "scores": dict(scores),
        },
    )


@contextlib.contextmanager
def _exported_weights(run, policy, scores):
    """Set a policy to the weights to export, and yield their scores."""
    if not (run.config.export_best and run.best_step):
        yield scores
        return
    last = policy.get_weights()
    policy.load_weights(run.folder.best_file)
    row = next((row for row in run.log.rows if row["step"] == run.best_step), {})
    try:
        yield {name: value for name, value in row.items() if name.startswith(("step", "eval/"))}
    finally:
        policy.set_weights(last)


def _draw(draw_episode, agent, task, run):
    """Draw an episode and return the paths of the figures; print errors instead of raising them."""
    if draw_episode is None:
        return []
    try:
        return draw_episode(agent.policy, task, run.folder.figures, run.log)
    except Exception as error:
        print(f"cannot draw figures of {task.name}: {type(error).__name__}: {error}")
        return []


def _progress(metrics):
    """Return the metrics that the progress bar shows.

    They do not include the success of training episodes, which is too high at first, because
    successful episodes end earlier.
    """
    names = {
        "greedy success": ("eval/success", ".1%"),
        "greedy return": ("eval/return", ".4g"),
        "loss": ("train/loss", ".3g"),
        "epsilon": ("train/epsilon", ".2f"),
    }
    return {
        short: format(metrics[name], form)
        for short, (name, form) in names.items()
        if name in metrics and not (short == "greedy return" and "eval/success" in metrics)
    }
