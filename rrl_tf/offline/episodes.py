"""Define `Episode`, `OfflineData` (a dataset of episodes) and `RecordedEnv`."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf._arguments import finite, number_from
from rrl_tf.envs.checks import CheckedEnv
from rrl_tf.errors import InvalidInput

MAX_ACTIONS = 2**16
"""Largest number of discrete actions. More actions indicate a mistake in the data, and would make
the one-hot actions in windows too large."""


@dataclasses.dataclass(frozen=True)
class Episode:
    """One recorded episode of T steps.

    Sequences are converted to arrays. Arrays are not copied.

    Attributes:
        observations: `(T + 1, ...)`, including the observation after the last step.
        actions: `(T, A)` numbers, or `(T,)` integers if actions are discrete.
        rewards: `(T,)`.
        terminated: whether the environment ended the episode.
        truncated: whether a time limit or the end of the recording ended it.

    Raises:
        InvalidInput: if the episode is empty, if the lengths do not match, or if a value is not a
            number or not finite in float32, or if the sum of the absolute rewards is not.

    Example:
        >>> episode = Episode(np.zeros((3, 4)), [0, 1], [1.0, 1.0], True, truncated=False)
        >>> episode
        <Episode of 2 steps, return 2, terminated>
        >>> episode.returns_to_go()
        array([2., 1.])
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: bool
    truncated: bool

    def __post_init__(self) -> None:
        for name in ("observations", "actions", "rewards"):
            # A frozen dataclass does not allow normal assignment.
            object.__setattr__(self, name, _numeric_array(name, getattr(self, name)))
        steps = len(self.rewards)
        if steps == 0:
            raise InvalidInput("an episode must have at least one step; received none")
        if len(self.observations) != steps + 1 or len(self.actions) != steps:
            raise InvalidInput(
                f"an episode of {steps} rewards must have {steps + 1} observations and {steps} "
                f"actions; received {len(self.observations)} and {len(self.actions)}"
            )
        if self.rewards.ndim != 1:
            raise InvalidInput(f"rewards must be (T,); received the shape {self.rewards.shape}")
        finite("the sum of absolute rewards", np.abs(self.rewards).sum(keepdims=True, dtype=float))

    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        flags = [name for name in ("terminated", "truncated") if getattr(self, name)]
        end = " and ".join(flags) or "unfinished"
        return f"<Episode of {_count(len(self), 'step')}, return {self.total:.6g}, {end}>"

    def returns_to_go(self) -> np.ndarray:
        """Return the undiscounted sum of rewards from each step to the end, `(T,)` float64."""
        return np.cumsum(self.rewards[::-1], dtype="float64")[::-1]

    @property
    def total(self) -> float:
        """The return of the episode."""
        return float(np.sum(self.rewards, dtype="float64"))


class RecordedEnv(CheckedEnv):
    """Environment wrapper that checks and records the current episode.

    Example:
        >>> env = RecordedEnv(gymnasium.make("CartPole-v1"))
        >>> _ = env.reset(seed=0), env.step(1)
        >>> len(env.episode())
        1
    """

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(**options)
        self._observations = [observation]
        self._actions: list[Any] = []
        self._rewards: list[float] = []
        self._end = (False, False)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        self._observations.append(observation)
        self._actions.append(action)
        self._rewards.append(float(reward))
        self._end = (terminated, truncated)
        return observation, reward, terminated, truncated, info

    def episode(self) -> Episode:
        """Return the steps since the last reset as an `Episode`."""
        return Episode(
            np.array(self._observations),
            np.array(self._actions),
            np.array(self._rewards),
            *self._end,
        )


@dataclasses.dataclass(frozen=True)
class OfflineData:
    """Episodes of one environment.

    Integers become float32 where floats are expected: actions in a `Box`, and observations if other
    episodes or the observation space have floats.

    Attributes:
        name: the source of the episodes, as passed to `load_episodes`.
        episodes: tuple of `Episode`.
        action_space: `Discrete` that starts at 0, or a bounded `Box` of vectors.
        environment: name of the environment, for tables.
        make_env: function that creates the environment, or None if the environment is unknown.
        observation_space: space of the raw observations, or None if the format does not store it.
        reference_returns: mean returns of a random policy and of an expert, which define D4RL
            scores, or None for data that is not from D4RL.

    Raises:
        InvalidInput: if there are no episodes, their shapes differ, or an action is outside the
            action space by more than float32 rounding.

    Example:
        >>> episode = Episode(np.zeros((8, 4)), [0] * 7, [1.0] * 7, True, truncated=False)
        >>> data = OfflineData("mine", (episode,), Discrete(2), "CartPole-v1")
        >>> data.steps, data.returns()
        (7, array([7.]))
    """

    name: str
    episodes: tuple[Episode, ...]
    action_space: Discrete | Box
    environment: str
    make_env: Callable[[], gymnasium.Env] | None = None
    observation_space: gymnasium.Space | None = None
    reference_returns: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not self.episodes:
            raise InvalidInput(f"{self.name} must have episodes; received none")
        check_action_space(self.name, self.action_space)
        bounds = _action_bounds(self.action_space)
        expected = _step_shapes(self.episodes[0])
        for i, episode in enumerate(self.episodes):
            if (received := _step_shapes(episode)) != expected:
                raise InvalidInput(
                    f"{self.name}: observations and actions of episode {i} must have the shapes of "
                    f"episode 0, {expected}; received {received}"
                )
            _check_actions(f"{self.name}, episode {i}", episode.actions, self.action_space, *bounds)
        # A frozen dataclass does not allow normal assignment.
        object.__setattr__(self, "episodes", tuple(self._with_floats()))

    def _with_floats(self) -> Iterator[Episode]:
        """Yield the episodes, with integers converted to floats where floats are expected."""
        space = self.observation_space
        kinds = {episode.observations.dtype.kind for episode in self.episodes}
        observed = (isinstance(space, Box) and space.dtype.kind == "f") or "f" in kinds
        for episode in self.episodes:
            changes = {
                name: getattr(episode, name).astype("float32")
                for name, expected in (("observations", observed), ("actions", not self.discrete))
                if expected and getattr(episode, name).dtype.kind in "iu"
            }
            yield dataclasses.replace(episode, **changes) if changes else episode

    def __repr__(self) -> str:
        returns, kind = self.returns(), "discrete" if self.discrete else "continuous"
        return (
            f"<OfflineData {self.name!r} of {self.environment}: "
            f"{_count(len(self.episodes), 'episode')}, {_count(self.steps, 'step')}, "
            f"mean return {returns.mean():.6g}, best {returns.max():.6g}, "
            f"{_count(self.action_size, f'{kind} action')}>"
        )

    @property
    def discrete(self) -> bool:
        """Whether actions are discrete."""
        return isinstance(self.action_space, Discrete)

    @property
    def action_size(self) -> int:
        """A, the number of discrete actions or the size of a continuous action."""
        space = self.action_space
        return int(space.n) if isinstance(space, Discrete) else space.shape[0]

    @property
    def steps(self) -> int:
        """Number of steps of all episodes."""
        return sum(map(len, self.episodes))

    def returns(self) -> np.ndarray:
        """Compute the return of each episode, `(M,)`."""
        return np.array([episode.total for episode in self.episodes])

    def actions_at_bounds(self) -> np.ndarray:
        """Return the fraction of actions that are at a bound, for each dimension, `(A,)`.

        An action is at a bound if it differs from the bound by at most a millionth of the interval
        between the bounds. Many actions are at the bounds if the recorder clipped noisy actions. A
        model that is trained with a mean squared error then predicts actions that are too small.
        The fraction is 0 for a dimension whose bounds are equal.

        Raises:
            InvalidInput: if actions are discrete.
        """
        space = self.action_space
        if isinstance(space, Discrete):
            raise InvalidInput(f"the actions of {self.name} must be continuous; received {space}")
        actions = np.concatenate([episode.actions for episode in self.episodes]).astype("float64")
        low, high = space.low.astype("float64"), space.high.astype("float64")
        margin = 1e-6 * (high - low)
        at_bounds = (actions <= low + margin) | (actions >= high - margin)
        return (at_bounds & (high > low)).mean(axis=0)

    def warn_of_bounds(self) -> None:
        """Warn if more than 5 % of the actions in a dimension are at its bounds."""
        if self.discrete or (largest := self.actions_at_bounds().max()) <= 0.05:
            return
        warnings.warn(
            f"{self.name}: {largest:.0%} of the actions of a dimension are at their bounds, so a "
            "model that learns with a squared error predicts too small actions. Use "
            "distribution=censored_normal.",
            stacklevel=2,
        )

    def best(self, fraction: float) -> OfflineData:
        """Return the episodes with the highest returns that contain a fraction of all steps.

        Args:
            fraction: in (0, 1].
        """
        if not 0 < fraction <= 1:
            raise InvalidInput(f"`fraction` must be in (0, 1]; received {fraction!r}")
        order = np.argsort(-self.returns(), kind="stable")
        steps = np.cumsum([len(self.episodes[i]) for i in order])
        count = int(np.searchsorted(steps, fraction * steps[-1])) + 1
        return self._subset(order[:count])

    def split(self, held_out: float) -> tuple[OfflineData, OfflineData]:
        """Split the episodes into a training and a held-out part, always in the same way.

        Args:
            held_out: fraction of the episodes in the held-out part. It has at least one episode.

        Returns:
            `(training, held_out)`, both in the order of the dataset.

        Raises:
            InvalidInput: if no training episodes remain.
        """
        number_from("held_out", held_out, 0, 1)
        count = max(1, round(held_out * len(self.episodes)))
        if count >= len(self.episodes):
            raise InvalidInput(
                f"{self.name} must have more episodes to hold out {held_out:g} of them; received "
                f"{len(self.episodes)}"
            )
        order = np.random.default_rng(0).permutation(len(self.episodes))
        return self._subset(np.sort(order[count:])), self._subset(np.sort(order[:count]))

    def _subset(self, indices: Sequence[int] | np.ndarray) -> OfflineData:
        return dataclasses.replace(self, episodes=tuple(self.episodes[i] for i in indices))

    def score(self, value: float) -> float:
        """Return the D4RL score of a return: 0 for a random policy, 100 for the expert.

        Raises:
            InvalidInput: for data without reference returns.
        """
        if self.reference_returns is None:
            raise InvalidInput(f"the data must be from D4RL to have scores; received {self.name}")
        low, high = self.reference_returns
        return 100.0 * (value - low) / (high - low)


def check_action_space(name: str, space: gymnasium.Space) -> None:
    """Raise `InvalidInput` unless `OfflineData` supports the action space."""
    if isinstance(space, Discrete) and space.start == 0 and space.n <= MAX_ACTIONS:
        return
    if not isinstance(space, Box) or len(space.shape) != 1 or not space.is_bounded():
        raise InvalidInput(
            f"{name}: the action space must be a Discrete that starts at 0 and has at most "
            f"{MAX_ACTIONS} actions, or a bounded Box of vectors; received {space}"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _step_shapes(episode: Episode) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return episode.observations.shape[1:], episode.actions.shape[1:]


def _numeric_array(name: str, values: Any) -> np.ndarray:
    """Convert values to an array with numbers for each step that are finite in float32."""
    try:
        values = np.asarray(values)
    except (RuntimeError, TypeError, ValueError) as error:  # for example, rows of different lengths
        raise InvalidInput(f"{name} must be numbers; received {error}") from error
    if values.dtype.kind not in "biuf" or not values.ndim or 0 in values.shape[1:]:
        raise InvalidInput(
            f"{name} must be numbers for each step; received the dtype {values.dtype} and the "
            f"shape {values.shape}"
        )
    return finite(name, values) if values.dtype.kind == "f" else values


def _action_bounds(space: Discrete | Box) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest valid action."""
    if isinstance(space, Discrete):
        return np.array(0), np.array(space.n - 1)
    low, high = space.low.astype("float64"), space.high.astype("float64")
    # Recorded actions and bounds may have been rounded to float32 differently.
    rounding = 1e-6 * np.maximum(np.abs(low), np.abs(high))
    return low - rounding, high + rounding


def _check_actions(
    name: str, actions: np.ndarray, space: Discrete | Box, low: np.ndarray, high: np.ndarray
) -> None:
    is_discrete = isinstance(space, Discrete)
    form, kinds = ("(T,) integers", "iu") if is_discrete else ("(T, A) floats", "iuf")
    if actions.shape[1:] != space.shape or actions.dtype.kind not in kinds:
        raise InvalidInput(
            f"{name}: actions must be in {space}, {form}; received the dtype {actions.dtype} and "
            f"the shape {actions.shape}"
        )
    outside = (actions < low) | (actions > high)
    if outside.any():
        step, *dimension = np.argwhere(outside)[0].tolist()
        place = f"dimension {dimension[0]} of step {step}" if dimension else f"step {step}"
        raise InvalidInput(
            f"{name}: actions must be in {space}; received {actions[(step, *dimension)]!s} in "
            f"{place}"
        )
