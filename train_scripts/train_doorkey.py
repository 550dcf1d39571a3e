"""Trains a relational double DQN on MiniGrid DoorKey.

python -m train_scripts.train_doorkey                    # ours, 5x5
python -m train_scripts.train_doorkey --preset fast-6x6  # a curriculum, tested on new layouts
python -m train_scripts.train_doorkey --preset book      # the book's agent, as it was meant
"""

import dataclasses
import functools
from typing import Literal

import keras
import numpy as np
from tqdm import tqdm

from rrl_tf import viz
from rrl_tf.agents import DoubleDQN, Loop, ReplayBuffer, linear_schedule
from rrl_tf.agents.curriculum import Curriculum, CurriculumEnv
from rrl_tf.envs import (
    PREPARATIONS,
    SeededVectorEnv,
    enumerate_starts,
    make_doorkey,
    split_layouts,
)
from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_policy
from rrl_tf.models import RelationalQNetwork
from rrl_tf.training import (
    MetricsLog,
    RolloutStatistics,
    RunFolder,
    evaluate,
    profiled,
)
from train_scripts import command_line, doorkey_pictures

LARGEST_ENUMERATED = 8
"""Side of the largest grid whose starts are listed one by one; beyond it, seeds are fresh."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Every number of a run. Steps are environment steps, over all environments."""

    preset: str = "fast"
    """Where the numbers below come from."""
    seed: int = 0
    """Of the weights, the levels, the exploration and the samples."""
    name: str = ""
    """Folder under `runs`; by default the preset and the seed."""
    runs: str = "runs/doorkey"
    """Where runs are kept."""

    sizes: tuple[int, ...] = (5,)
    """Sides of the grid, a curriculum from first to last; the last one is evaluated."""
    held_out: bool = False
    """Keep a third of the last size's layouts for evaluation."""
    held_out_seed: int = 0
    """Which third."""
    observation: Literal["view", "compass"] = "compass"
    """The egocentric view alone, or with the agent's direction."""
    frames: int = 1
    """Observations stacked."""
    preparation: Literal["one_hot", "constant", "frame_maximum"] = "one_hot"
    """How raw observations become floats."""
    reward: Literal["env", "success", "book"] = "success"
    """What is learned from (`make_doorkey`)."""
    max_steps: int | None = None
    """Time limit of an episode; 10 * size² if not given."""
    ignore_time_limit: bool = False
    """The published book agent plays on after a time-out."""

    network: str = "fast"
    """Preset of `RelationalQNetwork`."""
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
    updates_per_step: float = 0.25
    batch_size: int = 64
    learning_starts: int = 1000
    """Transitions gathered before the first update."""
    replay_capacity: int = 50_000
    n_step: int = 3
    discount: float = 0.93
    priority_exponent: float = 0.6
    """0 samples uniformly."""
    positive_copies: int = 1
    """How often a transition with a positive reward is stored."""
    observe_returns: bool = True
    """Raise targets to returns that were observed; right in a deterministic environment."""
    epsilon_start: float = 1.0
    epsilon_end: float = 0.15
    epsilon_steps: int = 10_000
    """Steps from the first to the last exploration rate."""

    evaluation_episodes: int = 300
    """At most so many starts, drawn once from all there are to test on."""
    log_every: int = 500
    evaluate_every: int = 1000
    checkpoint_every: int = 5000
    profile_from: int | None = None
    """Record 20 loop steps from this one on for TensorBoard's profiler."""


FAST = Config()
BOOK = dataclasses.replace(
    FAST,
    preset="book",
    observation="view",
    preparation="frame_maximum",
    reward="book",
    max_steps=400,
    network="book",
    learning_rate=5e-4,
    learning_rate_end=5e-4,
    clip_norm=1.0,
    loss="mse",
    target_period=100,
    target_rate=1.0,
    steps=50_000,
    num_envs=1,
    updates_per_step=1.0,
    batch_size=50,
    learning_starts=50,
    replay_capacity=9000,
    n_step=1,
    discount=0.99,
    priority_exponent=0.0,
    positive_copies=50,
    observe_returns=False,
    epsilon_start=0.5,
    epsilon_end=0.5,
    epsilon_steps=0,
    jit_compile=False,  # XLA makes this network's update slower on a CPU
    evaluate_every=2500,
)
PRESETS = {
    "fast": FAST,
    "fast-6x6": dataclasses.replace(
        FAST,
        preset="fast-6x6",
        sizes=(5, 6),
        held_out=True,
        steps=60_000,
        learning_rate_updates=12_000,
    ),
    "zambaldi": dataclasses.replace(FAST, preset="zambaldi", network="zambaldi"),
    "book": BOOK,
    "book-published": dataclasses.replace(
        BOOK,
        preset="book-published",
        max_steps=None,
        ignore_time_limit=True,
        select_at_t=True,
    ),
}


def main(config):
    """Trains a relational double DQN on MiniGrid DoorKey; the same command again continues."""
    keras.utils.set_random_seed(config.seed)
    folder = RunFolder(
        command_line.run_path(config), dataclasses.asdict(config), may_change=("steps",)
    )
    loop = make_loop(config)
    curriculum = Curriculum(len(config.sizes))
    statistics = RolloutStatistics()
    if state := folder.load_checkpoint():
        loop.set_state(state)
        curriculum.set_state(state["curriculum"])
        statistics.set_state(state["statistics"])
    log = MetricsLog(folder.path, until_step=loop.step)
    log.settings(dataclasses.asdict(config))

    def save():
        parts = {"curriculum": curriculum.get_state(), "statistics": statistics.get_state()}
        folder.save_checkpoint(loop.step, loop.get_state() | parts, loop.agent.policy)

    if folder.is_finished(loop.step):
        print(f"{folder.path} is trained already, to step {loop.step:,}")
        if loop.step >= config.steps or is_solved(log.rows, config):
            return folder, loop.agent
    until = loop.step if is_solved(log.rows, config) else config.steps
    with tqdm(total=config.steps, initial=loop.step, unit="step", mininterval=0.5) as bar:
        for record in profiled(loop.run(until), folder.path, config.profile_from):
            statistics.add(record)
            bar.update(record.step - bar.n)
            if not due(config.log_every, record.step, config):
                continue
            metrics = statistics.averages()
            if due(config.evaluate_every, record.step, config):
                metrics |= evaluate_agent(loop.agent, config, curriculum.level)
                if curriculum.report(metrics["eval/success"]):
                    loop.env.reset_options = {"level": curriculum.level}
            log.write(record.step, metrics)
            bar.set_postfix(progress(metrics), refresh=False)
            if due(config.checkpoint_every, record.step, config):
                save()
            if is_solved(log.rows, config):
                break
    save()
    finish(config, folder, loop.agent, log)
    return folder, loop.agent


def finish(config, folder, agent, log):
    """Final evaluation, pictures and export of a run that has just been trained."""
    scores = evaluate_agent(agent, config)
    step = int(log.rows[-1]["step"])
    summary = {"step": step, "first_perfect": first_perfect(log.rows, config), **scores}
    env = make_env(config, render_mode="rgb_array")
    starts = [reset["options"]["start"] for reset in evaluation_resets(config)]
    attention, paths = doorkey_pictures.draw(
        agent.policy, agent.prepare, env, starts, folder.figures
    )
    log.image(step, "attention", viz.figure_to_image(attention))
    version = export_policy(
        folder.export,
        agent.policy,
        agent.prepare,
        env.observation_space.shape,
        policy={
            "environment": f"DoorKey-{config.sizes[-1]}x{config.sizes[-1]}",
            "observation": config.observation,
            "frames": config.frames,
            "action_names": list(env.get_wrapper_attr("action_names")),
            "scores": summary,
        },
    )
    folder.finish(summary)
    solved, loops = scores["eval/success"], scores["eval/loops"]
    print(
        f"step {step:,}: {solved:.1%} of {len(starts)} starts solved greedily "
        f"({loops:.1%} ended in a loop), {scores['eval/success_epsilon_0.05']:.1%} with 5 % of "
        f"random actions\nwritten: {', '.join(map(str, [*paths, version]))}"
    )


def first_perfect(rows, config):
    """The first step at which every start of the last size was solved greedily, or `None`."""
    for row in rows:
        if row.get("eval/success") == 1 and row["eval/size"] == config.sizes[-1]:
            return int(row["step"])
    return None


def due(every, step, config):
    """Whether a multiple of `every` was passed by the last step of all environments."""
    return step % every < config.num_envs


def is_solved(rows, config):
    """Whether the last evaluations, of the last size, were without a failure."""
    evaluated = [row for row in rows if "eval/success" in row][-config.stop_after_perfect :]
    return 0 < config.stop_after_perfect <= len(evaluated) and all(
        row["eval/success"] == 1 and row["eval/size"] == config.sizes[-1] for row in evaluated
    )


def progress(metrics):
    """What the progress bar shows."""
    names = {
        "success": "rollout/success",
        "greedy": "eval/success",
        "loss": "train/loss",
        "epsilon": "train/epsilon",
    }
    return {short: f"{metrics[name]:.3f}" for short, name in names.items() if name in metrics}


def make_loop(config):
    """The training loop with its agent, environments and replay, all new."""
    env = SeededVectorEnv(
        lambda: CurriculumEnv([make_env(config, level) for level in range(len(config.sizes))]),
        config.num_envs,
        config.seed,
        reset_on_truncation=not config.ignore_time_limit,
    )
    space = env.single_observation_space
    replay = ReplayBuffer(
        config.replay_capacity,
        space.shape,
        space.dtype,
        num_envs=config.num_envs,
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
    return Loop(
        make_agent(config, space, env.single_action_space),
        env,
        replay,
        epsilon=epsilon,
        updates_per_step=config.updates_per_step,
        batch_size=config.batch_size,
        learning_starts=config.learning_starts,
        seed=config.seed,
    )


def make_env(config, level=-1, starts=None, render_mode=None):
    """The environment of one level of the curriculum; by default with its training starts."""
    return make_doorkey(
        config.sizes[level],
        observation=config.observation,
        frames=config.frames,
        reward=config.reward,
        max_steps=config.max_steps,
        starts=starts or split_starts(config, level)[0],
        render_mode=render_mode,
    )


def make_agent(config, observation_space, action_space):
    """A double DQN with new weights."""
    prepare = preparation(config)
    *grid, features = prepare(np.zeros(observation_space.shape, "uint8")).shape
    # Of stacked frames the newest, which comes last, tells what is in sight.
    newest = {"unseen_feature": features - features // config.frames}
    network = RelationalQNetwork.from_preset(
        config.network,
        num_actions=int(action_space.n),
        dtype=config.dtype,
        **(newest if config.network == "fast" else {}),
    )
    network.build((None, *grid, features))
    return DoubleDQN(
        network,
        prepare,
        learning_rate=keras.optimizers.schedules.PolynomialDecay(
            config.learning_rate, config.learning_rate_updates, config.learning_rate_end
        ),
        clip_norm=config.clip_norm,
        loss=config.loss,
        target_period=config.target_period,
        target_rate=config.target_rate,
        select_at_t=config.select_at_t,
        jit_compile=config.jit_compile,
    )


def preparation(config):
    """The function from raw observations to the network's input.

    Raises:
        ValueError: if the observation cannot be prepared that way.
    """
    suffix = "" if config.observation == "view" else f"_{config.observation}"
    name = config.preparation + suffix
    if name not in PREPARATIONS:
        raise InvalidInput(
            f"observation {config.observation!r} cannot be prepared by {config.preparation!r}; "
            f"known are {', '.join(PREPARATIONS)}"
        )
    return PREPARATIONS[name]


@functools.cache
def split_starts(config, level=-1):
    """Starts to train on (`None`: whatever MiniGrid makes) and starts to test on, of one level."""
    size = config.sizes[level]
    is_last = size == config.sizes[-1]
    if size > LARGEST_ENUMERATED:
        return None, None
    starts = enumerate_starts(size)
    if is_last and config.held_out:
        return split_layouts(starts, seed=config.held_out_seed)
    return None, starts


def evaluation_resets(config, level=-1):
    """Keyword arguments of `env.reset`, one an evaluation episode."""
    _, starts = split_starts(config, level)
    if starts is None:
        # Training episodes have random 64-bit seeds: these stay unseen.
        return [{"seed": seed} for seed in range(config.evaluation_episodes)]
    if len(starts) > config.evaluation_episodes:
        chosen = np.random.default_rng(0).permutation(len(starts))[: config.evaluation_episodes]
        starts = [starts[i] for i in sorted(chosen)]
    return [{"options": {"start": start}} for start in starts]


def evaluate_agent(agent, config, level=-1):
    """Metrics of greedy play and of play with 5 % random actions, from every evaluation start."""
    resets = evaluation_resets(config, level)
    env = functools.partial(make_env, config, level)
    greedy = evaluate(agent.greedy, env, resets).summary()
    noisy = evaluate(agent.greedy, env, resets, epsilon=0.05).summary()
    return {
        **{f"eval/{name}": value for name, value in greedy.items()},
        "eval/success_epsilon_0.05": noisy["success"],
        "eval/size": config.sizes[level],
    }


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="fast")
