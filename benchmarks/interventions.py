"""Pairs of states with different optimal actions, and what patching one from the other does."""

import dataclasses
import itertools

import numpy as np
from minigrid.core.constants import OBJECT_TO_IDX, STATE_TO_IDX

from benchmarks.planning import plan
from rrl_tf.envs import enumerate_starts
from rrl_tf.envs.box_world.graph import BoxWorldState
from rrl_tf.envs.box_world.levels import COLOUR_BITS, COLOURS, DISTRACTOR, FLOOR, KEY, LOCK
from rrl_tf.envs.minigrid_view import AGENT_CELL, VIEW_SIZE
from rrl_tf.interpret import trace
from rrl_tf.interpret.places import entity_places, outputs

AGENT = AGENT_CELL[0] * VIEW_SIZE + AGENT_CELL[1]
"""Entity of the agent's cell in a view of MiniGrid."""
PLACEBO = "random, same norm, "
TOGETHER, AGENTS = 50, 8
"""Levels of Box-World that are planned together, and positions of the agent in each."""


@dataclasses.dataclass(frozen=True)
class Pairs:
    """P states, each with a donor, a state in which other actions are optimal.

    Attributes:
        observations: `(2, P, ...)`, of the states and of their donors.
        optimal: `(2, P, A)` bool, the optimal actions.
        cells: dict name -> `(P, N)` bool, cells to patch; the first ones are those that differ.
        placebo: `(P, N)` bool, cells that do not matter, as many as differ; `None` if there are
            none.
        held_out: `(P,)` bool, whether training has not shown the donor.
        locks: `(P, 2)`, of Box-World, the cells of the lock that the key opens in the state, and
            of that which it opens in the donor.
    """

    observations: np.ndarray
    optimal: np.ndarray
    cells: dict[str, np.ndarray]
    placebo: np.ndarray | None
    held_out: np.ndarray
    locks: np.ndarray | None = None


def doorkey_pairs(task, seed=0):
    """Return all pairs of states of DoorKey that differ only in where the key lies.

    The door is locked, the key is visible in both states, and no action is optimal in both. All
    layouts are used. A donor is held out if its layout is one that the task is evaluated on.
    """
    env = task.levels[-1].make_test_graph()
    found = plan(env, env.state_of(enumerate_starts(env.size)))
    tested = {reset["options"]["start"].layout for reset in task.evaluation_resets(at_most=10**6)}
    views, states = np.asarray(env.observe(found.states)), found.states
    objects = views[..., 0].reshape(len(views), -1)
    key = (objects == OBJECT_TO_IDX["key"]) & (np.arange(objects.shape[1]) != AGENT)
    groups = {}
    for i in np.flatnonzero((states.lock == STATE_TO_IDX["locked"]) & key.any(axis=1)):
        same = states.wall[i], states.door[i], states.x[i], states.y[i], states.direction[i]
        groups.setdefault(tuple(map(int, same)), []).append(i)
    pairs = [
        pair
        for group in groups.values()
        for pair in itertools.permutations(group, 2)
        if not found.optimal[list(pair)].all(axis=0).any()
    ]
    own, donor = np.transpose(pairs)
    moved, agent = key[own] | key[donor], np.zeros_like(key[own])
    agent[:, AGENT] = True
    others = (objects[own] != OBJECT_TO_IDX["unseen"]) & ~moved & ~agent
    idle = others & np.isin(objects[own], [OBJECT_TO_IDX[name] for name in ("empty", "wall")])
    chance = np.random.default_rng(seed).random(idle.shape) * idle
    layouts = zip(states.wall, states.door, states.key_x, states.key_y)
    layouts = [(env.size, int(w), int(d), (int(x), int(y))) for w, d, x, y in layouts]
    return Pairs(
        np.array([views[own], views[donor]]),
        np.array([found.optimal[own], found.optimal[donor]]),
        {
            "key's cells": moved,
            "agent's cell": agent,
            "key's cells and agent's cell": moved | agent,
            "all other cells": others,
        },
        chance >= np.sort(chance, axis=1)[:, -2:-1],
        np.array([layouts[i] in tested for i in donor]),
    )


def box_world_pairs(task, count, seed=0):
    """Return states of new levels of Box-World, with donors in which two boxes are exchanged.

    The agent holds the first key of the level, which opens one of the two boxes. The exchange
    changes in which place this box is. Both boxes contain a key, so what they contain does not
    show which of them the agent's key opens. The agent is not next to a box, so the convolution
    before the attention does not add a box to the agent's entity.
    """
    env, rng, parts = task.levels[-1].make_test_graph(), np.random.default_rng(seed), []
    while sum(len(locks) for *_, locks in parts) < count:
        levels = [env.levels.draw(rng) for _ in range(TOGETHER)]
        drawn = [_exchanged(level, rng) for level in levels for _ in range(AGENTS)]
        cells, agent, held, locks = map(np.array, zip(*filter(None, drawn)))
        cells = np.concatenate([cells[:, 0], cells[:, 1]]).astype("int32")
        agents, keys = (np.tile(each, 2).astype("int32") for each in (agent, held))
        states = BoxWorldState(cells, agents, keys, np.zeros_like(keys))
        found = plan(env, states)
        optimal = found.optimal[found.given].reshape(2, len(agent), -1)
        views = np.asarray(env.observe(states)).reshape(2, len(agent), env.size, env.size, -1)
        differs = ~optimal.all(axis=0).any(axis=1)
        parts.append((views[:, differs], optimal[:, differs], agent[differs], locks[differs]))
    views, optimal = (np.concatenate(each, axis=1)[:, :count] for each in list(zip(*parts))[:2])
    agent, locks = (np.concatenate(each)[:count] for each in list(zip(*parts))[2:])
    cell = np.eye(env.size**2, dtype=bool)
    both, contents = (cell[locks - left].any(axis=1) for left in (0, 1))
    return Pairs(
        views,
        optimal,
        {
            "locks and contents": both | contents,
            "locks": both,
            "contents": contents,
            "agent's cell": cell[agent],
        },
        None,
        np.ones(count, bool),
        locks,
    )


def _exchanged(start, rng):
    """Return cells `(2, N)` of a level and its donor, agent, held colour and locks `(2,)`.

    The first lock is the one that the key opens in the level. Return `None` without two such locks.
    """
    cells = np.frombuffer(start.cells, np.uint8).copy()
    kinds, colours = cells >> COLOUR_BITS, cells & COLOURS
    is_lock = np.isin(kinds, (LOCK, DISTRACTOR))
    with_key = is_lock & (np.roll(kinds, 1) == KEY)
    [loose] = np.flatnonzero((kinds == KEY) & ~np.roll(is_lock, -1))
    cells[loose] = FLOOR
    is_opened = colours == colours[loose]
    opened, others = (np.flatnonzero(with_key & each) for each in (is_opened, ~is_opened))
    grid = np.pad(cells.reshape(start.size, -1) != FLOOR, 1)
    near = np.lib.stride_tricks.sliding_window_view(grid, (3, 3)).any(axis=(2, 3))
    free = np.flatnonzero(~near)
    if not (len(opened) and len(others) and len(free)):
        return None
    locks = [rng.choice(opened), rng.choice(others)]
    donor = cells.copy()
    for here, there in (locks, locks[::-1]):
        donor[here - 1 : here + 1] = cells[there - 1 : there + 1]
    return [cells, donor], rng.choice(free), colours[loose], locks


def patch_pairs(model, task, pairs, seed=0):
    """Return how often patching makes the action optimal for the donor.

    The placebos are random changes with the norm of the change of the first cells of `pairs`.

    Returns:
        A dict of `"pairs"`, `"optimal"` (fractions of states and of donors in which the model acts
        optimally) and `"patched"`: place -> patched cells -> fractions of actions that are
        optimal for the donor, of these where the model is right in both states, of held-out
        donors, and of actions that change.
    """
    traces = [trace(model, np.array(task.preprocessor(views))) for views in pairs.observations]
    inputs, rng = np.array(task.preprocessor(pairs.observations[0])), np.random.default_rng(seed)
    rows, before = np.arange(len(inputs)), traces[0]["output"].argmax(axis=1)
    right = [o[rows, t["output"].argmax(axis=1)] for o, t in zip(pairs.optimal, traces)]
    both, found = right[0] & right[1], {}
    name, moved = next(iter(pairs.cells.items()))
    for place in entity_places(traces[0]):
        own, other = (each[place] for each in traces)
        changes = {cells: np.where(m[..., None], other, own) for cells, m in pairs.cells.items()}
        norm = np.linalg.norm((other - own) * moved[..., None], axis=(1, 2), keepdims=True)
        for cells, mask in ((name, moved), ("other cells", pairs.placebo)):
            if mask is not None:
                noise = rng.normal(size=own.shape) * mask[..., None]
                noise *= norm / np.linalg.norm(noise, axis=(1, 2), keepdims=True)
                changes[f"{PLACEBO}{cells}"] = own + noise
        found[place] = {}
        for cells, values in changes.items():
            after = outputs(model, inputs, {place: values}).argmax(axis=1)
            hit = pairs.optimal[1][rows, after]
            parts = hit, hit[both], hit[pairs.held_out], after != before
            found[place][cells] = [float(each.mean()) for each in parts]
    return {
        "pairs": [len(rows), int(both.sum()), int(pairs.held_out.sum())],
        "optimal": [float(each.mean()) for each in right],
        "patched": found,
    }
