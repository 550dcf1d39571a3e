"""Six small grids, written as a user would write them, for the tutorial's table.

    python -m train_scripts.train_dqn --env benchmarks.grids:Key-v0 --steps 40000

All have four moves. Only `Coins` declares the code of the agent.
"""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


def codes(size, *largest):
    """Return the space of a square grid of codes, with the largest code of each channel."""
    return Box(0, np.tile(np.uint8(largest), (size, size, 1)), dtype=np.uint8)


class Grid(gymnasium.Env):
    """A square room in which the agent and all objects are in different cells.

    The agent must go to `goal`. Subclasses implement `observation`; those with more objects or
    another task also override `arrange` and `enter`.
    """

    action_space = Discrete(4)
    action_names = ("up", "down", "left", "right")
    size = 6
    step_reward = -0.01

    def reset(self, *, seed=None, options=None):
        """Begin an episode with the agent and all objects in random cells."""
        super().reset(seed=seed)
        self.walls = self.make_walls()
        free = self.np_random.permutation(np.argwhere(~self.walls)).tolist()
        self.agent, *cells = map(tuple, free)
        self.arrange(cells)
        return self.observation(), {}

    def arrange(self, cells):
        """Place the objects in free cells, given in random order."""
        self.goal = cells[0]

    def enter(self):
        """Return the reward of the agent's cell, and whether the episode ends and is a success."""
        done = self.agent == self.goal
        return float(done), done, done

    def make_walls(self):
        """Return a mask of the cells that cannot be entered."""
        return np.zeros((self.size, self.size), bool)

    def moved(self, cell, action):
        """Return the cell after a move, which is the same one before a wall."""
        row, column = np.add(cell, MOVES[action]).tolist()
        inside = 0 <= row < self.size and 0 <= column < self.size
        return (row, column) if inside and not self.walls[row, column] else cell

    def step(self, action):
        """Move, and report success at the end of the episode."""
        self.agent = self.moved(self.agent, action)
        reward, done, success = self.enter()
        return self.observation(), reward + self.step_reward, done, False, {"success": success}


class Key(Grid):
    """Take the key (code 2), then go to the goal (3). Code 1 is the agent."""

    observation_space = codes(6, 3)

    def arrange(self, cells):
        self.key, self.goal = cells[:2]

    def enter(self):
        if self.agent == self.key:
            self.key = None
            return 0.5, False, False
        done = self.key is None and self.agent == self.goal
        return float(done), done, done

    def observation(self):
        grid = np.zeros((6, 6, 1), np.uint8)
        grid[self.goal] = 3
        if self.key:
            grid[self.key] = 2
        grid[self.agent] = 1
        return grid


class Coins(Grid):
    """Collect three coins (code 2). Code 1 is the agent, which the environment declares."""

    size = 5
    observation_space = codes(5, 2)
    agent_code = 1

    def arrange(self, cells):
        self.coins = set(cells[:3])

    def enter(self):
        found = self.agent in self.coins
        self.coins.discard(self.agent)
        return float(found), not self.coins, not self.coins

    def observation(self):
        grid = np.zeros((5, 5, 1), np.uint8)
        for coin in self.coins:
            grid[coin] = 2
        grid[self.agent] = 1
        return grid


class Rooms(Grid):
    """Go to the goal (code 3) in one of four rooms; only the goal has a reward.

    Code 1 is the agent and 2 a wall.
    """

    size = 10
    step_reward = 0.0
    observation_space = codes(10, 3)

    def make_walls(self):
        walls = np.zeros((10, 10), bool)
        walls[5] = walls[:, 4] = True
        walls[5, [2, 7]] = walls[[2, 8], 4] = False
        return walls

    def observation(self):
        grid = 2 * self.walls[..., None].astype(np.uint8)
        grid[self.goal] = 3
        grid[self.agent] = 1
        return grid


class Match(Grid):
    """Take the key, then go to the box of the same colour; another box ends the episode.

    The channels are the object (0 none, 1 agent, 2 key, 3 box), its colour (0 none, 1 to 3) and
    whether the agent carries the key. The colour of the agent is that of its key.
    """

    size = 8
    observation_space = codes(8, 3, 3, 1)

    def arrange(self, cells):
        self.key, *boxes = cells[:3]
        colours = self.np_random.permutation(3)[:2] + 1
        self.boxes = dict(zip(boxes, colours.tolist()))
        self.colour = int(self.np_random.choice(colours))

    def enter(self):
        if self.agent == self.key:
            self.key = None
            return 0.5, False, False
        done = self.key is None and self.agent in self.boxes
        success = done and self.boxes[self.agent] == self.colour
        return float(success), done, success

    def observation(self):
        grid = np.zeros((self.size, self.size, 3), np.uint8)
        for cell, colour in self.boxes.items():
            grid[cell] = 3, colour, 0
        if self.key:
            grid[self.key] = 2, self.colour, 0
        grid[self.agent] = (1, 0, 0) if self.key else (1, self.colour, 1)
        return grid


class Search(Grid):
    """Find the goal (code 2) in a room of 8 x 8, of which the agent sees three cells to each side.

    The agent is always at the centre of the view and has no code. Code 1 is a wall.
    """

    size = 8
    observation_space = codes(7, 2)

    def observation(self):
        room = np.zeros((8, 8), np.uint8)
        room[self.goal] = 2
        row, column = self.agent
        return np.pad(room, 3, constant_values=1)[row : row + 7, column : column + 7, None]


class Chase(Grid):
    """Catch a prey that moves at random in every second step, on average; a pit ends the episode.

    The channels are planes of numbers from 0 to 1: agent, prey and pits.
    """

    size = 7
    observation_space = Box(0.0, 1.0, (7, 7, 3), np.float32)

    def arrange(self, cells):
        self.prey, *self.pits = cells[:6]

    def enter(self):
        caught = self.agent == self.prey
        if self.agent in self.pits:
            return -1.0, True, False
        if not caught and self.np_random.random() < 0.5:
            cell = self.moved(self.prey, self.np_random.integers(4))
            if cell != self.agent and cell not in self.pits:
                self.prey = cell
        return float(caught), caught, caught

    def observation(self):
        planes = np.zeros((self.size, self.size, 3), np.float32)
        planes[self.agent][0] = planes[self.prey][1] = 1
        planes[tuple(np.transpose(self.pits))] = 0, 0, 1
        return planes


for _grid, _steps in (
    (Key, 60),
    (Coins, 50),
    (Rooms, 100),
    (Match, 100),
    (Search, 80),
    (Chase, 80),
):
    gymnasium.register(f"{_grid.__name__}-v0", _grid, max_episode_steps=_steps)
