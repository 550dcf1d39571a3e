"""Whether a network can remember at all: supervised, which object was in the room of MemoryS7?

Random play is cut into sequences. At every step from the one at which the object in the room was
first in view, the network has to tell which it was: the difference of its first two values is the
logit. What is reported is the share of right answers at steps at which the object is out of view.
Where this is learned in a few hundred updates and an agent with the same network stays at a half,
it is not the network that cannot remember.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from benchmarks.report import Report
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
}


@dataclasses.dataclass(frozen=True)
class Config:
    """How much is played, and how long is learned."""

    variants: tuple[str, ...] = tuple(VARIANTS)
    """Rows of the table."""
    seeds: tuple[int, ...] = (0, 1, 2)
    sequences: int = 2000
    """To learn from; a fifth as many are asked afterwards."""
    length: int = 24
    """Steps of a sequence."""
    updates: int = 400
    every: int = 100
    """Updates between two looks."""
    batch_size: int = 16
    learning_rate: float = 1e-3


def main(config):
    """Trains networks with a memory to tell what they saw, and writes how soon they can."""
    task = memory_task((7,))
    rng = np.random.default_rng(0)
    learned = gather(task, config.sequences, config.length, rng)
    asked = gather(task, config.sequences // 5, config.length, rng)
    rows = []
    for name in config.variants:
        curves = [train(task, name, seed, learned, asked, config) for seed in config.seeds]
        looks = range(config.every, config.updates + 1, config.every)
        columns = {f"after {k} updates": share(each) for k, each in zip(looks, zip(*curves))}
        rows.append({"network": name, "seeds": len(curves), **columns})
        print(rows[-1], flush=True)
    remembered = asked["remembered"]
    right = max(remembered_share(asked, answer) for answer in (0, 1))
    return Report(
        "What a network can be taught to remember",
        rows,
        (
            f"Share of right answers at {int(remembered.sum()):,} steps of new sequences at which "
            f"the object is out of view; who always says the same reaches {100 * right:.1f} %.",
            f"Adam at {config.learning_rate}, batches of {config.batch_size} sequences of "
            f"{config.length} steps; mean and range over the seeds.",
        ),
    )


def share(values):
    """Mean and range in percent."""
    low, high = 100 * min(values), 100 * max(values)
    spread = f" ({low:.1f} to {high:.1f})" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.1f} %{spread}"


def remembered_share(sequences, answer):
    """How often an answer is right where the object must be remembered."""
    return float((sequences["shown"] == answer)[sequences["remembered"]].mean())


def gather(task, count, length, rng):
    """Sequences `(count, length, ...)` of random play in which there is something to remember."""
    env, kept = task.make_env(), []
    while len(kept) < count:
        rows = play(env, length, rng)
        if any(row["remembered"] for row in rows):
            kept.append({name: np.stack([row[name] for row in rows]) for name in rows[0]})
    return {name: np.stack([each[name] for each in kept]) for name in kept[0]}


def play(env, length, rng):
    """The first steps of an episode; once it is over, its last one stands and does not count."""
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    world, shown = env.unwrapped, env.get_wrapper_attr("start").shown == "key"
    rows, action, reward, counted, over = [], -1, 0.0, False, False
    for _ in range(length):
        in_view = bool(world.agent_sees(1, world.height // 2 - 1))
        counted |= in_view
        rows.append(
            {
                "observation": observation,
                "previous_action": np.int32(action),
                "previous_reward": np.float32(reward),
                "shown": np.float32(shown),
                "counted": counted and not over,
                "remembered": counted and not over and not in_view,
            }
        )
        if not over:
            action = int(rng.choice(3, p=(0.3, 0.3, 0.4)))
            observation, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
    return rows


def train(task, name, seed, learned, asked, config):
    """The share of remembered steps answered right, at every look."""
    preset, overrides = VARIANTS[name]
    keras.utils.set_random_seed(seed)
    network = RecurrentQNetwork.from_preset(
        preset, task.preparation, num_actions=task.num_actions, **overrides
    )
    network.build({"observation": (None, *task.preparation.shape)})
    optimizer = keras.optimizers.Adam(config.learning_rate, global_clipnorm=10.0)
    optimizer.build(network.trainable_variables)

    def logits(batch):
        views = batch["observation"]
        views = task.preparation(tf.reshape(views, (-1, *views.shape[2:])))
        shape = (*batch["observation"].shape[:2], *task.preparation.shape)
        steps = {each: batch[each] for each in ("previous_action", "previous_reward")}
        values, _ = network.unroll({"observation": tf.reshape(views, shape), **steps})
        return values[..., 0] - values[..., 1]

    @tf.function
    def update(batch):
        counted = tf.cast(batch["counted"], tf.float32)
        with tf.GradientTape() as tape:
            loss = tf.nn.sigmoid_cross_entropy_with_logits(batch["shown"], logits(batch))
            loss = tf.reduce_sum(loss * counted) / tf.reduce_sum(counted)
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables))

    answer = tf.function(logits)
    rng, shares = np.random.default_rng(seed), []
    for number in range(1, config.updates + 1):
        index = rng.integers(len(learned["shown"]), size=config.batch_size)
        update({each: tf.constant(values[index]) for each, values in learned.items()})
        if number % config.every == 0:
            right = (answer(asked).numpy() > 0) == (asked["shown"] == 1)
            shares.append(float(right[asked["remembered"]].mean()))
    return shares
