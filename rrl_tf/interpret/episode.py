"""Play, trace and draw one greedy episode of an agent."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from typing import Any

import gymnasium
import keras
import numpy as np
from keras import ops
from matplotlib.colors import to_rgb

from rrl_tf import viz
from rrl_tf.envs import Task
from rrl_tf.envs.checks import CheckedEnv
from rrl_tf.envs.packing import with_channels
from rrl_tf.interpret.tracing import PolicyTracer, figure_grid, grid_shape
from rrl_tf.training.loggers import MetricsLog
from rrl_tf.viz import style

LONGEST_FILM = 60
"""Maximum number of steps of a drawn episode; the rest of a longer episode is not played."""


@dataclasses.dataclass(frozen=True)
class TracedEpisode:
    """The record of T steps of an agent, from which `viz.film` and the figures are drawn.

    Attributes:
        frames: `(T + 1, height, width, 3)` uint8, rendered before each step and at the end; images
            of the agent's view if the environment does not render.
        views: T uint8 RGB images of the agent's view; each is `None` if the network has no
            attention between cells of a grid.
        unseen: T bool arrays indexed `[x, y]`, true for cells that the agent does not see; each is
            `None` if the task does not report them or the network has no attention between cells.
        cells: T dicts label -> `(x, y)` of the visible entities. If the task has no `entities`, the
            only label is "agent", if the preprocessor knows the agent's cell.
        scores: dict name of a round -> attention `(T, H, N, N)`.
        q_values: `(T, A)`.
        actions: `(T,)`.
        rewards: `(T,)`.
        memory: attention and gates of the agent's memory, or `None` if it has no memory.
        patch_grid: `(rows, columns)` of the patches of a frame that attend to each other, or `None`
            if the entities are not patches.
        ended: whether the episode ended after T steps; `False` if it was cut.
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
    """Play one greedy episode and draw it as an animation and figures.

    The animation `episode.gif` shows the attention between the cells of a grid, or between patches
    of the frame (if the network divides frames into patches). Cells are shown as the agent's cell
    attends to them or, if that cell is not known, as the centre and all cells on average do. For a
    network with a memory, the animation also shows what the memory attends to and when it is
    written. The figure `attention.png` shows the attention at one step, and `memory.png` shows the
    gates of the memory at all steps. If the environment does not render frames, the agent's view is
    drawn instead; if this is not a grid, nothing is drawn.

    `choose_start` selects the evaluation episode.

    Args:
        network: Q network, such as `RelationalQNetwork` or `RecurrentQNetwork`.
        task: the task to play.
        figures: folder in which the files are written.
        log: log that also receives the figures and the animation.

    Returns:
        Paths of the figures and the animation.
    """
    env = _rendering_env(task)
    renders = env is not None
    if env is None:
        if not grid_shape(task):
            return []
        env = task.make_test_env()
    with contextlib.closing(env):
        episode = play(network, task, env, choose_start(network, task, env), renders)
    drawn = {}
    if episode.patch_grid:
        half = len(episode.actions) // 2  # all episodes of such a game begin alike
        scores = {name: each[half] for name, each in episode.scores.items()}
        drawn["attention"] = viz.frame_attention_figure(
            episode.frames[half], scores, episode.patch_grid
        )
    elif episode.scores:
        # The episode of an agent with a memory starts where few entities are visible.
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
    caption = (
        "A greedy evaluation episode: the frame, the attention if the network has any, and the "
        "value of each action. The chosen action is orange."
    )
    film = viz.save_film(_film(episode, task), figures / "episode.gif", caption=caption)
    log.film(step, "episode", film)
    return [*paths, film]


def _film(episode, task):
    # Show the first of several rounds: in later ones, entities contain information on other cells.
    name, scores = next(iter(episode.scores.items()), ("", None))
    patches = None
    if episode.patch_grid:  # show the last round, averaged over heads
        *_, (name, last) = episode.scores.items()
        patches = [viz.attention_paid(each, episode.patch_grid).mean(axis=0) for each in last]
        scores = None
    return viz.film(
        episode.frames,
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
        patches=patches,
    )


def choose_start(network: keras.Model, task: Task, env: gymnasium.Env) -> dict[str, Any]:
    """Return the evaluation reset after which most entities and then most cells are visible.

    For a network with a memory, return the reset after which fewest are visible. For a task without
    `entities`, return the first reset.
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
    network: keras.Model,
    task: Task,
    env: gymnasium.Env,
    reset: dict[str, Any],
    renders: bool = True,
) -> TracedEpisode:
    """Play and trace one greedy episode, or its first `LONGEST_FILM` steps.

    If the environment does not render, the frames are images of the agent's view.
    """

    def frame():
        return env.render() if renders else _view(task, env, observation)

    tracer, env = PolicyTracer(network, task), CheckedEnv(env)
    observation, _ = env.reset(**reset)
    frames: list[Any] = [frame()]
    actions: list[int] = []
    traces, views, unseen, cells, rewards = [], [], [], [], []
    done = False
    while not done and len(actions) < LONGEST_FILM:
        traces.append(tracer.trace(observation))
        cells_attend = bool(traces[-1].attention) and not tracer.patch_grid
        views.append(_view(task, env, observation) if cells_attend else None)
        unseen.append(_unseen(task, observation) if cells_attend else None)
        cells.append(labelled_cells(task, observation))
        actions.append(int(traces[-1].q_values.argmax()))
        observation, reward, terminated, truncated, _ = env.step(actions[-1])
        rewards.append(float(reward))
        tracer.record(actions[-1], rewards[-1])
        frames.append(frame())
        done = terminated or truncated
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
        done,
    )


def labelled_cells(task: Task, observation: np.ndarray) -> dict[str, Any]:
    """Return label -> `(x, y)` of the visible entities; without `task.entities`, of the agent."""
    if task.entities is not None:
        entities = task.entities(observation)
    else:
        agent = _agent_cell(task.preprocessor, observation)
        entities = {} if agent is None else {"agent": agent}
    order = slice(None, None, -1 if task.rows_first else 1)
    return {label: tuple(map(int, cell))[order] for label, cell in entities.items()}


def _agent_cell(preprocessor, observation):
    """Return the agent's cell as indices of the first two axes, or `None` if it is not known."""
    part = preprocessor.grid_part
    grid = preprocessor.parts[part] if part else preprocessor
    if grid.agent_cell is not None or grid.agent_feature is None:
        return grid.agent_cell
    features = preprocessor(observation[None])
    features = ops.convert_to_numpy(features[part] if part else features)[0]
    marked = np.argwhere(features[..., grid.agent_feature])
    return tuple(marked[0]) if len(marked) else None


def _unseen(task, observation):
    """Return a mask of the cells that are not visible, indexed `[x, y]`, or `None`."""
    if task.unseen is None:
        return None
    hidden = task.unseen(observation)
    return hidden.T if task.rows_first else hidden


def _view(task, env, observation):
    """Return the task's image of the view or, if it has none, an image of the observation.

    A cell of the image mixes the colours of its channels in proportion to their values. A single
    channel is grey. Of several stacked observations, the newest is shown.
    """
    if task.view is not None:
        return task.view(env)
    packing = task.preprocessor.packing
    if packing is not None:
        name = task.preprocessor.grid_part or next(iter(packing.boxes))
        shape = with_channels(packing.boxes[name]).shape
        observation = np.reshape(packing.unpack(observation)[name], shape)
    channels = observation.shape[-1] // task.frames
    cells = np.asarray(observation)[..., -channels:].astype("float64")
    cells = cells if task.rows_first else cells.swapaxes(0, 1)
    cells = cells - min(0.0, cells.min())
    colours = ["black"] if channels == 1 else map(style.colour, range(channels))
    ink = 1 - np.array([to_rgb(each) for each in colours])  # what a colour takes away from white
    image = 255 * np.maximum(0, 1 - cells / (cells.max() or 1.0) @ ink)
    return image.astype("uint8").repeat(32, 0).repeat(32, 1)


def _rendering_env(task):
    """Return an environment that renders frames, or `None` if the task has none."""
    if not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame warns without a screen
    with contextlib.closing(task.make_test_env()) as env:
        if "rgb_array" not in (env.metadata.get("render_modes") or ()):
            return None
    env = task.make_test_env(render_mode="rgb_array")
    # pygame is often an optional package.
    with contextlib.suppress(gymnasium.error.DependencyNotInstalled):
        env.reset(seed=0)
        # A `make_test_env` that ignores `render_mode` returns an environment without rendering.
        if env.render() is not None or env.render_mode is not None:
            return env
    env.close()
    return None
