"""What the slips in the published DoorKey agent of the book do, where that is cheap to measure.

Plays at random and looks at untrained networks; the slips that only training shows are in the
learning curves of `reproductions/doorkey`.
"""

import dataclasses

import numpy as np
from keras import ops

from benchmarks.report import Report
from rrl_tf.envs import AGENT_CELL, SeededVectorEnv, doorkey_task, make_doorkey
from rrl_tf.models import RelationalQNetwork


@dataclasses.dataclass(frozen=True)
class Config:
    """How much is played."""

    steps: int = 100_000
    """Environment steps of random play, for each of two ways to treat the time limit."""
    seed: int = 0


def main(config):
    """Measures what the slips in the published DoorKey agent of the book do."""
    cells = [*time_limit(config), *frame_maximum(config), *node_tied_scores(config)]
    rows = [dict(zip(("slip", "measured", "value"), each)) for each in cells]
    notes = ("Random play takes the five actions alike.", "Networks have new, random weights.")
    return Report("Slips of the published agent", rows, notes)


def time_limit(config):
    """Random play with the environment's limit of 250 steps, and with the limit ignored."""
    kept, _, _ = episodes(config, True)
    _, lengths, rewards = episodes(config, False)
    slip = "time limit ignored"
    return [
        ("none: the floor", "episodes that random play solves within the limit", percent(kept)),
        (slip, "solved episodes that took longer than the limit", percent(lengths > 250)),
        (slip, "solved episodes rewarded with nothing or less", percent(rewards <= 0)),
    ]


def random_play(config, reset_on_truncation=True):
    """Yields what 16 environments show (observation before, rewards, info) at random actions."""
    env = SeededVectorEnv(make_doorkey, 16, config.seed, reset_on_truncation)
    observation, _ = env.reset()
    rng = np.random.default_rng(config.seed)
    for _ in range(config.steps // 16):
        next_observation, reward, _, _, info = env.step(rng.integers(5, size=16))
        yield observation, reward, info
        observation = next_observation


def episodes(config, reset_on_truncation):
    """Successes, lengths and last rewards of the episodes of random play, each `(episodes,)`."""
    found = [
        (info["episode"]["success"][i], info["episode"]["length"][i], reward[i])
        for _, reward, info in random_play(config, reset_on_truncation)
        for i in np.flatnonzero(info["_episode"])
    ]
    return map(np.array, zip(*found))


def frame_maximum(config):
    """How often the largest code of a view is not the usual one, and what that does to a door."""
    views = np.concatenate([observation for observation, _, _ in random_play(config)])
    goal = views[..., 0].max(axis=(1, 2)) == 8
    prepare = doorkey_task(observation="view", preprocessor="frame_maximum").preprocessor
    doors = ops.convert_to_numpy(prepare(views))[..., 0][views[..., 0] == 4]
    values = ", ".join(f"{value:g}" for value in np.unique(doors.round(3)))
    slip = "scaled by the frame's own maximum"
    return [
        (slip, "views of random play that hold the goal, and so another scale", percent(goal)),
        (slip, "numbers that stand for a door", values),
    ]


def node_tied_scores(config):
    """How much the agent's attention changes when the key moves, by the form of the score."""
    rows = []
    for name, preset, overrides in (
        ("the book's score", "book", {"block": {"qkv_norm": None}}),
        ("dot product, ours", "fast", {"block": {"score": "dot"}, "unseen_feature": None}),
        ("pairwise additive", "fast", {"block": {"score": "additive"}, "unseen_feature": None}),
    ):
        network = RelationalQNetwork.from_preset(preset, **overrides)
        network.build((None, 7, 7, 3))
        rng = np.random.default_rng(config.seed)
        for weight in network.weights:
            weight.assign(rng.normal(0.0, 0.3, size=weight.shape))
        measured = f"{name}: largest change of the agent's attention row when the key moves"
        rows.append(("scores tied to nodes", measured, f"{agents_row_change(network):.2g}"))
    return rows


def agents_row_change(network):
    """Largest change of the first round's attention from the agent's cell when the key moves."""
    before = np.full((1, 7, 7, 3), 0.2, "float32")
    after = before.copy()
    before[0, 2, 3] = after[0, 4, 3] = (1.0, 0.8, 0.4)
    x, y = AGENT_CELL
    scores = [
        ops.convert_to_numpy(network(view, return_attention_scores=True)[1]["round_1"])
        for view in (before, after)
    ]
    return np.abs(scores[1] - scores[0])[..., x * 7 + y, :].max()


def percent(share):
    """A share, or the mean of booleans, in percent."""
    return f"{100 * np.mean(share):.1f} %"
