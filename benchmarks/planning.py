"""Compute the optimal actions of deterministic environments whose steps are tensor operations."""

import dataclasses
from typing import Any

import numpy as np

from rrl_tf.envs.graph import choose


@dataclasses.dataclass(frozen=True)
class Plan:
    """All S states that E given states can lead to, and their optimal actions.

    Attributes:
        states: state of the environment, arrays `(S, ...)`.
        given: `(E,)`, index of each given state.
        values: `(S,)`, largest discounted return from each state.
        optimal: `(S, A)` bool, whether an action is the first one of a way with this return.
    """

    states: Any
    given: np.ndarray
    values: np.ndarray
    optimal: np.ndarray


def plan(env, states, discount=0.9):
    """Return the `Plan` of a deterministic `GraphEnv` without its time limit.

    Args:
        env: environment such as `DoorKeyGraph` or `BoxWorldGraph`.
        states: its state, with E environments.
        discount: factor below 1.

    Example:
        >>> from rrl_tf.envs import DoorKeyGraph, enumerate_starts
        >>> env = DoorKeyGraph(5, reward="success")
        >>> found = plan(env, env.state_of(enumerate_starts(5)))
        >>> found.optimal.shape, round(np.log(found.values[found.given].min()) / np.log(0.9))
        ((160, 5), 13)
    """
    actions, new = range(env.action_space.n), _arrays(states)
    given = _keys(new)
    keys, (known, first) = [], np.unique(given, return_index=True)
    new, found, steps = _select(new, first), [], []
    while len(new.steps):
        found.append(new)
        keys.append(_keys(new))
        taken = [env.step(new, np.full(len(new.steps), action)) for action in actions]
        after = [_arrays(choose(step[3], new, step[0])) for step in taken]
        new = type(new)(*map(np.concatenate, zip(*after)))
        reached, first = np.unique(_keys(new), return_index=True)
        is_new = ~np.isin(reached, known)
        steps.append(
            [np.transpose(x) for x in ([*map(_keys, after)], *zip(*(step[2:4] for step in taken)))]
        )
        new, known = _select(new, first[is_new]), np.union1d(known, reached)
    after, rewards, ends = map(np.concatenate, zip(*steps))
    order = np.argsort(np.concatenate(keys))
    given, after = (order[np.searchsorted(known, each)] for each in (given, after))
    values, before = np.zeros(len(after)), None
    while before is None or (values != before).any():
        returns = rewards + discount * np.where(ends, 0, values[after])
        before, values = values, returns.max(axis=1)
    optimal = returns >= values[:, None] * (1 - 1e-6)
    return Plan(type(new)(*map(np.concatenate, zip(*found))), given, values, optimal)


def _arrays(states):
    """Return states as arrays, without their numbers of steps."""
    states = type(states)(*map(np.asarray, states))
    return states._replace(steps=np.zeros_like(states.steps))


def _select(states, rows):
    return type(states)(*(field[rows] for field in states))


def _keys(states):
    """Return a 64-bit hash of each state."""
    rows = np.concatenate([np.reshape(x, (len(x), -1)) for x in states], axis=1).astype("uint64")
    weights = np.random.default_rng(0).integers(2**63, size=rows.shape[1], dtype="uint64")
    return rows @ (2 * weights + 1)
