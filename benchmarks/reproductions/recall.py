"""Whether a network can remember at all: supervised, which object was in the room of Memory?

Random play is cut into sequences. At every step from the one at which the object in the room was
first in view, the network has to tell which it was: the difference of its first two values is the
logit. What is reported is the share of right answers at steps at which the object has been out of
view, in MemoryS7 for a step at least, and in the longer hallway of MemoryS13 for eight. Where this
is learned in a few hundred updates and an agent with the same network stays at a half, it is not
the network that cannot remember.
"""

import dataclasses
import functools

import keras
import numpy as np
import tensorflow as tf

from benchmarks.report import Report
from benchmarks.runs import any_of, spread
from rrl_tf.envs import memory_task
from rrl_tf.models import RecurrentQNetwork

VARIANTS = {
    "LSTM, dense layers": ("lstm-dense", {}),
    "LSTM, relations": ("lstm", {}),
    "Relational Memory, dense layers": ("relational-memory-dense", {}),
    "the same, forget bias of 1": (
        "relational-memory-dense",
        {"core_arguments": {"forget_bias": 1.0}},
    ),
    "Relational Memory, relations": ("relational-memory", {}),
    "Relational Memory of the cells in view": ("relational-memory-entities", {}),
    "no memory, dense layers": ("none-dense", {}),
    "LSTM for long spans, dense layers": ("lstm-long-dense", {}),
    "Relational Memory for long spans, dense layers": ("relational-memory-long-dense", {}),
}


@dataclasses.dataclass(frozen=True)
class Room:
    """Where there is something to remember, and for how long."""

    size: int
    length: int
    """Steps of a sequence."""
    out_of_view: int
    """For how many steps the object is out of view when it is asked for."""
    variants: tuple[str, ...]


SHORT = tuple(name for name in VARIANTS if "long" not in name)
DENSE = tuple(name for name in VARIANTS if name.endswith("dense layers"))
ROOMS = {
    "MemoryS7": Room(7, 24, 1, SHORT),
    "MemoryS13, 8 steps later": Room(13, 40, 8, DENSE),
}


@dataclasses.dataclass(frozen=True)
class Teaching:
    """How much is played, and how long is learned."""

    seeds: tuple[int, ...] = (0, 1, 2)
    sequences: int = 2000
    """To learn from; a fifth as many are asked afterwards."""
    updates: int = 500
    every: int = 100
    """Updates between two looks."""
    batch_size: int = 16
    learning_rate: float = 1e-3


@dataclasses.dataclass(frozen=True)
class Config(Teaching):
    """The same, and where."""

    rooms: any_of(ROOMS) = tuple(ROOMS)
    """Each has rows for its own networks."""


def main(config):
    """Trains networks with a memory to tell what they saw, and writes how soon they can."""
    rows, asked_for = [], []
    for label in config.rooms:
        room = ROOMS[label]
        task, rng = memory_task((room.size,)), np.random.default_rng(0)
        played = functools.partial(play, room)
        learned = gather(task, config.sequences, played, rng)
        asked = gather(task, config.sequences // 5, played, rng)
        for name in room.variants:
            columns = learning(task, VARIANTS[name], learned, asked, config)
            rows.append({"room": label, "network": name, "seeds": len(config.seeds), **columns})
            print(rows[-1], flush=True)
        right = max(late_share(asked, answer) for answer in (0, 1))
        asked_for.append(f"{label}: {int(asked['late'].sum()):,}, {100 * right:.1f} %")
    return Report(
        "What a network can be taught to remember",
        rows,
        (
            "Share of right answers at steps of new sequences at which the object has been out of "
            "view; how many there are, and what who always says the same reaches: "
            f"{'; '.join(asked_for)}.",
            f"Adam at {config.learning_rate}, batches of {config.batch_size} sequences; "
            "mean and range over the seeds.",
        ),
    )


def learning(task, variant, learned, asked, config):
    """The shares of right answers of all seeds, look by look: a row's columns."""
    curves = [train(task, variant, seed, learned, asked, config) for seed in config.seeds]
    return by_looks(curves, config)


def by_looks(curves, config):
    """Mean and range over the seeds at every look, of a curve a seed: a row's columns."""
    looks = range(config.every, config.updates + 1, config.every)
    return {
        f"after {k} updates": spread([100 * one for one in each], ".1f", " %")
        for k, each in zip(looks, zip(*curves))
    }


def late_share(sequences, answer):
    """How often an answer is right where the object must be remembered."""
    return float((sequences["answer"] == answer)[sequences["late"]].mean())


def gather(task, count, play, rng):
    """Sequences `(count, length, ...)` of play in which there is something to ask for."""
    env, kept = task.make_env(), []
    while len(kept) < count:
        rows = play(env, rng)
        if any(row["late"] for row in rows):
            kept.append({name: np.stack([row[name] for row in rows]) for name in rows[0]})
    return {name: np.stack([each[name] for each in kept]) for name in kept[0]}


def play(room, env, rng):
    """The first steps of an episode, and where the object in the room is asked for."""
    rows, seen, gone = [], False, 0
    for over, row in random_play(env, room.length, rng):
        in_view = room_in_view(env)
        seen |= in_view
        gone = 0 if in_view else gone + 1
        counted = seen and not over
        late = counted and gone >= room.out_of_view
        shown = np.float32(env.get_wrapper_attr("start").shown == "key")
        rows.append({**row, "answer": shown, "counted": counted, "late": late})
    return rows


def room_in_view(env):
    """Whether the object in the room is in view."""
    return bool(env.unwrapped.agent_sees(1, env.unwrapped.height // 2 - 1))


def random_play(env, length, rng):
    """Yields so many steps before they are taken; once the episode is over, its last one stands."""
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    action, reward, over = -1, 0.0, False
    for _ in range(length):
        row = {"observation": observation, "previous_action": np.int32(action)}
        yield over, {**row, "previous_reward": np.float32(reward)}
        if not over:
            action = int(rng.choice(3, p=(0.3, 0.3, 0.4)))
            observation, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated


def train(task, variant, seed, learned, asked, config):
    """The share of the steps asked for that is answered right, at every look."""
    preset, overrides = variant
    keras.utils.set_random_seed(seed)
    network = RecurrentQNetwork.from_preset(
        preset, task.preprocessor, num_actions=task.num_actions, **overrides
    )
    network.build({"observation": (None, *task.preprocessor.shape)})
    optimizer = keras.optimizers.Adam(config.learning_rate, global_clipnorm=10.0)
    optimizer.build(network.trainable_variables)

    def logits(batch):
        views = batch["observation"]
        views = task.preprocessor(tf.reshape(views, (-1, *views.shape[2:])))
        shape = (*batch["observation"].shape[:2], *task.preprocessor.shape)
        steps = {each: batch[each] for each in ("previous_action", "previous_reward")}
        values, _ = network.unroll({"observation": tf.reshape(views, shape), **steps})
        return values[..., 0] - values[..., 1]

    @tf.function
    def update(batch):
        counted = tf.cast(batch["counted"], tf.float32)
        with tf.GradientTape() as tape:
            loss = tf.nn.sigmoid_cross_entropy_with_logits(batch["answer"], logits(batch))
            loss = tf.reduce_sum(loss * counted) / tf.reduce_sum(counted)
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables))

    answer = tf.function(logits)
    rng, shares = np.random.default_rng(seed), []
    for number in range(1, config.updates + 1):
        index = rng.integers(len(learned["answer"]), size=config.batch_size)
        update({each: tf.constant(values[index]) for each, values in learned.items()})
        if number % config.every == 0:
            right = (answer(asked).numpy() > 0) == (asked["answer"] == 1)
            shares.append(float(right[asked["late"]].mean()))
    return shares
