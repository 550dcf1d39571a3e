"""FieldOfView equals MiniGrid's view on any grid."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.core.grid import Grid
from minigrid.core.world_object import Ball, Door, Goal, Key, Lava, Wall
from minigrid.envs import EmptyEnv
from minigrid.minigrid_env import MiniGridEnv

from rrl_tf.envs import make_doorkey
from rrl_tf.envs.minigrid_view import FieldOfView

OBJECTS = (
    lambda: None,
    lambda: None,
    Wall,
    Wall,
    Goal,
    Lava,
    lambda: Key("red"),
    lambda: Ball("blue"),
    lambda: Door("yellow", is_open=True),
    lambda: Door("green"),
    lambda: Door("purple", is_locked=True),
)


@given(st.integers(3, 10), st.integers(3, 10), st.integers(0, 2**32), st.booleans())
@settings(max_examples=300, deadline=None)
def test_equal_to_minigrid_on_random_grids(width, height, seed, carries):
    rng = np.random.default_rng(seed)
    env = EmptyEnv(size=5)
    env.see_through_walls = False
    env.grid = Grid(width, height)
    density = rng.integers(1, len(OBJECTS) + 1)  # from nearly empty to crowded
    for x in range(width):
        for y in range(height):
            env.grid.set(x, y, OBJECTS[rng.integers(density)]())
    env.carrying = Key("grey") if carries else None
    env.agent_pos = (int(rng.integers(width)), int(rng.integers(height)))
    field_of_view = FieldOfView(env.grid.encode())
    for direction in range(4):
        env.agent_dir = direction
        view = field_of_view.look(
            env.agent_pos, direction, env.carrying.encode() if carries else None
        )
        expected = env.gen_obs()["image"]
        assert view.dtype == expected.dtype
        np.testing.assert_array_equal(view, expected)


def test_changes_of_the_grid_are_observed():
    env = make_doorkey(6).unwrapped
    rng = np.random.default_rng(0)
    for seed in range(20):
        env.reset(seed=seed)
        for _ in range(20):
            x, y = rng.integers(6, size=2).tolist()
            if env.grid.get(x, y) not in (env._door, env._key):
                env.grid.set(x, y, OBJECTS[rng.integers(len(OBJECTS))]())
            env._door.is_open, env._door.is_locked = bool(rng.integers(2)), bool(rng.integers(2))
            expected = MiniGridEnv.gen_obs(env)
            np.testing.assert_array_equal(env.gen_obs()["image"], expected["image"])
