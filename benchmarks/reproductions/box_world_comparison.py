"""Whether a network can learn which lock a key opens: supervised, by exact values of Box-World.

Every state of a few thousand levels is valued exactly, and the network learns to name the best
actions in those in which colours must be compared: a key is held, and there is more than one lock.
It is asked in those of new levels. Where it does not get there, an agent with it hardly will.
"""

import dataclasses
import json

import keras
import numpy as np
import tensorflow as tf

from benchmarks.report import RESULTS, Report
from benchmarks.reproductions.recall import by_looks
from rrl_tf.envs.box_world_graph import BoxWorldGraph, BoxWorldState
from rrl_tf.envs.box_world_levels import COLOUR_BITS, DISTRACTOR, LOCK
from rrl_tf.training import make_optimizer
from train_scripts import train_box_world

FIRST = {
    "conv_filters": (32,),
    "conv_activation": "relu",
    "block": {},
    "hidden_units": (64,),
}
"""The network of the first agents, which learned to open a lone box and no more."""
CELLS = {**FIRST, "conv_kernel_size": 1, "conv_padding": "valid", "conv_activation": None}
BLOCK = {
    "key_size": 32,
    "units": (64, 34),  # 34: 32 channels and two coordinates
    "activation": "relu",
    "norm": "entity",
    "qkv_norm": "entity",
}
VARIANTS = {
    "preset": ("fast", "muon", {}),
    "preset, Adam": ("fast", "adam", {}),
    "first": ("fast", "adam", FIRST),
    "first, Muon": ("fast", "muon", FIRST),
    "every cell by itself": ("fast", "muon", CELLS),
    "dense layers and norms in each round": ("fast", "muon", {**FIRST, "block": BLOCK}),
    "both": ("fast", "muon", {**CELLS, "block": BLOCK}),
    "both, Adam": ("fast", "adam", {**CELLS, "block": BLOCK}),
    "zambaldi": ("zambaldi", "muon", {}),
    "convolutional": ("convolutional", "muon", {}),
}
"""Row of the table → network of `train_box_world`, optimiser, and the network's changes."""
RATES = {"adam": 1e-3, "muon": 1e-2}


@dataclasses.dataclass(frozen=True)
class Config:
    """How many levels there are, and how long is learned."""

    variants: tuple[str, ...] = tuple(VARIANTS)
    """Rows of the table. Others that are there already, of the same settings, stay."""
    seeds: tuple[int, ...] = (0, 1, 2)
    boxes: int = 3
    """At most so many lead to the gem."""
    distractors: int = 2
    levels: int = 8000
    """To learn from; a fortieth as many are asked."""
    discount: float = 0.9
    updates: int = 600
    every: int = 200
    """Updates between two looks."""
    batch_size: int = 256


def main(config):
    """Teaches networks the best actions of Box-World, and writes where they know them."""
    numbers = train_box_world.Config(boxes=config.boxes, distractors=config.distractors)
    task = train_box_world.make_task(numbers)
    learned = valued(config, config.levels, seed=0)
    asked = valued(config, max(1, config.levels // 40), seed=1)
    rows = []
    for name in config.variants:
        curves = [train(numbers, task, name, s, learned, asked, config) for s in config.seeds]
        rows.append({"network": name, "seeds": len(curves), **by_looks(curves, config)})
        print(rows[-1], flush=True)
    return Report(
        "What a network can be taught of Box-World",
        with_earlier(rows, config),
        (
            f"Share of {len(asked['best']):,} states of new levels in which the first choice is a "
            "best action; in all of them colours must be compared.",
            f"Learned from {len(learned['best']):,} such states, batches of {config.batch_size}; "
            f"Adam at {RATES['adam']} or Muon at {RATES['muon']}, falling to 0 by a cosine; mean "
            "and range over the seeds. Machine and `variants` are those of the last run.",
        ),
    )


def with_earlier(rows, config, file=RESULTS / "box_world_comparison.json"):
    """The rows, and those of other networks that runs with the same settings wrote, in order."""
    if not file.exists():
        return rows
    before = json.loads(file.read_text())
    settings = json.loads(json.dumps(dataclasses.asdict(config)))  # of lists, as the file's
    if any(before["settings"][name] != settings[name] for name in {*settings} - {"variants"}):
        return rows
    row_of = {row["network"]: row for row in [*before["rows"], *rows]}
    return [row_of[name] for name in VARIANTS if name in row_of]


def train(numbers, task, name, seed, learned, asked, config):
    """The share of states in which a best action is chosen, at every look."""
    network, optimizer, overrides = VARIANTS[name]
    keras.utils.set_random_seed(seed)
    numbers = dataclasses.replace(numbers, network=network)
    model = train_box_world.make_network(numbers, task, **overrides)
    model.build((None, *task.preprocessor.shape))
    rate = keras.optimizers.schedules.CosineDecay(RATES[optimizer], config.updates)
    optimizer = make_optimizer(optimizer, learning_rate=rate)
    optimizer.build(model.trainable_variables)

    @tf.function
    def update(observation, best):
        with tf.GradientTape() as tape:
            log_probability = tf.nn.log_softmax(model(task.preprocessor(observation)))
            known = tf.where(best, log_probability, -np.inf)
            loss = -tf.reduce_mean(tf.reduce_logsumexp(known, axis=-1))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    choose = tf.function(lambda seen: tf.argmax(model(task.preprocessor(seen)), axis=-1))
    rng, looks = np.random.default_rng(seed), []
    for k in range(1, config.updates + 1):
        rows = rng.integers(len(learned["best"]), size=config.batch_size)
        update(learned["observation"][rows], learned["best"][rows])
        if k % config.every == 0:
            looks.append(known_share(choose, asked))
    return looks


def known_share(choose, asked, batch_size=2048):
    """In how many states the first choice is a best action."""
    starts = range(0, len(asked["best"]), batch_size)
    chosen = [choose(asked["observation"][i : i + batch_size]).numpy() for i in starts]
    return np.take_along_axis(asked["best"], np.concatenate(chosen)[:, None], axis=1).mean()


def valued(config, count, seed):
    """The states of so many levels in which a key is held and there are several locks.

    Returns:
        What is seen, `observation` `(S, size, size, 2)`, and which actions are `best`, `(S, 4)`.
    """
    env = BoxWorldGraph(
        pool=count,
        pool_seed=seed,
        size=8,
        goal_length=range(1, config.boxes + 1),
        num_distractors=range(config.distractors + 1),
        part="train",
    )
    starts = BoxWorldState(*(part.numpy() for part in all_levels(env)))
    states, following, reward = reachable(env, starts)
    value = action_values(following, reward, config.discount)
    kinds = states.cells >> COLOUR_BITS
    locks = ((kinds == LOCK) | (kinds == DISTRACTOR)).sum(axis=1)
    compare = (states.held > 0) & (locks > 1)
    return {
        "observation": env.observe(states).numpy()[compare],
        "best": (value >= value.max(axis=1, keepdims=True) - 1e-4)[compare],
    }


def all_levels(env):
    """The first state of each level of the pool."""
    rng = np.random.default_rng(env.pool_seed)
    return env.state_of([env.levels.draw(rng) for _ in range(env.pool)])


def reachable(env, starts):
    """Every state that can be reached, where each action leads, and what it earns.

    Args:
        env: `BoxWorldGraph`.
        starts: `BoxWorldState` of L levels, of NumPy arrays.

    Returns:
        `BoxWorldState` of S states; `(S, 4)` rows of the states that follow, -1 where an episode
        ends; and `(S, 4)` rewards.
    """
    row_of, found, links, rewards = {}, [], [], []
    levels, front = np.arange(len(starts.agent)), starts
    keys = list(zip(levels.tolist(), env.state_key(front).numpy().tolist()))
    row_of.update((key, row) for row, key in enumerate(keys))
    while len(levels):
        found.append(front)
        nexts, to, earned = [], [], []
        for action in range(4):
            state, _, reward, ended, _ = env.step(front, np.full(len(levels), action, np.int32))
            state, ended = BoxWorldState(*(part.numpy() for part in state)), ended.numpy()
            keys = list(zip(levels.tolist(), env.state_key(state).numpy().tolist()))
            new = []
            for i, key in enumerate(keys):
                if not ended[i] and key not in row_of:
                    row_of[key] = len(row_of)
                    new.append(i)
            to.append([-1 if over else row_of[key] for key, over in zip(keys, ended)])
            earned.append(reward.numpy())
            nexts.append((levels[new], BoxWorldState(*(part[new] for part in state))))
        links.append(np.array(to).T)
        rewards.append(np.array(earned).T)
        levels = np.concatenate([each for each, _ in nexts])
        front = BoxWorldState(*map(np.concatenate, zip(*(state for _, state in nexts))))
    states = BoxWorldState(*map(np.concatenate, zip(*found)))
    return states, np.concatenate(links), np.concatenate(rewards)


def action_values(following, reward, discount):
    """Exact values `(S, 4)` of every action, by sweeps over all states until nothing changes."""
    value = np.zeros(len(following) + 1)  # the last one is of where an episode has ended: 0
    while True:
        of_actions = reward + discount * value[following]
        best = of_actions.max(axis=1)
        if np.abs(best - value[:-1]).max() < 1e-6:
            return of_actions
        value[:-1] = best
