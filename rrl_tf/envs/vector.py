"""Define `SeededVectorEnv`, a vector environment whose state can be stored as JSON."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rrl_tf._arguments import natural, positive_int
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
        InvalidInput: if `num_envs` is not positive, or the seed is negative.

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
            InvalidInput: if the number of actions is not E, or a reward is not finite.
        """
        if self._observation is None:
            raise ResetNeeded("Call reset or set_state before step.")
        actions = np.asarray(actions).tolist()
        if not isinstance(actions, list) or len(actions) != self.num_envs:
            raise InvalidInput(f"`actions` must be {self.num_envs} integers; received {actions!r}")
        space: Any = self.single_observation_space
        final = np.empty((self.num_envs, *space.shape), space.dtype)
        reward = np.zeros(self.num_envs, np.float32)
        flags = np.zeros((5, self.num_envs), bool)
        terminated, truncated, success, is_reported, life_lost = flags
        for i, (env, action) in enumerate(zip(self.envs, actions)):
            final[i], reward[i], terminated[i], timeout, info = env.step(action)
            truncated[i] = timeout and self.reset_on_truncation and not terminated[i]
            is_reported[i], success[i] = "success" in info, info.get("success", False)
            life_lost[i] = info.get("life_lost", False)
            self._actions[i].append(action)
        self._returns += reward
        done = terminated | truncated
        lengths = np.array([len(taken) for taken in self._actions])
        self._check_rewards(reward, lengths)
        info = {
            "final_obs": final,
            "episode": {
                "return": np.where(done, self._returns, 0),
                "length": np.where(done, lengths, 0),
                "success": success & done,
                "_success": is_reported & done,
            },
            "_episode": done,
        }
        if life_lost.any():
            info["life_lost"] = life_lost
        self._observation = final.copy() if done.any() else final
        for ended in np.flatnonzero(done).tolist():
            self._observation[ended] = self._begin(ended, self.reset_options)
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
            InvalidInput: if the state has another number of environments, or a replayed episode
                gives another observation than the stored one.
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
                self._returns[i] += np.float32(reward)
            self._actions[i] = list(stored["actions"])
            observation = np.asarray(observation, self.single_observation_space.dtype)
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

    def _check_rewards(self, reward, lengths):
        for i in np.flatnonzero(~np.isfinite(reward)).tolist():
            raise InvalidInput(
                f"rewards must be finite in float32; received {reward[i]} from environment {i} in "
                f"step {lengths[i]} of episode {self._episodes[i]}"
            )

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
        # Some environments return the first observation with another dtype than later ones.
        return np.asarray(observation, self.single_observation_space.dtype)


def _checksum(observation):
    return zlib.crc32(np.ascontiguousarray(observation).tobytes())
