"""The run of an agent on any task: train, evaluate, draw, export; the same command goes on."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, Literal

import keras
from tqdm import tqdm

from rrl_tf.agents import DoubleDQN, GraphLoop, Loop, RecurrentDoubleDQN
from rrl_tf.agents.agent_evaluation import (
    Player,
    first_perfect,
    in_words,
    is_solved,
    make_player,
    scores,
    untrained_scores,
)
from rrl_tf.agents.curriculum import Curriculum, level_of
from rrl_tf.agents.rollout import RolloutStatistics
from rrl_tf.envs import Task
from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_policy, export_recurrent_policy
from rrl_tf.interpret.episode import draw_episode
from rrl_tf.models._from_preset import FromPreset
from rrl_tf.training.config import (
    MUTABLE,
    RunConfig,
    require_fraction,
    require_not_negative,
    require_positive,
)
from rrl_tf.training.devices import Replicas
from rrl_tf.training.optimizers import OptimizerName
from rrl_tf.training.profiling import WARM_UP, profiled
from rrl_tf.training.run import Run
from rrl_tf.training.safeguards import GracefulShutdown, require_finite, translate_xla_errors


@dataclasses.dataclass(frozen=True)
class AgentConfig(RunConfig):
    """The numbers of every agent's run. Steps are environment steps, over all environments."""

    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Precision of the network."""
    optimizer: OptimizerName = "adam"
    """Muon updates matrices by the orthogonal part of their momentum, and the rest as Adam."""
    learning_rate: float = 1e-3
    """Step size in the beginning."""
    learning_rate_end: float = 1e-4
    """Step size from `learning_rate_updates` on, after a straight line down."""
    learning_rate_updates: int = 5000
    """Updates after which the step size is `learning_rate_end`."""
    learning_rate_hold: int = 0
    """Updates before it begins to fall; they count within `learning_rate_updates`."""
    clip_norm: float = 10.0
    """Largest global norm of the gradient."""
    loss: Literal["huber", "mse"] = "huber"
    """Of the temporal-difference errors: squared, or beyond 1 only their size."""
    target_period: int = 1
    """Updates between moves of the target network."""
    target_rate: float = 0.01
    """How far it moves towards the online network; 1 copies it. Below 1 the target network is a
    running average, and it is that which is evaluated and exported."""

    steps: int = dataclasses.field(default=25_000, metadata=MUTABLE)
    """When to stop. The same command with a larger number goes on."""
    stop_after_perfect: int = 0
    """Stop after so many evaluations in a row without a failure; 0 never does."""
    loop: Literal["python", "graph"] = "python"
    """Where it acts: in Python, which any environment allows, or with environment and replay in
    TensorFlow's graph, where nothing comes back to Python between two rows of the log."""
    num_envs: int = 16
    """Environments side by side; a run ends with the step of all of them that comes to `steps`."""
    updates_per_step: float = 0.25
    """Gradient steps an environment step."""
    batch_size: int = 64
    """Transitions, or sequences, of a gradient step."""
    learning_starts: int = 1000
    """Transitions gathered before the first update."""
    replay_capacity: int = 50_000
    """Transitions kept; the oldest make way."""
    n_step: int = 3
    """Rewards summed before a value is asked for."""
    discount: float = 0.93
    """What a reward is worth a step later."""
    priority_exponent: float = 0.6
    """0 samples uniformly."""
    observe_returns: bool = False
    """Raise targets to returns that were observed; right in a deterministic environment only."""
    epsilon_start: float = 1.0
    """Share of random actions in the beginning."""
    epsilon_end: float = 0.15
    """Share of random actions from `epsilon_steps` on."""
    epsilon_steps: int = 10_000
    """Steps from the first to the last exploration rate."""

    evaluation_episodes: int = 300
    """At most so many, always the same ones."""
    log_every: int = 500
    """Steps between rows of the log; evaluations, checkpoints and pictures write one as well."""
    evaluate_every: int = 1000
    """Steps between evaluations."""
    checkpoint_every: int = 5000
    """Steps between checkpoints."""
    draw_every: int = dataclasses.field(default=0, metadata=MUTABLE)
    """Steps between pictures and films of an episode; 0 draws only in the end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            self,
            *("steps", "num_envs", "batch_size", "replay_capacity", "n_step", "learning_rate"),
            *("learning_rate_updates", "clip_norm", "evaluation_episodes"),
            *("log_every", "evaluate_every", "checkpoint_every", "target_period"),
        )
        require_not_negative(
            self,
            *("updates_per_step", "learning_starts", "epsilon_steps", "stop_after_perfect"),
            *("learning_rate_end", "learning_rate_hold", "priority_exponent", "draw_every"),
        )
        if self.learning_rate_hold >= self.learning_rate_updates:
            raise InvalidInput(
                "`learning_rate_hold` must be less than "
                f"learning_rate_updates={self.learning_rate_updates}; "
                f"received {self.learning_rate_hold}"
            )
        if self.learning_starts >= self.replay_capacity:
            raise InvalidInput(
                f"learning_starts must be less than the replay_capacity of {self.replay_capacity}; "
                f"received {self.learning_starts}"
            )
        require_fraction(self, "discount", "target_rate", "epsilon_start", "epsilon_end")


FurtherTrials = Callable[[Any], Mapping[str, Any]]
"""Agent → what else is told of it when it has been trained."""


def train_agent(
    task: Task,
    loop: Loop | GraphLoop,
    config: AgentConfig,
    replicas: Replicas,
    further_trials: FurtherTrials | None = None,
) -> tuple[Run, Any]:
    """Trains the agent of a loop on a task, evaluates it, draws an episode and exports the policy.

    The same call again goes on from the last checkpoint; a run that is finished is left as it is.
    Ctrl-C and SIGTERM save first.

    Args:
        task: what is to be learned.
        loop: of `rrl_tf.agents.loops`, new: agent, environments and replay.
        config: every number, and the folder.
        replicas: the devices and hosts that share every update.
        further_trials: what else is to be told of the agent in the end.

    Returns:
        The `Run`, whose folder holds everything, and the trained agent.

    Raises:
        InvalidInput: if the folder holds another run, or the training diverges: loss, weights or
            rewards are nan.

    Example:
        >>> from rrl_tf.envs import gymnasium_task
        >>> from rrl_tf.models import dense_q_network
        >>> from rrl_tf.agents.double_dqn_run import DoubleDQNConfig
        >>> from rrl_tf.agents.loops import make_loop
        >>> task = gymnasium_task("CartPole-v1", max_steps=10)
        >>> config = DoubleDQNConfig(
        ...     name="cartpole", steps=192, learning_starts=64, evaluation_episodes=2
        ... )
        >>> loop = make_loop(task, dense_q_network(task.num_actions), config)
        >>> run, agent = train_agent(task, loop, config, Replicas())  # doctest: +ELLIPSIS
        step 192: greedily a mean return of ... in 2 episodes; ...
        written: runs/cartpole/figures/episode.gif, runs/cartpole/export/1, ...
    """
    play = make_player(loop.agent, task, config)
    curriculum, statistics = Curriculum(len(task.levels)), RolloutStatistics()
    run = Run(
        config,
        config.steps,
        identity={"task": task.name, "parameters": loop.agent.policy.count_params()},
        stop=lambda rows: is_solved(rows, len(task.levels), config.stop_after_perfect),
        restore=functools.partial(restore, loop, curriculum, statistics, config.path),
        replicas=replicas,
    )
    if not run.is_finished():
        with (
            replicas.translate_worker_errors(),
            translate_xla_errors(),
            GracefulShutdown(replicas.any) as shutdown,
        ):
            _train(run, loop, task, play, curriculum, statistics, config, shutdown)
        run.by_chief(finish, run, loop.agent, play, task, config, further_trials)
    return run, loop.agent


def check_same_network(file: pathlib.Path, network: keras.Model) -> None:
    """Raises an `InvalidInput` unless the network in a file is built as this one.

    Weights that fit say too little: with other activations, or heads, there are as many of them.
    Networks of Keras' own layers are not compared, as these are named by a running counter.
    """
    if not isinstance(network, FromPreset) or not file.exists():
        return  # hosts beside the chief have no file
    with zipfile.ZipFile(file) as archive:
        stored = json.loads(archive.read("config.json"))
    kind: Any = type(network)
    if stored["class_name"] != kind.__name__:
        raise InvalidInput(f"its network is a {stored['class_name']}, and not a {kind.__name__}")
    # Made anew, it has the arguments that came since, too.
    known, config = map(_plain, (kind.from_config(stored["config"]), network))
    told = [
        f"{name} is {known.get(name)!r} there and {value!r} here"
        for name, value in config.items()
        if name not in ("name", "dtype") and known.get(name) != value
    ]
    if told:
        raise InvalidInput(f"it is of another network: {', '.join(told)}")


def _plain(network):
    """A network's arguments as a file has them: no tuples."""
    default = keras.saving.serialize_keras_object
    return json.loads(json.dumps(network.get_config(), default=default))


def restore(
    loop: Loop | GraphLoop,
    curriculum: Curriculum,
    statistics: RolloutStatistics,
    path: pathlib.Path,
    step: int,
    state: Mapping[str, Any],
) -> None:
    """Takes up the checkpoint of a step in a run's folder, as `train_agent` saved it.

    Raises:
        InvalidInput: if a part does not fit what it is for, or two of them contradict each other.
        KeyError, TypeError, ...: if something is missing, or of another type.
    """
    file = path / "checkpoints" / f"{step:010d}" / "model.keras"
    check_same_network(file, loop.agent.policy)
    loop.set_state(state)
    curriculum.set_state(state["curriculum"])
    statistics.set_state(state["statistics"])
    if loop.step != step:
        raise InvalidInput(
            f"loop.step must be that of its checkpoint, {step}; received {loop.step}"
        )
    options = loop.env.reset_options
    if level_of(options, curriculum.levels) != curriculum.level:
        raise InvalidInput(
            f"environment.reset_options must be of the curriculum's level, {curriculum.level}; "
            f"received {options}"
        )


def _train(run, loop, task, play, curriculum, statistics, config, shutdown):
    """Goes on until the run is over or interrupted, and saves."""

    def save():
        parts = {"curriculum": curriculum.get_state(), "statistics": statistics.get_state()}
        state = loop.get_state()
        require_finite(loop.step, state["agent"])
        run.save(loop.step, state | parts, loop.agent.policy)

    def due(every):
        """Whether a multiple of `every` was passed by the last step of all environments."""
        return every and loop.step % every < config.num_envs

    bar_options = {"unit": "step", "mininterval": 0.5, "disable": not run.replicas.is_chief}
    with tqdm(total=run.steps, initial=run.step, **bar_options) as bar:
        until = 0 if run.is_over() else config.steps
        for record in profiled(loop.run(until), run.folder.path, *_profile(loop, until, config)):
            statistics.add(record)
            bar.update(min(record.step, run.steps) - bar.n)  # all environments step at once
            last = shutdown.requested() or record.step >= until
            evaluates, saves = due(config.evaluate_every), due(config.checkpoint_every)
            draws = due(config.draw_every)
            if not (last or evaluates or saves or draws or due(config.log_every)):
                continue
            metrics = statistics.averages()
            metrics["train/learning_rate"] = float(loop.agent.learner.optimizer.learning_rate)
            require_finite(record.step, {"train/loss": metrics.get("train/loss", 0.0)})
            if evaluates:
                metrics |= scores(play, curriculum.level, curriculum.levels)
                if curriculum.report(metrics.get("eval/success", 0.0)):
                    loop.env.reset_options = {"level": curriculum.level}
                    metrics |= untrained_scores(play, curriculum.level, curriculum.levels)
            run.log.write(record.step, metrics)
            bar.set_postfix(_shown(metrics), refresh=False)
            if draws and not last and run.replicas.is_chief:  # the end has its own
                _pictures(loop.agent.policy, task, run)
            if saves:
                save()
            if run.replicas.any(last or run.is_over(record.step)):
                break
        if loop.step > run.step:
            save()


def _profile(loop, until, config):
    """When a profile begins, and how many records of the loop it takes in."""
    # Every part of a step takes part only when the replay is full enough to learn from.
    before = config.learning_starts + (config.n_step + WARM_UP) * config.num_envs
    first = loop.step + min(before, (until - loop.step) // 2)
    count = 20 if isinstance(loop, Loop) else 1  # of others a record is hundreds of steps
    return lambda number: config.profile and loop.step >= first, count


def finish(
    run: Run,
    agent: DoubleDQN | RecurrentDoubleDQN,
    play: Player,
    task: Task,
    config: AgentConfig,
    further_trials: FurtherTrials | None,
) -> None:
    """Final evaluation, pictures and export of a run that has just been trained."""
    last = len(task.levels) - 1
    summary: dict[str, Any] = scores(play, last, len(task.levels))
    episodes = len(task.evaluation_resets(-1, config.evaluation_episodes))
    report = in_words(summary, episodes, len(task.levels))
    if "eval/success" in summary:
        summary["first_perfect"] = first_perfect(run.log.rows, len(task.levels))
    pictures = _pictures(agent.policy, task, run)
    remembers = isinstance(agent, RecurrentDoubleDQN)
    export = export_recurrent_policy if remembers else export_policy
    version = export(
        run.folder.export,
        agent.policy,
        task.preparation,
        task.observation_space.shape,
        task.observation_space.dtype,
        policy={
            "environment": task.name,
            "action_names": list(task.action_names),
            "scores": {"step": run.step, **summary},
        },
    )
    told = further_trials(agent) if further_trials else {}
    run.finish({**summary, **told}, report, [*pictures, version])


def _pictures(network, task, run):
    """Paths of what could be drawn; an environment's pictures may fail in any way of its own."""
    try:
        return draw_episode(network, task, run.folder.figures, run.log)
    except Exception as error:
        print(f"no pictures of {task.name}: {type(error).__name__}: {error}")
        return []


def _shown(metrics):
    """What the progress bar shows: greedy play is what a reader takes `success` for.

    That of the training episodes is not shown: the first few to finish are those that succeed.
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
