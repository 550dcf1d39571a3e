"""MiniGrid's DoorKey in any state, as the reference for `DoorKeyGraph`."""

import functools
import itertools

import numpy as np
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Goal, Key
from minigrid.envs import DoorKeyEnv

from rrl_tf.envs import DoorKeyState


class MiniGridOracle(DoorKeyEnv):
    """MiniGrid's own DoorKey, whose state can be set and read.

    A state is a tuple of the fields of `DoorKeyState`. Steps, rewards and views are MiniGrid's
    code. Computing the view takes 97 % of a step, so views are cached by state.

    Args:
        size: side of the grid.
        views: dict used as the cache of views; oracles of one size may share it.
        max_steps: time limit; `None` is MiniGrid's.
    """

    def __init__(self, size, views=None, max_steps=None):
        super().__init__(size=size, max_steps=max_steps)
        self._views = {} if views is None else views

    def put(self, state):
        """Build the grid of a state with the same calls as MiniGrid's generator."""
        size, wall, door, lock, key_x, key_y, x, y, direction, steps = state
        self.grid = Grid(size, size)
        self.grid.grid = [*self._walls(wall)]
        self.put_obj(Door("yellow", is_open=lock == 0, is_locked=lock == 2), wall, door)
        self.carrying = Key("yellow") if key_x < 0 else None
        if self.carrying is None:
            self.put_obj(Key("yellow"), key_x, key_y)
        self.agent_pos, self.agent_dir, self.step_count = (x, y), direction, steps

    @functools.lru_cache  # noqa: B019 - an oracle lives as long as its comparison
    def _walls(self, wall):
        """Return the cells of a grid with its walls and its goal."""
        grid = Grid(self.width, self.width)
        grid.wall_rect(0, 0, self.width, self.width)
        grid.set(self.width - 2, self.width - 2, Goal())
        grid.vert_wall(wall, 0)
        return grid.grid

    def state(self):
        """Return the state of the grid and the agent."""
        cells = self.grid.grid
        place = {type(cell): divmod(i, self.width)[::-1] for i, cell in enumerate(cells) if cell}
        wall, door = place[Door]
        lock = self.grid.get(wall, door).encode()[2]
        key = (-1, -1) if self.carrying else place[Key]
        agent = map(int, self.agent_pos)
        return (self.width, wall, door, lock, *key, *agent, int(self.agent_dir), self.step_count)

    def gen_obs(self):
        """Return MiniGrid's observation, and the view with the direction as a channel."""
        view = self.state()[:-1]
        if view not in self._views:
            seen = super().gen_obs()
            compass = np.full((7, 7, 1), seen["direction"], np.uint8)
            seen["compass"] = np.concatenate((seen["image"], compass), axis=-1)
            self._views[view] = seen
        return self._views[view]

    def transition(self, action):
        """Do one step: return `(state, observation, reward, terminated, truncated)`."""
        seen, reward, terminated, truncated, _ = self.step(action)
        return self.state(), seen["compass"], np.float32(reward), terminated, truncated


def every_state(size):
    """Return all states of a grid as int32 `(N, 10)`, also those that no episode reaches.

    The number of steps is random, up to the last one before the time limit.
    """
    inside = list(itertools.product(range(1, size - 1), repeat=2))
    goal, rows = (size - 2, size - 2), []
    for wall, door, lock in itertools.product(range(2, size - 2), range(1, size - 2), range(3)):
        free = [cell for cell in inside if cell[0] != wall]
        for key in [(-1, -1), *(cell for cell in free if cell != goal)]:
            places = [cell for cell in free if cell != key] + [(wall, door)] * (lock == 0)
            for agent, direction in itertools.product(places, range(4)):
                rows.append((size, wall, door, lock, *key, *agent, direction, 0))
    states = np.array(rows, np.int32)
    states[:, -1] = np.random.default_rng(0).integers(10 * size**2, size=len(states))
    return states


def differences(step, states, actions, oracle=None):
    """Count the cases in which a step differs from MiniGrid's.

    Args:
        step: `DoorKeyGraph(actions="all").step`, or a `tf.function` of it.
        states: `(N, 10)` int32, of one size.
        actions: `(N,)` int32.
        oracle: a `MiniGridOracle` whose cache may already contain views.
    """
    state, *outcome = step(DoorKeyState(*np.ascontiguousarray(states.T)), actions)
    ours = (np.stack([np.asarray(column) for column in state], axis=1), *map(np.asarray, outcome))
    oracle, transitions = oracle or MiniGridOracle(int(states[0, 0])), []
    for before, action in zip(states.tolist(), actions.tolist()):
        oracle.put(before)
        transitions.append(oracle.transition(action))
    wrong = np.zeros(len(states), bool)
    for mine, theirs in zip(ours, zip(*transitions)):
        wrong |= (mine != np.stack(theirs)).reshape(len(states), -1).any(axis=1)
    return int(wrong.sum())
