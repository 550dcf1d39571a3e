"""The run of a double DQN on any task: train, evaluate, draw, export; the same command goes on."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal

import keras
from tqdm import tqdm

from rrl_tf.agents import ActorLoop, DoubleDQN, Loop, ReplayBuffer, linear_schedule
from rrl_tf.agents.curriculum import Curriculum, training_env
from rrl_tf.envs import Task
from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_policy
from rrl_tf.training.config import (
    RunConfig,
    require_not_negative,
    require_positive,
    require_share,
)
from rrl_tf.training.divergence import require_finite
from rrl_tf.training.evaluation import evaluate
from rrl_tf.training.interruption import Interruption
from rrl_tf.training.pictures import draw_episode
from rrl_tf.training.profiling import profiled
from rrl_tf.training.ray_actors import ray_actors
from rrl_tf.training.replicas import Replicas, make_replicas
from rrl_tf.training.rollout import RolloutStatistics
from rrl_tf.training.run import Run


@dataclasses.dataclass(frozen=True)
class DoubleDQNConfig(RunConfig):
    """Every number of a run. Steps are environment steps, over all environments."""

    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Precision of the network."""
    learning_rate: float = 1e-3
    """Adam's step size in the beginning."""
    learning_rate_end: float = 1e-4
    """Adam's step size from `learning_rate_updates` on, a straight line between."""
    learning_rate_updates: int = 5000
    clip_norm: float = 10.0
    """Largest global norm of the gradient."""
    loss: Literal["huber", "mse"] = "huber"
    """Of the temporal-difference errors: squared, or beyond 1 only their size."""
    target_period: int = 1
    """Updates between moves of the target network."""
    target_rate: float = 0.01
    """How far it moves towards the online network; 1 copies it. Below 1 the target network is a
    running average, and it is that which is evaluated and exported."""
    select_at_t: bool = False
    """The published book agent chooses the action to value at t instead of t + 1."""
    jit_compile: bool = True
    """Compile the update with XLA."""

    steps: int = 25_000
    """When to stop. The same command with a larger number goes on."""
    stop_after_perfect: int = 0
    """Stop after so many evaluations in a row without a failure; 0 never does."""
    num_envs: int = 16
    """Environments side by side; a run ends with the step of all of them that comes to `steps`."""
    actors: int | None = None
    """Processes that play `num_envs` environments each, by Ray; by default the learner plays."""
    updates_per_step: float = 0.25
    """Gradient steps an environment step."""
    batch_size: int = 64
    """Transitions of a gradient step."""
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
    positive_copies: int = 1
    """How often a transition with a positive reward is stored."""
    observe_returns: bool = False
    """Raise targets to returns that were observed; right in a deterministic environment only."""
    ignore_time_limit: bool = False
    """Play on after a time-out, as the published book agent does."""
    epsilon_start: float = 1.0
    """Share of random actions in the beginning."""
    epsilon_end: float = 0.15
    """Share of random actions from `epsilon_steps` on."""
    epsilon_steps: int = 10_000
    """Steps from the first to the last exploration rate."""

    evaluation_episodes: int = 300
    """At most so many, always the same ones."""
    log_every: int = 500
    """Steps between rows of the log; an evaluation or a checkpoint writes one as well."""
    evaluate_every: int = 1000
    """Steps between evaluations."""
    checkpoint_every: int = 5000
    """Steps between checkpoints."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            self,
            *("steps", "num_envs", "batch_size", "replay_capacity", "n_step", "learning_rate"),
            *("learning_rate_updates", "clip_norm", "evaluation_episodes", "positive_copies"),
            *("log_every", "evaluate_every", "checkpoint_every", "target_period"),
        )
        require_not_negative(
            self,
            *("updates_per_step", "learning_starts", "epsilon_steps", "stop_after_perfect"),
            *("learning_rate_end", "priority_exponent"),
        )
        if self.learning_starts >= self.replay_capacity:
            raise InvalidInput(
                f"learning_starts must be less than the replay_capacity of {self.replay_capacity}; "
                f"received {self.learning_starts}"
            )
        if self.actors is not None:
            require_positive(self, "actors")
        require_share(self, "discount", "target_rate", "epsilon_start", "epsilon_end")


def train_double_dqn(
    task: Task, network: keras.Model, config: DoubleDQNConfig, replicas: Replicas | None = None
) -> tuple[Run, DoubleDQN]:
    """Trains a Q network on a task, evaluates it, draws an episode and exports the policy.

    Everything is checked before the run's folder is made. The same call again goes on from the
    last checkpoint; a run that is finished is left as it is. Ctrl-C and SIGTERM save first.

    Args:
        task: what is to be learned.
        network: any `keras.Model`, prepared observations `(B, *task.preparation.shape)` → Q values
            `(B, A)`; a `keras.Sequential` will do. Its weights are trained in place.
        config: every number, and the folder.
        replicas: the devices and hosts that share every update, by default those that `config`
            asks for; several hosts must be joined before the network is made.

    Returns:
        The `Run`, whose folder holds everything, and the trained `DoubleDQN`.

    Raises:
        InvalidInput: if a number is out of range, network and task do not fit each other, the
            folder holds another run, or the training diverges: loss, weights or rewards are nan.

    Example:
        >>> task = gymnasium_task("CartPole-v1")
        >>> config = DoubleDQNConfig(name="cartpole", steps=20_000, discount=0.99)
        >>> run, agent = train_double_dqn(task, dense_q_network(task.num_actions), config)
        >>> agent.greedy(observations)  # (B,) actions
    """
    replicas = replicas or make_replicas(config, config.batch_size)
    loop = make_loop(task, network, config, replicas)
    curriculum, statistics = Curriculum(len(task.levels)), RolloutStatistics()
    run = Run(
        config,
        config.steps,
        may_change=("steps",),
        identity={"task": task.name},
        stop=lambda rows: is_solved(rows, len(task.levels), config.stop_after_perfect),
        replicas=replicas,
    )
    if (state := run.load()) is not None:
        with run.folder.restoring():
            loop.set_state(state)
            curriculum.set_state(state["curriculum"])
            statistics.set_state(state["statistics"])
    if not run.is_finished():
        with replicas.losses_told(), Interruption() as interruption:
            _train(run, loop, curriculum, statistics, task, config, interruption)
        interruption.obey()
        run.by_chief(finish, run, loop.agent, task, config)
    return run, loop.agent


def _train(run, loop, curriculum, statistics, task, config, interruption):
    """Goes on until the run is over or interrupted, and saves."""

    def save():
        parts = {"curriculum": curriculum.get_state(), "statistics": statistics.get_state()}
        state = loop.get_state()
        require_finite(loop.step, state["agent"])
        run.save(loop.step, state | parts, loop.agent.policy)

    def due(every):
        """Whether a multiple of `every` was passed by the last step of all environments."""
        return loop.step % every < config.num_envs

    bar_options = {"unit": "step", "mininterval": 0.5, "disable": not run.replicas.is_chief}
    with tqdm(total=run.steps, initial=run.step, **bar_options) as bar:
        until = 0 if run.is_over() else config.steps
        for record in profiled(loop.run(until), run.folder.path, config.profile_from):
            statistics.add(record)
            bar.update(record.step - bar.n)
            last = interruption.agreed(run.replicas) or record.step >= until
            evaluates, saves = due(config.evaluate_every), due(config.checkpoint_every)
            if not (last or evaluates or saves or due(config.log_every)):
                continue
            metrics = statistics.averages()
            require_finite(record.step, {"train/loss": metrics.get("train/loss", 0.0)})
            if evaluates:
                metrics |= evaluate_agent(loop.agent, task, curriculum.level, config)
                if curriculum.report(metrics.get("eval/success", 0.0)):
                    loop.env.reset_options = {"level": curriculum.level}
            run.log.write(record.step, metrics)
            bar.set_postfix(_shown(metrics), refresh=False)
            if saves:
                save()
            if run.replicas.any(last or run.is_over(record.step)):
                break
        if loop.step > run.step:
            save()


def make_loop(
    task: Task, network: keras.Model, config: DoubleDQNConfig, replicas: Replicas | None = None
) -> Loop:
    """The training loop with its agent, environments and replay, all new.

    Args:
        task, network, config, replicas: as in `train_double_dqn`; by default one device.
    """
    agent = make_agent(task, network, config, replicas)
    make_env = functools.partial(
        training_env, task, config.num_envs, reset_on_truncation=not config.ignore_time_limit
    )
    replay = ReplayBuffer(
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
    epsilon = functools.partial(
        linear_schedule,
        start=config.epsilon_start,
        end=config.epsilon_end,
        steps=config.epsilon_steps,
    )
    on_ray = config.actors is not None
    env: Any = ray_actors(agent, make_env, config, replicas) if on_ray else make_env(config.seed)
    return (ActorLoop if on_ray else Loop)(
        agent,
        env,
        replay,
        epsilon=epsilon,
        updates_per_step=config.updates_per_step,
        batch_size=config.batch_size,
        learning_starts=config.learning_starts,
        seed=config.seed,
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
    shape = task.preparation.shape
    try:
        if not network.built:
            network.build((None, *shape))
        answer = tuple(network(keras.ops.zeros((2, *shape)), training=False).shape)
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
    return DoubleDQN(
        network,
        task.preparation,
        learning_rate=keras.optimizers.schedules.PolynomialDecay(
            config.learning_rate, config.learning_rate_updates, config.learning_rate_end
        ),
        clip_norm=config.clip_norm,
        loss=config.loss,
        target_period=config.target_period,
        target_rate=config.target_rate,
        select_at_t=config.select_at_t,
        jit_compile=config.jit_compile,
        spread=replicas.spread if replicas and replicas.count > 1 else None,
    )


def evaluate_agent(
    agent: DoubleDQN, task: Task, level: int, config: DoubleDQNConfig
) -> dict[str, float]:
    """Metrics of greedy play and of play with 5 % random actions, from every evaluation start."""
    resets = task.evaluation_resets(level, config.evaluation_episodes)
    make = functools.partial(task.make_test_env, level)
    greedy = evaluate(agent.greedy, make, resets).summary()
    noisy = evaluate(agent.greedy, make, resets, epsilon=0.05).summary()
    measure = "return"
    if "success" in {*greedy, *noisy} or len(task.levels) > 1:
        measure = "success"  # who never told of one had none
        greedy.setdefault(measure, 0.0)
        noisy.setdefault(measure, 0.0)
    return {
        **{f"eval/{name}": value for name, value in greedy.items()},
        f"eval/{measure}_epsilon_0.05": noisy[measure],
        "eval/level": level % len(task.levels) + 1,
    }


def finish(run: Run, agent: DoubleDQN, task: Task, config: DoubleDQNConfig) -> None:
    """Final evaluation, pictures and export of a run that has just been trained."""
    scores = evaluate_agent(agent, task, -1, config)
    summary: dict[str, Any] = dict(scores)
    if "eval/success" in scores:
        summary["first_perfect"] = first_perfect(run.log.rows, len(task.levels))
    pictures = _pictures(agent.policy, task, run)
    version = export_policy(
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
    episodes = len(task.evaluation_resets(-1, config.evaluation_episodes))
    run.finish(summary, in_words(scores, episodes), [*pictures, version])


def _pictures(network, task, run):
    """Paths of what could be drawn; an environment's pictures may fail in any way of its own."""
    try:
        return draw_episode(network, task, run.folder.figures, run.log)
    except Exception as error:
        print(f"no pictures of {task.name}: {type(error).__name__}: {error}")
        return []


def in_words(scores: dict[str, float], episodes: int) -> str:
    """The outcome in a sentence."""
    said = f"greedily a mean return of {scores['eval/return']:.4g} in {episodes} episodes"
    if "eval/success" not in scores:
        return f"{said}, {scores['eval/return_epsilon_0.05']:.4g} with 5 % of random actions"
    loops = f" ({scores['eval/loops']:.1%} ended in a loop)" if "eval/loops" in scores else ""
    return (
        f"{said}; {scores['eval/success']:.1%} of them solved{loops}, "
        f"{scores['eval/success_epsilon_0.05']:.1%} with 5 % of random actions"
    )


def first_perfect(rows: list[dict[str, float]], levels: int) -> int | None:
    """The first step at which every start of the last level was solved greedily, or `None`."""
    for row in rows:
        if row.get("eval/success") == 1 and row["eval/level"] == levels:
            return int(row["step"])
    return None


def is_solved(rows: list[dict[str, float]], levels: int, evaluations: int) -> bool:
    """Whether so many last evaluations, of the last level, were without a failure."""
    last = [row for row in rows if "eval/success" in row][-evaluations:]
    return 0 < evaluations <= len(last) and all(
        row["eval/success"] == 1 and row["eval/level"] == levels for row in last
    )


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
