"""One greedy episode of an agent: played, traced and drawn."""

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
from rrl_tf.interpret.tracing import PolicyTracer, figure_grid
from rrl_tf.training.loggers import MetricsLog

LONGEST_FILM = 60
"""Steps after which a drawn episode is cut."""


@dataclasses.dataclass(frozen=True)
class TracedEpisode:
    """T steps of an agent, as `viz.film` takes them.

    Attributes:
        frames: `(T + 1, height, width, 3)` uint8.
        views: `T` uint8 RGB pictures of what the agent sees; `None` without attention over cells.
        unseen: `T` bool arrays of the cells out of sight, `[x, y]`; `None` without.
        cells: `T` dicts label -> `(x, y)` of the entities in view.
        scores: dict round -> `(T, H, N, N)`.
        q_values: `(T, A)`.
        actions: `(T,)`.
        rewards: `(T,)`.
        memory: of an agent with a memory.
        patch_grid: `(rows, columns)` of the patches of a frame that attend to each other.
        ended: whether the episode was over after T steps.
    """

    frames: np.ndarray
    views: list[np.ndarray | None]
    unseen: list[np.ndarray | None]
    cells: list[dict[str, tuple[int, int]]]
    scores: dict[str, np.ndarray]
    q_values: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    memory: viz.EpisodeMemory | None
    patch_grid: tuple[int, int] | None
    ended: bool


def draw_episode(
    network: keras.Model, task: Task, figures: pathlib.Path, log: MetricsLog
) -> list[pathlib.Path]:
    """Play one greedy episode and draw it as a film and figures.

    The film shows attention over the cells of a grid, if the task names entities in it, or over
    the frame, if the network attends among the patches of a picture; and what the memory attends to
    and when it is written. The figures `attention.png` and `memory.png` show the same at one step
    and over all steps. Without rendered frames nothing is drawn.

    Args:
        network: Q network, such as `RelationalQNetwork` or `RecurrentQNetwork`.
        task: the task to play: the evaluation episode that shows most at its start or, if the
            network has a memory, the one that shows least.
        figures: folder of the figures.
        log: also receives the figures and the film.

    Returns:
        Paths of the figures and the film.
    """
    env = _rendering_env(task)
    if env is None:
        return []
    episode = play(network, task, env, choose_start(network, task, env))
    env.close()
    drawn = {}
    if episode.patch_grid:
        half = len(episode.actions) // 2  # the starts are alike
        scores = {name: each[half] for name, each in episode.scores.items()}
        drawn["attention"] = viz.frame_attention_figure(
            episode.frames[half], scores, episode.patch_grid
        )
    elif episode.scores:
        # The start of an agent with a memory shows little.
        step = int(np.argmax(list(map(len, episode.cells)))) if episode.memory else 0
        drawn["attention"] = viz.attention_figure(
            episode.frames[step],
            episode.views[step],
            {name: each[step] for name, each in episode.scores.items()},
            episode.cells[step],
            unseen=episode.unseen[step],
            grid=figure_grid(task),
        )
    if episode.memory is not None and episode.memory.gates:
        drawn["memory"] = viz.gates_figure(episode.memory, episode.cells)
    step = int(log.rows[-1]["step"]) if log.rows else 0
    for name, figure in drawn.items():
        log.image(step, name, viz.figure_to_image(figure))
    paths = [viz.save_figure(figure, figures / f"{name}.png") for name, figure in drawn.items()]
    film = viz.save_film(_film(episode, task), figures / "episode.gif")
    log.film(step, "episode", film)
    return [*paths, film]


def _film(episode, task):
    # The first of several rounds, in which an entity is still the content of its own cell.
    name, scores = next(iter(episode.scores.items()), ("", None))
    if episode.patch_grid:
        scores = None
    return viz.film(
        _frames(episode),
        scores,
        episode.cells,
        episode.q_values,
        episode.actions,
        episode.rewards,
        task.action_names,
        grid=(1, 1) if scores is None else figure_grid(task),
        memory=episode.memory,
        ended=episode.ended,
        round_name=name.replace("_", " ") if len(episode.scores) > 1 else "",
    )


def _frames(episode):
    """Return the frames; with attention over them, each next to a copy under the last round's."""
    if not episode.patch_grid:
        return episode.frames
    *_, last = episode.scores.values()
    weights = [viz.attention_paid(each, episode.patch_grid).mean(axis=0) for each in last]
    covered = [viz.overlay(frame, each) for frame, each in zip(episode.frames, weights)]
    return np.concatenate([episode.frames, [*covered, episode.frames[-1]]], axis=2)


def choose_start(network: keras.Model, task: Task, env: gymnasium.Env) -> dict[str, Any]:
    """Return the evaluation reset that shows most entities and, among those, most of the grid.

    For a network with a memory, the one that shows least; for a task without entities, the first.
    """
    if task.entities is None:
        return task.evaluation_resets(at_most=1)[0]

    def visible(reset):
        observation, _ = env.reset(**reset)
        hidden = task.unseen(observation).sum() if task.unseen else 0
        return len(task.entities(observation)), -hidden

    choose = min if PolicyTracer(network, task).has_memory else max
    return choose(task.evaluation_resets(), key=visible)


def play(
    network: keras.Model, task: Task, env: gymnasium.Env, reset: dict[str, Any]
) -> TracedEpisode:
    """Play one greedy episode and trace it, cut after `LONGEST_FILM` steps."""
    tracer = PolicyTracer(network, task)
    observation, _ = env.reset(**reset)
    frames: list[Any] = [env.render()]
    actions: list[int] = []
    traces, views, unseen, cells, rewards = [], [], [], [], []
    over = False
    while not over and len(actions) < LONGEST_FILM:
        traces.append(tracer.trace(observation))
        over_cells = bool(traces[-1].attention) and not tracer.patch_grid
        views.append(_view(task, env, observation) if over_cells else None)
        unseen.append(_unseen(task, observation) if over_cells else None)
        cells.append(_cells(task, observation))
        actions.append(int(traces[-1].q_values.argmax()))
        observation, reward, terminated, truncated, _ = env.step(actions[-1])
        rewards.append(float(reward))
        tracer.record(actions[-1], rewards[-1])
        frames.append(env.render())
        over = terminated or truncated
    return TracedEpisode(
        np.stack(frames),
        views,
        unseen,
        cells,
        {name: np.stack([t.attention[name] for t in traces]) for name in traces[0].attention},
        np.stack([t.q_values for t in traces]),
        np.array(actions),
        np.array(rewards),
        tracer.episode_memory(traces),
        tracer.patch_grid,
        over,
    )


def _cells(task, observation):
    """Return label -> `(x, y)` of the entities in view."""
    entities = task.entities(observation).items() if task.entities else ()
    order = slice(None, None, -1 if task.rows_first else 1)
    return {label: tuple(map(int, cell))[order] for label, cell in entities}


def _unseen(task, observation):
    """Return the cells out of sight, indexed `[x, y]`."""
    if task.unseen is None:
        return None
    hidden = task.unseen(observation)
    return hidden.T if task.rows_first else hidden


def _view(task, env, observation):
    """Return the task's picture of the view, or the cells' first channel in greys."""
    if task.view is not None:
        return task.view(env)
    cells = np.asarray(observation)[..., 0].astype("float64")
    cells = cells if task.rows_first else cells.T
    grey = (255 * (1 - cells / max(1.0, float(cells.max())))).astype("uint8")
    return np.repeat(grey.repeat(32, 0).repeat(32, 1)[..., None], 3, axis=-1)


def _rendering_env(task):
    """Return an environment that renders frames, or `None`."""
    if not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame warns without a screen
    if "rgb_array" not in (task.make_test_env().metadata.get("render_modes") or ()):
        return None
    env = task.make_test_env(render_mode="rgb_array")
    try:
        env.reset(seed=0)
        frame = env.render()
    except gymnasium.error.DependencyNotInstalled:  # pygame is often an optional package
        return None
    # A maker without a `render_mode` argument returns an environment that renders nothing.
    return None if env.render_mode is None and frame is None else env
