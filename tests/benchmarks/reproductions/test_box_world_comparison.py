"""Exact values of Box-World, against episodes that are played by them."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks.reproductions import box_world_comparison as comparison
from rrl_tf.envs.box_world.env import AGENT, BoxWorld
from rrl_tf.envs.box_world.graph import BoxWorldGraph, BoxWorldState
from rrl_tf.envs.box_world.levels import LOCK

pytestmark = pytest.mark.tf_only
LEVELS = {"size": 8, "goal_length": (1, 2, 3), "num_distractors": (0, 1)}


@pytest.fixture(scope="module")
def solved():
    """A graph's levels, all their states, where actions lead, and what these are worth."""
    env = BoxWorldGraph(pool=6, pool_seed=7, **LEVELS)
    starts = BoxWorldState(*(part.numpy() for part in comparison.all_levels(env)))
    states, following, reward = comparison.reachable(env, starts)
    return env, states, following, comparison.action_values(following, reward, 0.9)


def test_who_takes_the_best_actions_earns_what_they_are_worth(solved):
    graph, _, following, value = solved
    rng = np.random.default_rng(graph.pool_seed)
    for level in range(graph.pool):
        env = BoxWorld(**LEVELS)
        env.reset(options={"start": graph.levels.draw(rng)})
        row, earned, steps, over = level, 0.0, 0, False
        while not over:
            action = int(value[row].argmax())
            row = following[row, action]
            _, reward, over, truncated, info = env.step(action)
            assert not truncated
            earned += 0.9**steps * reward
            steps += 1
        assert info["success"]
        assert earned == pytest.approx(value[level].max(), abs=1e-4)


def test_no_state_comes_twice_and_none_that_follows_is_missing(solved):
    _, states, following, _ = solved
    rows = np.concatenate([states.cells, states.agent[:, None], states.held[:, None]], axis=1)
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert set(following.ravel()) == set(range(-1, len(rows)))


def test_a_key_is_held_and_there_are_several_locks_where_colours_are_compared():
    rows = comparison.valued(comparison.Config(levels=4), 4, seed=0)
    kinds, colours = rows["observation"][..., 0], rows["observation"][..., 1]
    assert len(kinds) > 100
    assert (np.where(kinds == AGENT, colours, 0).max(axis=(1, 2)) > 0).all()
    assert ((kinds == LOCK).sum(axis=(1, 2)) > 1).all()
    assert rows["best"].any(axis=1).all()
    assert not rows["best"].all()


def test_the_table_says_what_is_known_at_every_look():
    config = comparison.Config(
        variants=("convolutional",), seeds=(0,), levels=4, updates=4, every=2, batch_size=8
    )
    (row,) = comparison.main(config).rows
    assert [*row] == ["network", "seeds", "after 2 updates", "after 4 updates"]


def test_rows_of_the_same_settings_stay(tmp_path):
    file = tmp_path / "table.json"
    config = comparison.Config(variants=("preset",), levels=4)
    rows = [{"network": "preset", "after": 2}]
    assert comparison.with_earlier(rows, config, file) == rows
    there = [{"network": name, "after": 1} for name in ("first", "preset")]
    before = dataclasses.replace(config, variants=("preset", "first"))
    file.write_text(json.dumps({"settings": dataclasses.asdict(before), "rows": there}))
    assert comparison.with_earlier(rows, config, file) == [*rows, there[0]]
    other = dataclasses.replace(config, levels=5)
    assert comparison.with_earlier(rows, other, file) == rows
