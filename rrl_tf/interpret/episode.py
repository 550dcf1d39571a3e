"""What an agent attends to and remembers: one greedy episode played and drawn."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any

import gymnasium
import keras
import numpy as np

from rrl_tf import viz
from rrl_tf.envs import Task
from rrl_tf.interpret.tracing import Look, Watched, picture_grid
from rrl_tf.training.metrics_log import MetricsLog

LONGEST_FILM = 60
"""Steps after which an episode is cut."""


@dataclasses.dataclass(frozen=True)
class Episode:
    """T steps as `viz.film` takes them: T + 1 frames, T of everything else.

    Where a network attends to patches of the frame, `frame_grid` says how they lie. An episode that
    was cut has not `ended`.
    """

    frames: np.ndarray
    views: np.ndarray
    unseen: np.ndarray
    scores: dict[str, np.ndarray]
    cells: list[dict[str, tuple[int, int]]]
    q_values: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    memory: viz.EpisodeMemory | None = None
    frame_grid: tuple[int, int] | None = None
    ended: bool = True


def draw_episode(
    network: keras.Model, task: Task, figures: pathlib.Path, log: MetricsLog
) -> list[pathlib.Path]:
    """Plays one greedy episode and draws it as a film, with all that can be seen of the network.

    That is its attention over the cells of a grid, where a task names entities in it, and what its
    memory attends to and when it is written. Both get a figure of their own, `attention.png` and
    `memory.png`. Attention among the patches of a picture is drawn over the frame. Of an
    environment without pictures nothing is drawn.

    Args:
        network: Q network, as `RelationalQNetwork` or `RecurrentQNetwork`.
        task: what is played: the evaluation episode that shows most in its beginning, or, where
            there is a memory to fill, the one that shows least.
        figures: folder that the pictures go to.
        log: shows the figures and the film, too.

    Returns:
        Paths of what was drawn.
    """
    env = _rendering_env(task)
    if env is None:
        return []
    watched = Watched(network, task)
    episode = play(network, task, env, _reset(task, env, watched))
    env.close()
    drawn = {}
    if episode.frame_grid:
        half = len(episode.actions) // 2  # the beginnings are alike
        rounds = {name: scores[half] for name, scores in episode.scores.items()}
        drawn["attention"] = viz.frame_attention_figure(
            episode.frames[half], rounds, episode.frame_grid
        )
    elif episode.scores:
        # A memory's episode is one that shows little at first.
        step = np.argmax([len(cells) for cells in episode.cells]) if watched.remembers else 0
        drawn["attention"] = _attention(episode, int(step), picture_grid(task))
    if episode.memory is not None and episode.memory.gates:
        drawn["memory"] = viz.gates_figure(episode.memory, episode.cells)
    step = int(log.rows[-1]["step"]) if log.rows else 0
    for name, figure in drawn.items():
        log.image(step, name, viz.figure_to_image(figure))
    paths = [viz.save_figure(figure, figures / f"{name}.png") for name, figure in drawn.items()]
    film = viz.save_film(_film(episode, task), figures / "episode.gif")
    log.film(step, "episode", film)
    return [*paths, film]


def _reset(task, env, watched):
    """How the episode begins that is drawn."""
    if task.entities is None or not (watched.attends or watched.remembers):
        return task.evaluation_resets(at_most=1)[0]
    return (least_in_view if watched.remembers else most_in_view)(task, env)


def _attention(episode, step, grid):
    return viz.attention_figure(
        episode.frames[step],
        episode.views[step],
        {name: scores[step] for name, scores in episode.scores.items()},
        episode.cells[step],
        unseen=episode.unseen[step],
        grid=grid,
    )


def _film(episode, task):
    # Of several rounds the first, in which the cells still stand for what lies in them.
    name, scores = next(iter(episode.scores.items()), ("", None))
    if episode.frame_grid:
        scores = None
    return viz.film(
        _frames(episode),
        scores,
        episode.cells,
        episode.q_values,
        episode.actions,
        episode.rewards,
        task.action_names,
        grid=picture_grid(task) if scores is not None else (1, 1),
        memory=episode.memory,
        ended=episode.ended,
        round_name=name.replace("_", " ") if len(episode.scores) > 1 else "",
    )


def _frames(episode):
    """The frames, each beside itself under the last round's attention, where that is over it."""
    if not episode.frame_grid:
        return episode.frames
    last = [*episode.scores.values()][-1]
    paid = [viz.attention_paid(scores, episode.frame_grid).mean(axis=0) for scores in last]
    seen = [viz.overlay(frame, weights) for frame, weights in zip(episode.frames, paid)]
    return np.concatenate([episode.frames, [*seen, episode.frames[-1]]], axis=2)


def most_in_view(task: Task, env: gymnasium.Env) -> dict[str, Any]:
    """The first evaluation reset that shows most entities and, among those, most of the grid."""
    return max(task.evaluation_resets(), key=lambda reset: _in_view(task, env, reset))


def least_in_view(task: Task, env: gymnasium.Env) -> dict[str, Any]:
    """The first evaluation reset that shows fewest entities and, among those, least of the grid."""
    return min(task.evaluation_resets(), key=lambda reset: _in_view(task, env, reset))


def _in_view(task, env, reset):
    observation, _ = env.reset(**reset)
    hidden = task.unseen(observation).sum() if task.unseen else 0
    return len(task.entities(observation)), -hidden


def play(network: keras.Model, task: Task, env: gymnasium.Env, reset: dict[str, Any]) -> Episode:
    """One greedy episode, cut after `LONGEST_FILM` steps."""
    watched = Watched(network, task)
    observation, _ = env.reset(**reset)
    rows: list[dict[str, Any]] = []
    frames: list[Any] = [env.render()]
    looks: list[Look] = []
    over = False
    while not over and len(rows) < LONGEST_FILM:
        looks.append(watched.look(observation))
        seen = _seen(task, env, observation, watched)
        action = int(looks[-1].q_values.argmax())
        observation, reward, terminated, truncated, _ = env.step(action)
        watched.remember(action, float(reward))
        rows.append({**seen, "actions": action, "rewards": float(reward)})
        frames.append(env.render())
        over = terminated or truncated
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    rounds = looks[0].rounds if watched.attends or watched.frame_grid else ()
    return Episode(
        frames=np.stack(frames),
        cells=columns.pop("cells"),
        scores={name: np.stack([look.rounds[name] for look in looks]) for name in rounds},
        q_values=np.stack([look.q_values for look in looks]),
        memory=watched.memory_of(looks),
        frame_grid=watched.frame_grid,
        ended=over,
        **{name: np.stack(values) for name, values in columns.items()},
    )


def _seen(task, env, observation, watched):
    """What is where in one step, with x before y in everything that is drawn."""
    seen = {"cells": {}, "unseen": False, "views": False}
    if task.entities is not None and (watched.attends or watched.remembers):
        entities = task.entities(observation).items()
        seen["cells"] = {label: _transposed(task, *cell) for label, cell in entities}
    if watched.attends:
        shape = task.preprocessor.shape[:2]
        unseen = task.unseen(observation) if task.unseen else np.zeros(shape, bool)
        seen["unseen"] = unseen.T if task.rows_first else unseen
        seen["views"] = _view(task, env, observation)
    return seen


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
