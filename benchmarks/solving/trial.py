"""Define the tasks, and `Trial`, which evaluates an agent and measures its CPU time."""

import dataclasses
import json
import math
import pathlib
import sys
import time

import minigrid  # noqa: F401 - registers its environments
import numpy as np

EPISODES, FIRST_EPISODES = 100, 10
"""Episodes of an evaluation, and of its first part."""
SOLVED, PROMISING = 0.95, 0.8
"""Success of a solved task, and of a first part below which the evaluation ends."""
FIRST_STEP, GROWTH = 2000, 1.15
"""Step of the first evaluation, and the factor between the steps of two evaluations."""
SEED = 10_000
"""Seed of the first evaluation episode. Training uses other seeds."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of the comparison.

    Attributes:
        env: ID of the Gymnasium environment.
        seconds: CPU seconds after which a run ends.
        actions: actions that the task needs, for the agents of which we choose the actions.
        success_return: smallest return of a successful episode.
    """

    env: str
    seconds: float
    actions: tuple
    success_return: float = 1e-6

    @property
    def is_minigrid(self):
        """Whether observations are MiniGrid's."""
        return self.env.startswith("MiniGrid")


TASKS = {
    "doorkey-5x5": Task("MiniGrid-DoorKey-5x5-v0", 240, (0, 1, 2, 3, 5)),
    "memory-s7": Task("MiniGrid-MemoryS7-v0", 600, (0, 1, 2)),
    "cartpole": Task("CartPole-v1", 240, (0, 1), success_return=475),
    "doorkey-8x8": Task("MiniGrid-DoorKey-8x8-v0", 600, (0, 1, 2, 3, 5)),
}


class Trial:
    """One run of one agent.

    Attributes:
        task: the `Task`.
        agent: name of the agent.
        seed: seed of the run.
    """

    def __init__(self, task, agent, seed, folder, seconds=None, first_step=FIRST_STEP):
        self.task, self.agent, self.seed = TASKS[task], agent, seed
        self._folder, self._next = pathlib.Path(folder), first_step
        self._seconds = seconds or self.task.seconds
        self._not_counted, self._rows, self._envs = 0.0, [], []

    @classmethod
    def from_command_line(cls):
        """Return the trial of the arguments: task, agent, seed, folder, seconds, first step."""
        task, agent, seed, folder, *limits = sys.argv[1:]
        return cls(task, agent, int(seed), folder, *map(float, limits))

    def cpu_seconds(self):
        """Return the CPU seconds of this process without those of evaluations."""
        return time.process_time() - self._not_counted

    def report(self, step, make_env, act, sample=None):
        """Evaluate if it is time to, and end the process if the task is solved or time is over.

        Args:
            step: number of environment steps so far, over all environments.
            make_env: function that returns an environment with the agent's observations.
            act: greedy policy, a function of (observations, state, rewards) that returns actions
                and the next state; the first state is `None`.
            sample: the same with sampled actions, or `None`.
        """
        seconds = round(self.cpu_seconds(), 2)
        if step < self._next and seconds < self._seconds:
            return
        self._next = math.ceil(step * GROWTH)
        began = time.process_time()
        self._envs = self._envs or [make_env() for _ in range(EPISODES)]
        row = {"step": step, "cpu_seconds": seconds, "success": self.success(act)}
        if sample:
            row["sampled_success"] = self.success(sample)
        self._not_counted += time.process_time() - began
        self._rows.append(row)
        print(self.agent, row, file=sys.stderr, flush=True)
        if row["success"] >= SOLVED or seconds >= self._seconds:
            self.finish()

    def success(self, act):
        """Return the fraction of successful episodes; of the first ones if many of them fail."""
        first = self._play(act, self._envs[:FIRST_EPISODES], SEED)
        if first.mean() < PROMISING:
            return float(first.mean())
        rest = self._play(act, self._envs[FIRST_EPISODES:], SEED + FIRST_EPISODES)
        return float(np.concatenate([first, rest]).mean())

    def _play(self, act, envs, seed):
        """Return which episodes, all played at the same time, are successful."""
        observations = [env.reset(seed=seed + i)[0] for i, env in enumerate(envs)]
        rewards, returns = np.zeros(len(envs), np.float32), np.zeros(len(envs))
        running, state = np.ones(len(envs), bool), None
        while running.any():
            actions, state = act(np.stack(observations), state, rewards)
            rewards = np.zeros(len(envs), np.float32)
            for i in np.flatnonzero(running):
                observations[i], reward, terminated, truncated, _ = envs[i].step(int(actions[i]))
                rewards[i], running[i] = reward, not (terminated or truncated)
            returns += rewards
        return returns >= self.task.success_return

    def finish(self):
        """Write the results, and end the process."""
        self._folder.mkdir(parents=True, exist_ok=True)
        last, lines = self._rows[-1], [map(str, row.values()) for row in self._rows]
        text = "".join(",".join(line) + "\n" for line in [self._rows[0], *lines])
        (self._folder / "metrics.csv").write_text(text)
        solved = last["success"] >= SOLVED
        evaluation = {"solved": solved, "limit": self._seconds, **last}
        (self._folder / "evaluation.json").write_text(json.dumps(evaluation))
        sys.exit()
