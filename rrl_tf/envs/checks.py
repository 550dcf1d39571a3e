"""Check that environments return what their spaces declare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from rrl_tf.errors import InvalidInput

_LARGEST = float(np.finfo(np.float32).max)
_PYTHON_NUMBERS = {float, int, np.float64}


class ArrayCheck:
    """Converts values to arrays of a declared shape and dtype, or raises an error.

    - The shape must be the declared one; nothing is broadcast.
    - The conversion to an integer or bool dtype must not change a number: 200 and 200.0 become
      uint8, but 300 and 1.9 are errors. Floats may be rounded.
    - Floats must be finite in float32.

    Args:
        name: subject of the error message, such as `"the observation"`.
        shape: declared shape of one value.
        dtype: declared dtype, a number or bool type.
        any_shape: whether a value of a different shape is accepted and reshaped if it has the right
            size. Environments may return a reward as an array of shape `(1,)`.

    Example:
        >>> check = ArrayCheck("the observation", (2,), "uint8")
        >>> check([1, 200], lambda: "environment 0 in step 7")
        array([  1, 200], dtype=uint8)
        >>> check([1, 300], lambda: "environment 0 in step 7")
        Traceback (most recent call last):
        rrl_tf.errors.InvalidInput: the observation must be uint8 of shape (2,); received int64 of \
shape (2,) with 300 from environment 0 in step 7
    """

    def __init__(
        self, name: str, shape: Sequence[int], dtype: Any, any_shape: bool = False
    ) -> None:
        self.name = name
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.any_shape = any_shape

    def __call__(self, value: Any, place: Callable[[], str]) -> np.ndarray:
        """Return one value as an array.

        Args:
            value: array, number or nested list.
            place: function that returns where the value comes from, for the error message.

        Raises:
            InvalidInput: if the value does not have the declared shape or dtype, or is not finite.
        """
        array = self._converted(value, self.shape)
        if array is None:
            finite = "finite " if self.dtype.kind == "f" else ""
            raise InvalidInput(
                f"{self.name} must be {finite}{self.dtype} of shape {self.shape}; received "
                f"{self._received(value)} from {place()}"
            )
        return array

    def batch(self, values: Any, count: int, place: Callable[[int], str]) -> np.ndarray:
        """Return the values of `count` environments as one array `(count, ...)`.

        Args:
            values: sequence with one value of each environment.
            count: number of environments.
            place: function from the number of an environment to the place of its value.

        Raises:
            InvalidInput: as for a single value, or if the number of values is not `count`.
        """
        array = self._numbers(values) if self.any_shape and np.iterable(values) else None
        if array is None or len(array) != count:
            array = self._converted(values, (count, *self.shape))
        if array is not None:
            return array
        rows = list(values) if np.iterable(values) else []
        if len(rows) != count:
            raise InvalidInput(
                f"{self.name} must be {count} values, one of each environment; received {values!r}"
            )
        # Convert one by one: the message names the environment, and a mixture may be valid.
        return np.stack([self(value, partial(place, i)) for i, value in enumerate(rows)])

    def number(self, value: Any, place: Callable[[], str]) -> Any:
        """Return a reward as a float, which is not rounded to float32, or a flag as a bool.

        Args:
            value, place: as for `__call__`.
        """
        self(value, place)
        value = np.asarray(value).item()
        return bool(value) if self.dtype.kind == "b" else float(value)

    def _numbers(self, values):
        """Return Python numbers as an array; None if `_converted` has to examine the values.

        Rewards and flags are mostly Python numbers, for which this takes a quarter of the time.
        """
        types = set(map(type, values))
        if self.dtype.kind == "b":
            return np.array(values, bool) if types == {bool} else None
        # The sum is small only if each number is; nan and inf make the comparison false.
        is_finite = types <= _PYTHON_NUMBERS and sum(map(abs, values)) <= _LARGEST
        return np.array(values, self.dtype) if is_finite else None

    def _converted(self, value, shape):
        """Return the value as an array of the given shape, or None if it cannot be converted."""
        try:
            array = np.asarray(value)
        except (RuntimeError, TypeError, ValueError):  # for example, rows of different lengths
            return None
        if array.shape != shape:
            if not self.any_shape or array.size != np.prod(shape):
                return None
            array = array.reshape(shape)
        if array.dtype != self.dtype:
            if array.dtype.kind not in "biuf":
                return None
            is_safe = self.dtype.kind != "f" and np.can_cast(array.dtype, self.dtype)
            if not is_safe and not self._kept(array).all():
                return None
            array = array.astype(self.dtype)
        elif self.dtype.kind == "f" and not _all_finite(array):
            return None
        return array

    def _kept(self, array):
        """Return a bool array: which numbers the conversion to the declared dtype keeps."""
        if self.dtype.kind == "f":
            # nan makes the comparison false. NumPy would convert a Python float to float16.
            return np.abs(array) <= np.float64(_LARGEST)
        with np.errstate(invalid="ignore"):
            return array.astype(self.dtype) == array

    def _received(self, value):
        """Describe a value that cannot be converted, with its first wrong number if it has one."""
        try:
            array = np.asarray(value)
        except (RuntimeError, TypeError, ValueError) as error:
            return f"{type(value).__name__} ({error})"
        text = f"{array.dtype} of shape {array.shape}"
        same_shape = array.shape == self.shape or (self.any_shape and array.size == 1)
        if not same_shape or array.dtype.kind not in "biuf":
            return text
        return f"{text} with {array[~self._kept(array)].flat[0]!s}"


def _all_finite(array):
    """Return whether all floats are finite in float32."""
    finite = np.abs(array) <= _LARGEST if array.itemsize > 4 else np.isfinite(array)
    return np.count_nonzero(finite) == array.size  # faster than `finite.all()` for few numbers


def observation_check(space: gymnasium.Space) -> ArrayCheck:
    """Return an `ArrayCheck` for the observations of a space.

    Raises:
        InvalidInput: if the space does not contain numeric arrays.
    """
    if space.shape is None or space.dtype is None or np.dtype(space.dtype).kind not in "biuf":
        raise InvalidInput(
            "the observation space must have a shape and a numeric dtype, for instance with "
            f"gymnasium.wrappers.FlattenObservation; received {space}"
        )
    return ArrayCheck("the observation", space.shape, space.dtype)


REWARD = ArrayCheck("the reward", (), np.float32, any_shape=True)
"""The check of a reward: a number, or an array with exactly one number."""


def flag_check(name: str) -> ArrayCheck:
    """Return the check of a flag: a bool, 0 or 1, or an array with exactly one such element."""
    return ArrayCheck(name, (), bool, any_shape=True)


TERMINATED, TRUNCATED = flag_check("`terminated`"), flag_check("`truncated`")
INFO_FLAGS = {name: flag_check(f"`info[{name!r}]`") for name in ("success", "life_lost")}


class CheckedEnv(gymnasium.Wrapper):
    """Converts what an environment returns to the declared types, or raises an error.

    Observations become arrays of the observation space's shape and dtype, rewards floats, flags
    bools. `spec` is that of the wrapped environment, because the episodes are the same.

    Raises:
        InvalidInput: if observations are not arrays. Later, `reset` and `step` raise it for a value
            that is not finite, or whose shape or dtype is wrong; see `ArrayCheck`.

    Example:
        >>> env = CheckedEnv(gymnasium.make("CartPole-v1"))
        >>> observation, info = env.reset(seed=0)
        >>> observation.dtype
        dtype('float32')
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._check = observation_check(env.observation_space)
        self._steps = 0

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """The `spec` of the wrapped environment."""
        return self.env.spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode and check the observation."""
        self._steps = 0
        observation, info = self.env.reset(seed=seed, options=options)
        return self._check(observation, self._place)[()], info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step and check its results; `info["success"]` becomes a bool if it is not None."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        observation = self._check(observation, self._place)[()]  # a number if the shape is ()
        if info.get("success") is not None:
            success = INFO_FLAGS["success"].number(info["success"], self._place)
            info = {**info, "success": success}
        terminated = TERMINATED.number(terminated, self._place)
        truncated = TRUNCATED.number(truncated, self._place)
        return observation, REWARD.number(reward, self._place), terminated, truncated, info

    def _place(self):
        return f"{name_of(self.env)} in step {self._steps}"


def name_of(env: Any) -> str:
    """Return the id of an environment, or the name of its class if it is not registered.

    Args:
        env: Gymnasium environment, or a `GraphEnv`.
    """
    spec = getattr(env, "spec", None)
    return spec.id if spec else type(getattr(env, "unwrapped", env)).__name__


def require_equal_spaces(subject: str, envs: Sequence[Any]) -> None:
    """Raise `InvalidInput` if there is no environment, or their spaces or bounds differ.

    Args:
        subject: what contains the environments, for the error message.
        envs: Gymnasium environments, or `GraphEnv`s.
    """
    spaces = [(env.observation_space, env.action_space) for env in envs]
    if not spaces or any(each != spaces[0] for each in spaces):
        # The bounds of a grid fill a page.
        found = (
            f"{name_of(env)}: {observation.shape or observation}, {action}"
            for env, (observation, action) in zip(envs, spaces)
        )
        raise InvalidInput(
            f"{subject} must contain one or more environments with equal spaces and bounds; "
            f"received {'; '.join(dict.fromkeys(found)) or 'none'}"
        )
