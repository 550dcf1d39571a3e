"""The small grids are valid environments and follow their rules."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from benchmarks import grids

NAMES = ("Key", "Coins", "Rooms", "Match", "Search", "Chase")


@pytest.mark.parametrize("name", NAMES)
def test_grid_is_a_valid_environment_that_random_moves_can_solve(name):
    env = gymnasium.make(f"benchmarks.grids:{name}-v0")
    check_env(env.unwrapped, skip_render_check=True)
    rng, successes = np.random.default_rng(0), []
    for seed in range(60):
        env.reset(seed=seed)
        done = False
        while not done:
            _, _, terminated, truncated, info = env.step(int(rng.integers(4)))
            done = terminated or truncated
        successes.append(info["success"])
    assert 0 < np.mean(successes) < 0.8


def test_key_must_be_taken_before_the_goal_counts():
    env = grids.Key()
    env.reset(seed=0)
    env.agent, env.key, env.goal = (0, 0), (0, 2), (0, 1)
    rewards = [env.step(action)[1:3] for action in (3, 3, 2)]  # right, right, left
    assert rewards == [(-0.01, False), (0.49, False), (0.99, True)]


def test_agent_of_match_shows_the_key_it_carries():
    env = grids.Match()
    env.reset(seed=0)
    env.agent, env.key, env.colour = (0, 0), (0, 1), 2
    env.boxes = {(0, 2): 2, (7, 7): 1}
    observation, *_ = env.step(3)
    assert observation[0, 1].tolist() == [1, 2, 1]
    assert env.step(3)[1:3] == (0.99, True)


def test_walls_of_rooms_stop_the_agent():
    env = grids.Rooms()
    env.reset(seed=0)
    env.agent = (4, 3)
    assert all(env.step(action)[0][4, 3] == 1 for action in (1, 3))  # down, right
