"""Define `SeededVectorEnv`, a vector environment whose state can be stored as JSON."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rrl_tf._arguments import natural, positive_int
from rrl_tf.envs.checks import (
    INFO_FLAGS,
    REWARD,
    TERMINATED,
    TRUNCATED,
    ArrayCheck,
    observation_check,
)
from rrl_tf.errors import InvalidInput


class SeededVectorEnv(VectorEnv):
    """Environments in one process that step together; an ended episode restarts in the same step.

    The seed of episode `n` of environment `i` depends only on `seed`, `i` and `n`, and not on the
    number of environments or the length of other episodes. The number of the current episode and
    its actions so far therefore determine the state of an environment. `get_state` returns them,
    and `set_state` replays them.

    Args:
        make_env: function without arguments that makes one environment; called `num_envs` times.
        num_envs: number of environments E.
        seed: non-negative integer.
        reset_on_truncation: whether a time limit ends an episode. If `False`, `truncated` is always
            false and an episode lasts until it terminates.

    Attributes:
        reset_options: options for the `reset` of every later episode: a dict that JSON can store,
            or `None`. A curriculum selects its level this way.

    Raises:
        InvalidInput: if `num_envs` is not positive, the seed is negative, or observations are not
            arrays.

    Example:
        >>> from rrl_tf.envs import make_doorkey
        >>> env = SeededVectorEnv(make_doorkey, num_envs=4, seed=0)
        >>> observation, info = env.reset()
        >>> observation, reward, terminated, truncated, info = env.step([2, 2, 0, 1])
        >>> observation.shape, info["final_obs"].shape
        ((4, 7, 7, 3), (4, 7, 7, 3))
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        make_env: Callable[[], gymnasium.Env],
        num_envs: int,
        seed: int,
        reset_on_truncation: bool = True,
    ) -> None:
        self.num_envs = positive_int("num_envs", num_envs)
        self.envs = [make_env() for _ in range(num_envs)]
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._no = np.zeros(num_envs, bool)
        self._observation_check = observation_check(self.single_observation_space)
        space: Any = self.single_action_space
        self._action_check = ArrayCheck("`actions`", space.shape, space.dtype)
        self.render_mode = self.envs[0].render_mode
        self.reset_options: dict[str, Any] | None = None
        self.reset_on_truncation = reset_on_truncation
        self._start_over(seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin a new episode in every environment.

        Args:
            seed: non-negative integer; the environments begin with the first episodes of this seed.
                `None` keeps the seed and continues with the next episodes.
            options: options for the `reset` of these episodes; `None` uses `reset_options`. If
                `get_state` is called, JSON must be able to store them.

        Returns:
            Observations `(E, ...)` and an empty dict.
        """
        if seed is not None:
            self._start_over(seed)
        self._observation = np.stack(
            [self._begin(i, options or self.reset_options) for i in range(self.num_envs)]
        )
        return self._observation, {}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one action in every environment, and begin a new episode where one ends.

        Args:
            actions: `(E,)` integers.

        Returns:
            `(observation, reward, terminated, truncated, info)`: observations `(E, ...)`, the first
            of the new episode where one ends; float32 rewards `(E,)`; two bool arrays `(E,)`, which
            are never both true for an environment; and a dict `info` with

            - `"final_obs"`: `(E, ...)`, observations after the actions and before any reset.
            - `"_episode"`: `(E,)` bool, true where an episode ends.
            - `"episode"`: dict of arrays `(E,)` that are zero where no episode ends: `"return"`,
              `"length"` in steps, `"success"`, and `"_success"`, which is true where the
              environment reports success or failure.
            - `"life_lost"`: `(E,)` bool, present only if a life is lost.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
            InvalidInput: if `actions` are not E actions, or an environment returns a value that is
                not finite, or whose shape or dtype is not the declared one; see `ArrayCheck`.
        """
        if self._observation is None:
            raise ResetNeeded("Call reset or set_state before step.")
        # Python numbers, as JSON can store them.
        actions = self._action_check.batch(actions, self.num_envs, self._place).tolist()
        results = []
        for env, action, taken in zip(self.envs, actions, self._actions):
            results.append(env.step(action))
            taken.append(action)
        observations, rewards, terminations, timeouts, infos = zip(*results)
        final = self._observation_check.batch(observations, self.num_envs, self._place)
        reward = REWARD.batch(rewards, self.num_envs, self._place)
        terminated = TERMINATED.batch(terminations, self.num_envs, self._place)
        truncated = TRUNCATED.batch(timeouts, self.num_envs, self._place) & ~terminated
        if not self.reset_on_truncation:
            truncated[:] = False
        success, is_reported = self._info_flags("success", infos)
        life_lost, _ = self._info_flags("life_lost", infos)
        self._returns += reward
        done = terminated | truncated
        lengths = np.array([len(taken) for taken in self._actions])
        info = {
            "final_obs": final,
            "episode": {
                "return": np.where(done, self._returns, 0),
                "length": lengths * done,
                "success": success & done,
                "_success": is_reported & done,
            },
            "_episode": done,
        }
        if life_lost is not self._no and life_lost.any():
            info["life_lost"] = life_lost
        restarted = np.flatnonzero(done).tolist()
        self._observation = final.copy() if restarted else final
        for i in restarted:
            self._observation[i] = self._begin(i, self.reset_options)
        return self._observation, reward, terminated, truncated, info

    def get_state(self) -> dict[str, Any]:
        """Return the state of all environments as a dict that JSON can store.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
            InvalidInput: if JSON cannot store the options of an episode.
        """
        if self._observation is None:
            raise ResetNeeded("Call reset before get_state.")
        environments = [
            {
                "episode": self._episodes[i],
                "options": self._options[i],
                "actions": list(self._actions[i]),
                "checksum": _checksum(self._observation[i]),
            }
            for i in range(self.num_envs)
        ]
        try:
            json.dumps((self.reset_options, self._options))
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"JSON must be able to store all options of `reset` ({error}); received "
                f"{self.reset_options!r} and {self._options!r}"
            ) from error
        return {
            "seed": self._seed,
            "reset_options": self.reset_options,
            "environments": environments,
        }

    def set_state(self, state: Mapping[str, Any]) -> np.ndarray:
        """Restore a state of `get_state` by replaying the actions of its current episodes.

        Args:
            state: dict from `get_state`.

        Returns:
            The current observations `(E, ...)`.

        Raises:
            InvalidInput: if the state has a different number of environments, or a replayed episode
                produces a different observation than the stored one.
        """
        environments = state["environments"]
        if len(environments) != self.num_envs:
            raise InvalidInput(
                f"`state` must have {self.num_envs} environments; received {len(environments)}"
            )
        self._start_over(state["seed"])
        self.reset_options = state["reset_options"]
        observations = []
        for i, stored in enumerate(environments):
            self._episodes[i] = stored["episode"] - 1
            observation = self._begin(i, stored["options"])
            for action in stored["actions"]:
                observation, reward, *_ = self.envs[i].step(action)
                self._actions[i].append(action)
                self._returns[i] += REWARD(reward, partial(self._place, i))
            observation = self._observation_check(observation, partial(self._place, i))
            if _checksum(observation) != stored["checksum"]:
                raise InvalidInput(
                    f"environment {i} cannot be restored: after {len(stored['actions'])} replayed "
                    f"actions of episode {stored['episode']}, the checksum of the observation must "
                    f"be {stored['checksum']}; received {_checksum(observation)}. The state was "
                    "stored with another environment, or with another version of it."
                )
            observations.append(observation)
        self._observation = np.stack(observations)
        return self._observation

    def render(self) -> tuple[Any, ...]:
        """Return a tuple of images, one per environment."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close all environments; `close` calls this method."""
        for env in self.envs:
            env.close()

    def _info_flags(self, name, infos):
        """Return two bool arrays `(E,)`: the flags of this name, and where `infos` contains it."""
        if not any(name in info for info in infos):
            return self._no, self._no
        values = [info.get(name) for info in infos]
        is_reported = np.array([value is not None for value in values])
        values = [False if value is None else value for value in values]
        return INFO_FLAGS[name].batch(values, self.num_envs, self._place), is_reported

    def _place(self, i):
        return f"environment {i} in step {len(self._actions[i])} of episode {self._episodes[i]}"

    def _start_over(self, seed):
        self._seed = natural("seed", seed)
        self._episodes = [-1] * self.num_envs
        self._options = [None] * self.num_envs
        self._actions = [[] for _ in self.envs]
        self._returns = np.zeros(self.num_envs)
        self._observation = None

    def _begin(self, i, options):
        """Begin the next episode of environment i and return its first observation."""
        self._episodes[i] += 1
        self._options[i] = options
        self._actions[i] = []
        self._returns[i] = 0
        sequence = np.random.SeedSequence((self._seed, int(i), self._episodes[i]))
        seed = int(sequence.generate_state(1, np.uint64)[0])
        try:
            observation, _ = self.envs[i].reset(seed=seed, options=options)
        except (ValueError, OverflowError, TypeError):  # it may only accept seeds below 2**31
            observation, _ = self.envs[i].reset(seed=seed % 2**31, options=options)
        return self._observation_check(observation, partial(self._place, i))


def _checksum(observation):
    return zlib.crc32(np.ascontiguousarray(observation).tobytes())
