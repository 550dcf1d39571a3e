"""Plans agree with solutions derived by hand and with greedy play in the environments."""

import numpy as np
import pytest

from benchmarks.planning import plan
from rrl_tf.envs import DoorKeyGraph, DoorKeyStart
from rrl_tf.envs.box_world.graph import BoxWorldGraph
from rrl_tf.envs.box_world.levels import DISTRACTOR, GEM, KEY, LOCK, BoxWorldStart, cell_code

pytestmark = pytest.mark.tf_only
LEFT, RIGHT, FORWARD, PICKUP, TOGGLE = range(5)


def test_plan_of_doorkey_is_the_shortest_way():
    env = DoorKeyGraph(5, reward="success")
    start = DoorKeyStart(5, wall=2, door=1, key=(1, 2), agent=(1, 1), direction=1)
    found, state = plan(env, env.state_of([start])), env.state_of([start])
    way = [PICKUP, LEFT, TOGGLE, FORWARD, FORWARD, RIGHT, FORWARD, FORWARD]
    assert found.values[found.given[0]] == pytest.approx(0.9 ** (len(way) - 1))
    for action in way:
        here = plan(env, state)
        assert np.flatnonzero(here.optimal[here.given[0]]).tolist() == [action]
        state, _, reward, ends, _ = env.step(state, np.array([action]))
    assert reward == 1 and ends


def test_plan_of_box_world_avoids_the_distractor():
    cells = np.zeros((5, 5), np.uint8)
    cells[1, 0] = cell_code(KEY, 1)
    cells[0, 2:4] = cell_code(KEY, 2), cell_code(DISTRACTOR, 1)
    cells[3, 2:4] = cell_code(GEM), cell_code(LOCK, 1)
    env = BoxWorldGraph(size=5, goal_length=1, num_distractors=0)
    starts = [BoxWorldStart(5, cells.tobytes(), agent) for agent in ((1, 1), (2, 0))]
    found = plan(env, env.state_of(starts))
    # The key, four steps to the lock, and one step to the gem.
    assert found.optimal[found.given].tolist() == [
        [False, False, True, False],
        [True, False, False, False],
    ]
    steps = 1 + 5 + 1
    expected = 0.9 ** (steps - 2) + 10 * 0.9 ** (steps - 1)
    np.testing.assert_allclose(found.values[found.given], expected)
