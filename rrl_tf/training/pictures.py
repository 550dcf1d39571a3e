"""What an agent attends to: one greedy episode played and drawn."""

from __future__ import annotations

import dataclasses
import inspect
import os
import pathlib
from typing import Any

import gymnasium
import keras
import numpy as np
from keras import ops

from rrl_tf import viz
from rrl_tf.envs import Task
from rrl_tf.training.metrics_log import MetricsLog

LONGEST_FILM = 60
"""Steps after which an episode is cut."""


@dataclasses.dataclass(frozen=True)
class Episode:
    """T steps as `viz.film` takes them: T + 1 frames, T of everything else."""

    frames: np.ndarray
    views: np.ndarray
    unseen: np.ndarray
    scores: dict[str, np.ndarray]
    cells: list[dict[str, tuple[int, int]]]
    q_values: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray


def draw_episode(
    network: keras.Model, task: Task, figures: pathlib.Path, log: MetricsLog
) -> list[pathlib.Path]:
    """Plays one greedy episode and draws it as a film, with the network's attention if it has any.

    Attention over the cells of a grid, where a task names entities in it, gets a figure of its
    own. Of an environment without pictures nothing is drawn.

    Args:
        network: Q network, as `RelationalQNetwork`.
        task: what is played; the evaluation episode with most in view is.
        figures: folder that the pictures go to.
        log: shows the figure in TensorBoard.

    Returns:
        Paths of what was drawn.
    """
    env = _rendering_env(task)
    if env is None:
        return []
    attends = attends_to_cells(network, task)
    reset = most_in_view(task, env) if attends else task.evaluation_resets(at_most=1)[0]
    episode = play(network, task, env, reset, attends)
    env.close()
    grid = _transposed(task, *task.preparation.shape[:2]) if attends else (1, 1)
    film = viz.film(
        episode.frames,
        next(iter(episode.scores.values()), None),
        episode.cells,
        episode.q_values,
        episode.actions,
        episode.rewards,
        task.action_names,
        grid=grid,
    )
    paths = [viz.save_film(film, figures / "episode.gif")]
    if attends:
        attention = viz.attention_figure(
            episode.frames[0],
            episode.views[0],
            {name: scores[0] for name, scores in episode.scores.items()},
            episode.cells[0],
            unseen=episode.unseen[0],
            grid=grid,
        )
        step = int(log.rows[-1]["step"]) if log.rows else 0
        log.image(step, "attention", viz.figure_to_image(attention))
        paths.insert(0, viz.save_figure(attention, figures / "attention.png"))
    return paths


def attends_to_cells(network: keras.Model, task: Task) -> bool:
    """Whether a network can show its attention from cell to cell of the task's grid."""
    shape = task.preparation.shape
    if task.entities is None or len(shape) != 3 or not _can_attend(network):
        return False
    _, scores = network(ops.zeros((1, *shape)), return_attention_scores=True)
    return all(each.shape[-2:] == (shape[0] * shape[1],) * 2 for each in scores.values())


def most_in_view(task: Task, env: gymnasium.Env) -> dict[str, Any]:
    """The first evaluation reset that shows most entities and, among those, most of the grid."""

    def seen(reset):
        observation, _ = env.reset(**reset)
        hidden = task.unseen(observation).sum() if task.unseen else 0
        return len(task.entities(observation)), -hidden

    return max(task.evaluation_resets(), key=seen)


def play(
    network: keras.Model,
    task: Task,
    env: gymnasium.Env,
    reset: dict[str, Any],
    attends: bool = True,
) -> Episode:
    """One greedy episode, cut after `LONGEST_FILM` steps."""
    observation, _ = env.reset(**reset)
    rows: list[dict[str, Any]] = []
    frames: list[Any] = [env.render()]
    over = False
    while not over and len(rows) < LONGEST_FILM:
        row = {"cells": {}, "scores": {}, "unseen": False, "views": False}
        if attends:
            q, scores = network(task.preparation(observation[None]), return_attention_scores=True)
            row |= _looks(task, env, observation, scores)
        else:
            q = network(task.preparation(observation[None]))
        q = ops.convert_to_numpy(q)[0].astype("float32")
        observation, reward, terminated, truncated, _ = env.step(int(q.argmax()))
        rows.append({**row, "q_values": q, "actions": int(q.argmax()), "rewards": float(reward)})
        frames.append(env.render())
        over = terminated or truncated
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    cells, scores = columns.pop("cells"), columns.pop("scores")
    return Episode(
        frames=np.stack(frames),
        cells=cells,
        scores={name: np.stack([each[name] for each in scores]) for name in scores[0]},
        **{name: np.stack(values) for name, values in columns.items()},
    )


def _looks(task, env, observation, scores):
    """One step's attention and where things are, with x before y in everything that is drawn."""
    height_width = task.preparation.shape[:2]
    unseen = task.unseen(observation) if task.unseen else np.zeros(height_width, bool)
    order = np.arange(unseen.size).reshape(height_width)
    order = (order.T if task.rows_first else order).ravel()
    return {
        "views": _view(task, env, observation),
        "unseen": unseen.T if task.rows_first else unseen,
        "cells": {
            label: _transposed(task, *cell) for label, cell in task.entities(observation).items()
        },
        "scores": {
            name: ops.convert_to_numpy(ops.cast(each, "float32"))[0][:, order][:, :, order]
            for name, each in scores.items()
        },
    }


def _transposed(task, first, second):
    return (int(second), int(first)) if task.rows_first else (int(first), int(second))


def _view(task, env, observation):
    """What the agent sees as RGB: the task's own picture, or the cells' first channel in greys."""
    if task.view is not None:
        return task.view(env)
    cells = np.asarray(observation)[..., 0].astype("float64")
    cells = cells if task.rows_first else cells.T
    grey = (255 * (1 - cells / max(1.0, float(cells.max())))).astype("uint8")
    return np.repeat(grey.repeat(32, 0).repeat(32, 1)[..., None], 3, axis=-1)


def _can_attend(network):
    return "return_attention_scores" in inspect.signature(network.call).parameters


def _rendering_env(task):
    """An environment that gives pictures, or `None` where there are none."""
    env = task.make_test_env()
    modes = env.metadata.get("render_modes") or ()
    env.close()
    if "rgb_array" not in modes:
        return None
    if not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # or it complains that there is no screen
    env = task.make_test_env(render_mode="rgb_array")
    try:
        env.reset(seed=0)
        picture = env.render()
    except gymnasium.error.DependencyNotInstalled:  # what draws is often an extra
        return None
    # A maker that takes no render mode gives an environment that draws nothing.
    return None if env.render_mode is None and picture is None else env
