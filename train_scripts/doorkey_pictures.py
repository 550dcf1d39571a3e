"""What a DoorKey agent attends to at a start, and the film of an episode."""

import dataclasses

import numpy as np
from keras import ops

from rrl_tf import viz
from rrl_tf.envs import object_cells


@dataclasses.dataclass(frozen=True)
class Episode:
    """T steps as `viz.film` takes them: T + 1 frames, T of everything else."""

    frames: np.ndarray
    views: np.ndarray
    unseen: np.ndarray
    scores: dict
    cells: list
    q_values: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    action_names: tuple


def draw(network, prepare, env, starts, figures):
    """Plays one greedy episode and draws it.

    Args:
        network: `RelationalQNetwork`.
        prepare: raw observations → its input.
        env: made by `make_doorkey` with `render_mode="rgb_array"`.
        starts: list of `DoorKeyStart`; the one with most in view is played.
        figures: folder that the pictures go to.

    Returns:
        The attention figure, and the paths of all pictures.
    """
    episode = play(network, prepare, env, most_in_view(env, starts))
    attention = viz.attention_figure(
        episode.frames[0],
        episode.views[0],
        {name: scores[0] for name, scores in episode.scores.items()},
        episode.cells[0],
        unseen=episode.unseen[0],
    )
    film = viz.film(
        episode.frames,
        episode.scores["round_1"],
        episode.cells,
        episode.q_values,
        episode.actions,
        episode.rewards,
        episode.action_names,
    )
    paths = [
        viz.save_figure(attention, figures / "attention.png"),
        viz.save_film(film, figures / "episode.gif"),
    ]
    return attention, paths


def most_in_view(env, starts):
    """The first start from which most objects are seen and, among those, most of the grid."""
    channels = env.get_wrapper_attr("channels")

    def seen(start):
        observation, _ = env.reset(options={"start": start})
        return len(object_cells(observation, channels)), (observation[..., -channels] > 0).sum()

    return max(starts, key=seen)


def play(network, prepare, env, start, longest=60):
    """One greedy episode from `start`, cut after `longest` steps."""
    observation, _ = env.reset(options={"start": start})
    rows, frames, over = [], [env.render()], False
    while not over and len(rows) < longest:
        q, scores = network(prepare(observation[None]), return_attention_scores=True)
        q = ops.convert_to_numpy(q)[0].astype("float32")
        row = {
            "views": env.unwrapped.get_pov_render(tile_size=32),
            "unseen": observation[..., -env.get_wrapper_attr("channels")] == 0,
            "cells": object_cells(observation, env.get_wrapper_attr("channels")),
            "scores": {k: ops.convert_to_numpy(v)[0] for k, v in scores.items()},
            "q_values": q,
            "actions": int(q.argmax()),
        }
        observation, reward, terminated, truncated, _ = env.step(row["actions"])
        rows.append({**row, "rewards": reward})
        frames.append(env.render())
        over = terminated or truncated
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    cells, scores = columns.pop("cells"), columns.pop("scores")
    return Episode(
        frames=np.stack(frames),
        cells=cells,
        scores={name: np.stack([each[name] for each in scores]) for name in scores[0]},
        action_names=env.get_wrapper_attr("action_names"),
        **{name: np.stack(values) for name, values in columns.items()},
    )
