"""Episodes, and what a data set of them is."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf._arguments import number_from
from rrl_tf.errors import InvalidInput

MOST_ACTIONS = 2**16
"""Of a discrete space: windows hold a number for each, and more are a mistake in the data."""


@dataclasses.dataclass(frozen=True)
class Episode:
    """One episode of T steps, as it was played.

    Lists and the like become arrays; arrays stay as they are, and are not copied.

    Attributes:
        observations: `(T + 1, ...)`, the one after the last step included.
        actions: `(T, A)` floats, or `(T,)` integers of discrete ones.
        rewards: `(T,)`.
        terminated: whether the environment ended it.
        truncated: whether a time limit did, or the recording.

    Raises:
        ValueError: if it is empty, the lengths do not belong together, or something in it is no
            number that is finite in float32.

    Example:

    >>> episode = Episode(np.zeros((3, 4)), [0, 1], [1.0, 1.0], terminated=True, truncated=False)
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
            # The way to write into a frozen dataclass.
            object.__setattr__(self, name, _as_numbers(name, getattr(self, name)))
        steps = len(self.rewards)
        if steps == 0:
            raise InvalidInput("an episode must have at least one step; received none")
        if len(self.observations) != steps + 1 or len(self.actions) != steps:
            raise InvalidInput(
                f"an episode of {steps} rewards needs {steps + 1} observations and {steps} "
                f"actions; received {len(self.observations)} and {len(self.actions)}"
            )
        if np.ndim(self.rewards) != 1:
            raise InvalidInput(f"rewards must be (T,); received {np.shape(self.rewards)}")

    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        ends = [name for name in ("terminated", "truncated") if getattr(self, name)]
        ended = " and ".join(ends) or "under way"
        return f"<Episode of {_count(len(self), 'step')}, return {self.total:.6g}, {ended}>"

    def returns_to_go(self) -> np.ndarray:
        """Sum of the rewards from every step to the end, undiscounted, `(T,)` float64."""
        return np.cumsum(self.rewards[::-1], dtype="float64")[::-1]

    @property
    def total(self) -> float:
        """The episode's return."""
        return float(np.sum(self.rewards, dtype="float64"))


class RecordedEnv(gymnasium.Wrapper):
    """An environment that keeps the episode under way.

    Example:

    >>> env = RecordedEnv(gymnasium.make("CartPole-v1"))
    >>> _ = env.reset(seed=0), env.step(1)
    >>> len(env.episode())
    1
    """

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        self._observations = [observation]
        self._actions: list[Any] = []
        self._rewards: list[float] = []
        self._ended = (False, False)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._observations.append(observation)
        self._actions.append(action)
        self._rewards.append(float(reward))
        self._ended = (bool(terminated), bool(truncated))
        return observation, reward, terminated, truncated, info

    def episode(self) -> Episode:
        """The steps since the last reset."""
        return Episode(
            np.array(self._observations),
            np.array(self._actions),
            np.array(self._rewards),
            *self._ended,
        )


@dataclasses.dataclass(frozen=True)
class OfflineData:
    """Episodes of one environment.

    Attributes:
        name: where they come from, as `load_episodes` was asked for them.
        episodes: tuple of `Episode`.
        action_space: `Discrete`, starting at 0, or a bounded `Box` of vectors.
        environment: name of the environment, for tables.
        make_env: function without arguments → that environment, or None where it is not known.
        observation_space: of the raw observations, or None where the format does not tell.
        reference_returns: returns of a random and of an expert policy that D4RL scores are relative
            to, or None for data that is not D4RL's.

    Raises:
        ValueError: if there are no episodes, they do not belong together, or an action is not one
            of the space; float32's rounding may leave its bounds.

    Example:
        >>> ended = {"terminated": True, "truncated": False}
        >>> episode = Episode(np.zeros((8, 4)), actions=[0] * 7, rewards=[1.0] * 7, **ended)
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
        _check_action_space(self.name, self.action_space)
        bounds, first = _bounds(self.action_space), self.episodes[0]
        for i, episode in enumerate(self.episodes):
            shapes = [(e.observations.shape[1:], e.actions.shape[1:]) for e in (first, episode)]
            if shapes[0] != shapes[1]:
                raise InvalidInput(
                    f"{self.name}: observations and actions of episode {i} must have the shapes of "
                    f"episode 0, {shapes[0]}; received {shapes[1]}"
                )
            where = f"{self.name}, episode {i}"
            _check_actions(where, episode.actions, self.action_space, *bounds)

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
        """Whether the actions are indices."""
        return isinstance(self.action_space, Discrete)

    @property
    def action_size(self) -> int:
        """A, the number of discrete actions or the size of a continuous one."""
        space = self.action_space
        return int(space.n) if isinstance(space, Discrete) else space.shape[0]

    @property
    def steps(self) -> int:
        """Number of steps of all episodes."""
        return sum(map(len, self.episodes))

    def returns(self) -> np.ndarray:
        """Return of every episode, `(M,)`."""
        return np.array([episode.total for episode in self.episodes])

    def actions_at_bounds(self) -> np.ndarray:
        """Share of the steps whose action sits at one of its bounds, per dimension, `(A,)`.

        An action counts that is less than a millionth of the interval away, or beyond. Where noise
        was clipped there are many, and a mean squared error learns a mean that is too small. It
        learns the one value of a dimension that has no other, where none counts.

        Raises:
            ValueError: if the actions are discrete.
        """
        space = self.action_space
        if isinstance(space, Discrete):
            raise InvalidInput(f"only continuous actions have bounds; received {self.name}")
        actions = np.concatenate([episode.actions for episode in self.episodes]).astype("float64")
        low, high = space.low.astype("float64"), space.high.astype("float64")
        near = 1e-6 * (high - low)
        at_bounds = (actions <= low + near) | (actions >= high - near)
        return (at_bounds & (high > low)).mean(axis=0)

    def warn_of_bounds(self, most: float = 0.05) -> None:
        """Warns in a line if more than this share of a dimension's actions sit at its bounds.

        Args:
            most: the share that is not worth a word.
        """
        if self.discrete or (largest := self.actions_at_bounds().max()) <= most:
            return
        warnings.warn(
            f"{self.name}: {largest:.0%} of the actions of a dimension sit at their bounds; a "
            "squared error learns too small a mean of them, distribution=censored_normal does not",
            stacklevel=2,
        )

    def best(self, share: float) -> OfflineData:
        """The data of the best episodes: so many that they hold a `share` of all steps.

        Args:
            share: in (0, 1].

        Raises:
            ValueError: if it is not.
        """
        if not 0 < share <= 1:
            raise InvalidInput(f"share must be in (0, 1]; received {share!r}")
        order = np.argsort(-self.returns(), kind="stable")
        steps = np.cumsum([len(self.episodes[i]) for i in order])
        count = int(np.searchsorted(steps, share * steps[-1])) + 1
        kept = tuple(self.episodes[i] for i in order[:count])
        return dataclasses.replace(self, episodes=kept)

    def split(self, held_out: float) -> tuple[OfflineData, OfflineData]:
        """The data without some episodes, and those: always the same ones of the same data.

        Args:
            held_out: share of the episodes in the second part; it has at least one.

        Returns:
            `(training, held out)`, both in the order of the whole.

        Raises:
            ValueError: if it is no share, or nothing is left to train on.
        """
        number_from("held_out", held_out, 0, 1)
        count = max(1, round(held_out * len(self.episodes)))
        if count >= len(self.episodes):
            raise InvalidInput(
                f"{self.name}: to hold out {held_out:g} of the episodes needs more of them; "
                f"received {len(self.episodes)}"
            )
        order = np.random.default_rng(0).permutation(len(self.episodes))
        training, rest = (
            dataclasses.replace(self, episodes=tuple(self.episodes[i] for i in np.sort(part)))
            for part in (order[count:], order[:count])
        )
        return training, rest

    def score(self, value: float) -> float:
        """The D4RL score of a return: 0 as good as random play, 100 as the expert.

        Raises:
            ValueError: for data without reference returns.
        """
        if self.reference_returns is None:
            raise InvalidInput(f"only D4RL's data have scores; received {self.name}")
        low, high = self.reference_returns
        return 100.0 * (value - low) / (high - low)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _as_numbers(name: str, values: Any) -> np.ndarray:
    """An array of one or several numbers a step, finite in float32, or an `InvalidInput`."""
    try:
        values = np.asarray(values)
    except (RuntimeError, TypeError, ValueError) as error:  # rows of different lengths
        raise InvalidInput(f"{name} must be numbers of every step; received {error}") from error
    if values.dtype.kind not in "biuf" or not values.ndim or 0 in values.shape[1:]:
        raise InvalidInput(
            f"{name} must be numbers of every step; received the dtype {values.dtype} and the "
            f"shape {values.shape}"
        )
    if values.dtype.kind != "f" or not values.size:
        return values
    most = np.finfo("float32").max  # what networks compute with
    if not (values.min() >= -most and values.max() <= most):  # nor is nan
        where = np.argwhere(~(np.abs(values) <= most))[0].tolist()
        raise InvalidInput(
            f"{name} must be finite in float32; received {values[tuple(where)]!s} at {where}"
        )
    return values


def _check_action_space(name: str, space: gymnasium.Space) -> None:
    if isinstance(space, Discrete) and space.start == 0 and space.n <= MOST_ACTIONS:
        return
    if not isinstance(space, Box) or len(space.shape) != 1 or not space.is_bounded():
        raise InvalidInput(
            f"{name}: actions must be of a Discrete space that starts at 0 and has at most "
            f"{MOST_ACTIONS} of them, or of a bounded Box of vectors; received {space}"
        )


def _bounds(space: Discrete | Box) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most that an action may be."""
    if isinstance(space, Discrete):
        return np.array(0), np.array(space.n - 1)
    low, high = space.low.astype("float64"), space.high.astype("float64")
    # What was recorded and what the space tells may be rounded to float32 by different ways.
    rounding = 1e-6 * np.maximum(np.abs(low), np.abs(high))
    return low - rounding, high + rounding


def _check_actions(
    name: str, actions: np.ndarray, space: Discrete | Box, least: np.ndarray, most: np.ndarray
) -> None:
    form, kind = ("(T,) integers", "iu") if isinstance(space, Discrete) else ("(T, A) floats", "f")
    if actions.shape[1:] != space.shape or actions.dtype.kind not in kind:
        raise InvalidInput(
            f"{name}: actions must be of the space {space}, {form}; received the dtype "
            f"{actions.dtype} and the shape {actions.shape}"
        )
    beyond = (actions < least) | (actions > most)
    if beyond.any():
        step, *dimension = np.argwhere(beyond)[0].tolist()
        place = f"dimension {dimension[0]} of step {step}" if dimension else f"step {step}"
        raise InvalidInput(
            f"{name}: actions must be of the space {space}; received "
            f"{actions[(step, *dimension)]!s} in {place}"
        )
