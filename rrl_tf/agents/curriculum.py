"""Curriculum: levels of growing difficulty, and when to move to the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from rrl_tf._arguments import integer, number_from, positive_int, reset_option
from rrl_tf.envs import SeededVectorEnv, Task
from rrl_tf.errors import InvalidInput


class CurriculumEnv(gymnasium.Wrapper):
    """Several environments of growing difficulty as one; each reset draws a level.

    With probability `current_fraction` an episode is of the level `options["level"]`, otherwise of
    an easier one, so that the agent does not forget those.

    Args:
        envs: list of environments with equal observation and action spaces, the easiest first.
        current_fraction: probability in [0, 1].

    Raises:
        InvalidInput: if there is no environment, their spaces differ, or the fraction is out of
            range.

    Example:
        >>> from rrl_tf.envs import make_doorkey
        >>> env = CurriculumEnv([make_doorkey(5), make_doorkey(6)])
        >>> observation, info = env.reset(seed=1, options={"level": 1})
        >>> env.unwrapped.width  # 6 in most episodes, else 5
        6

    Source: Bengio et al., "Curriculum learning" (2009).
    """

    def __init__(self, envs: Sequence[gymnasium.Env], current_fraction: float = 0.7) -> None:
        if not envs:
            raise InvalidInput("CurriculumEnv needs at least one environment, received none")
        for env in envs:
            for kind in ("observation", "action"):
                space, first = (getattr(each, f"{kind}_space") for each in (env, envs[0]))
                if space != first:
                    raise InvalidInput(
                        f"the environments of a curriculum must share one {kind} space; received "
                        f"{first.shape or first} and {space.shape or space}"
                    )
        number_from("current_fraction", current_fraction, 0, 1)
        super().__init__(envs[0])
        self.envs = tuple(envs)
        self.current_fraction = current_fraction

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of the level drawn; `options["level"]` is 0 by default.

        Raises:
            InvalidInput: if the level does not exist, or there is another option.
        """
        level = level_of(options, len(self.envs))
        # A separate stream: the environment's draws must not depend on those of the level.
        rng = np.random.default_rng(None if seed is None else (seed, 1))
        if level > 0 and rng.random() >= self.current_fraction:
            level = int(rng.integers(level))
        self.env = self.envs[level]
        return self.env.reset(seed=seed)

    def close(self) -> None:
        """Close the environments of all levels."""
        for env in self.envs:
            env.close()


def training_env(
    task: Task, num_envs: int, seed: int, reset_on_truncation: bool = True
) -> SeededVectorEnv:
    """Return parallel training environments of a task, each a `CurriculumEnv` of its levels.

    Args:
        task: task to train on.
        num_envs, seed, reset_on_truncation: as for `SeededVectorEnv`.

    Example:
        >>> from rrl_tf.envs import doorkey_task
        >>> env = training_env(doorkey_task((5, 6)), num_envs=4, seed=0)
        >>> env.reset_options = {"level": 1}
        >>> observation, info = env.reset()
        >>> observation.shape
        (4, 7, 7, 4)
    """

    def make_env():
        return CurriculumEnv([task.make_env(level) for level in range(len(task.levels))])

    return SeededVectorEnv(make_env, num_envs, seed, reset_on_truncation)


class Curriculum:
    """Holds the current level, and raises it when the level is mastered.

    Args:
        levels: number of levels.
        promote_at: success rate of an evaluation, in [0, 1], from which the level rises.

    Raises:
        InvalidInput: if a number is out of range.

    Example:
        >>> curriculum = Curriculum(levels=2)
        >>> curriculum.report(0.99), curriculum.level
        (True, 1)
    """

    def __init__(self, levels: int, promote_at: float = 0.9) -> None:
        self.levels = positive_int("levels", levels)
        self.promote_at = number_from("promote_at", promote_at, 0, 1)
        self.level = 0

    def report(self, success: float) -> bool:
        """Report the success rate on the current level; return whether the level rises."""
        promoted = success >= self.promote_at and self.level + 1 < self.levels
        self.level += promoted
        return promoted

    def get_state(self) -> dict[str, Any]:
        """Return the level as a JSON-compatible dict."""
        return {"level": self.level}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_state` returned.

        Raises:
            InvalidInput: if the level does not exist.
        """
        self.level = _checked_level(state["level"], self.levels)


def level_of(options: Mapping[str, Any] | None, levels: int) -> int:
    """Return the number of the level in the `options` of a reset, 0 by default.

    Raises:
        InvalidInput: if the level does not exist, or there is another option.

    Example:
        >>> level_of({"level": 1}, levels=2), level_of(None, levels=2)
        (1, 0)
    """
    level = reset_option("level", options)
    return 0 if level is None else _checked_level(level, levels)


def _checked_level(level, levels):
    return int(number_from("level", integer("level", level), 0, levels - 1))
