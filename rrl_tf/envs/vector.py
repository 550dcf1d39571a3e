"""Several environments in one process, whose episodes are determined by a few integers."""

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
    """A list of environments that step together and restart in the same step.

    The seed of episode `n` of environment `i` depends on (`seed`, `i`, `n`) only, so that neither
    the number of environments nor the length of other episodes changes it. The state of an
    environment is thus its episode number and the actions since: `get_state` returns them, and
    `set_state` replays them.

    Args:
        make_env: makes one environment; called `num_envs` times.
        num_envs: number of environments E.
        seed: non-negative integer.
        reset_on_truncation: `False` ignores the environments' time limits: `truncated` is never
            true, and an episode lasts until it terminates.

    Attributes:
        reset_options: options for the `reset` of every episode that begins from now on; a dict that
            JSON can store, or `None`. A curriculum sets its level here.

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
            seed: non-negative integer, for the first episodes of that seed; `None` continues with
                the next episodes.
            options: options for the `reset` of these episodes; `None` uses `reset_options`. JSON
                must be able to store them if `get_state` is called.

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
        """Take one action in every environment, and begin new episodes where one ends.

        Args:
            actions: `(E,)` integers.

        Returns:
            `(observation, reward, terminated, truncated, info)`: the next observations `(E, ...)`,
            float32 rewards `(E,)`, two bool arrays `(E,)` of which at most one is true, and `info`
            with `"final_obs"`, `(E, ...)`, the observations after the actions (equal to
            `observation` where the episode continues); `"life_lost"`, `(E,)`, if an environment
            reports it; `"_episode"`, `(E,)`, where an episode ends; and `"episode"`, its
            `"return"`, `"length"` in steps and `"success"`, `(E,)` each, zero elsewhere, with
            `"_success"`, `(E,)`, where an environment reports it.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
            InvalidInput: if the number of actions differs, or a reward is not finite.
        """
        if self._observation is None:
            raise ResetNeeded("Call reset or set_state before step.")
        actions = np.asarray(actions).tolist()
        if not isinstance(actions, list) or len(actions) != self.num_envs:
            raise InvalidInput(f"expected {self.num_envs} actions; received {actions!r}")
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
        """Return the complete state of the environments as a dict that JSON can store.

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
                f"options of reset must be ready for JSON before get_state ({error}); received "
                f"{self.reset_options!r} and {self._options!r}"
            ) from error
        return {
            "seed": self._seed,
            "reset_options": self.reset_options,
            "environments": environments,
        }

    def set_state(self, state: Mapping[str, Any]) -> np.ndarray:
        """Replay the episodes of a state that `get_state` returned, and continue from there.

        Args:
            state: the dict.

        Returns:
            The current observations `(E, ...)`.

        Raises:
            InvalidInput: if the state has another number of environments, or an environment
                behaves differently.
        """
        environments = state["environments"]
        if len(environments) != self.num_envs:
            raise InvalidInput(
                f"expected the state of {self.num_envs} environments; received that of "
                f"{len(environments)}"
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
                    f"environment {i} cannot be restored: replaying {len(stored['actions'])} "
                    f"actions of episode {stored['episode']} gave an observation with checksum "
                    f"{_checksum(observation)}; expected {stored['checksum']}. The state belongs "
                    "to another environment, or to another version of it."
                )
            observations.append(observation)
        self._observation = np.stack(observations)
        return self._observation

    def render(self) -> tuple[Any, ...]:
        """Return a tuple with the image of every environment."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment; `close` calls this."""
        for env in self.envs:
            env.close()

    def _check_rewards(self, reward, lengths):
        for i in np.flatnonzero(~np.isfinite(reward)).tolist():
            raise InvalidInput(
                f"rewards must be finite numbers of float32; environment {i}, step {lengths[i]} of "
                f"episode {self._episodes[i]}; received {reward[i]}"
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
        except (ValueError, OverflowError, TypeError):  # the environment needs a shorter seed
            observation, _ = self.envs[i].reset(seed=seed % 2**31, options=options)
        # The first observation may have another dtype than later ones.
        return np.asarray(observation, self.single_observation_space.dtype)


def _checksum(observation):
    return zlib.crc32(np.ascontiguousarray(observation).tobytes())
