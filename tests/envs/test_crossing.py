"""Crossing: its rules, and the single cell in which the paths cross."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rrl_tf.envs.crossing import EXIT_REWARDS, MAPS, Crossing
from rrl_tf.errors import InvalidInput


def walk(env, to, seed):
    """Walk to an exit; return the return, the visited positions and the last info."""
    way = env.shortest_path(to)
    observation, _ = env.reset(seed=seed)
    places, total, done = [tuple(observation.astype(int).tolist())], 0.0, False
    while not done:
        observation, reward, terminated, truncated, info = env.step(way[places[-1]])
        places.append(tuple(observation.astype(int).tolist()))
        total, done = total + reward, terminated or truncated
    return total, places, info


@pytest.mark.parametrize("layout", MAPS)
@pytest.mark.filterwarnings("ignore:.*not within.*")
def test_is_a_gymnasium_environment(layout):
    check_env(Crossing(layout), skip_render_check=True)


@pytest.mark.parametrize("layout", MAPS)
@pytest.mark.parametrize("start", "AB")
def test_shortest_paths_lead_to_their_exits_through_the_crossing(layout, start):
    for to in sorted(set(MAPS[layout]) & EXIT_REWARDS.keys()):
        for seed in range(8):
            total, places, info = walk(Crossing(layout, start, slip=0.0), to, seed)
            assert total == EXIT_REWARDS[to]
            assert info == {"success": float(to == "1")}
            side = [x < 6 for x, _ in places]
            assert ((6, 3) in places) == (False in side)
            assert to == "3" or (6, 3) in places


def test_slips_have_the_given_fraction():
    env, missed = Crossing(slip=0.4), 0
    for seed in range(2000):
        env.reset(seed=seed)
        before = env._place
        env.step(3)  # down: blocked by a wall, or one cell further
        missed += env._place not in (before, (before[0], before[1] + 1))
    # Of the four moves of a slip, only left and right lead elsewhere: above A is a wall.
    assert 0 < missed / 2000 < 0.4
    env = Crossing(slip=0.0)
    walks = {walk(env, "1", 0)[0] for _ in range(5)}
    assert walks == {1.0}


def test_an_episode_ends_in_time():
    env = Crossing(slip=0.0, max_steps=7)
    env.reset(seed=0)
    ends = [env.step(2)[2:4] for _ in range(7)]
    assert ends == [(False, False)] * 6 + [(False, True)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layout": "square"}, "must be one of .*; received 'square'"),
        ({"starts": "C"}, "`starts` must be 'A', 'B' or 'AB'; received 'C'"),
        ({"starts": ""}, "`starts` must be 'A', 'B' or 'AB'; received ''"),
        ({"slip": 2}, "`slip` must be"),
        ({"max_steps": 0}, "max_steps"),
    ],
)
def test_an_invalid_argument_raises(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        Crossing(**arguments)


def test_an_unknown_exit_raises():
    with pytest.raises(InvalidInput, match="must be an exit of the layout; received '3'"):
        Crossing("crossing").shortest_path("3")


def test_slips_do_not_lead_to_the_wrong_exit():
    """The stitching data require episodes that end at the intended exit."""
    for to in "12":
        env = Crossing("fork", "A")
        returns = np.array([walk(env, to, seed)[0] for seed in range(300)])
        assert np.isin(returns, [EXIT_REWARDS[to], EXIT_REWARDS["3"]]).all()
        assert (returns == EXIT_REWARDS[to]).mean() > 0.9


@pytest.mark.parametrize("action", [-1, 4, 1.7, "left"])
def test_an_unknown_action_raises(action):
    """Regression: -1 moved down and 1.7 moved right."""
    env = Crossing(slip=0.0)
    env.reset(seed=0)
    with pytest.raises(InvalidInput, match=f"an action must be 0, 1, 2 or 3; received {action!r}"):
        env.step(action)
    env.step(np.int64(3))
