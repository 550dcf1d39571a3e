"""Windows of the last K steps: the one convention of training and acting, and their drawing.

A window holds K steps of raw values, the newest last. Where an episode has only just begun it is
padded in front with zeros, and `mask` is 1 where a step is. An agent that acts does not know the
newest step's action yet; it is zero there, and nothing that is predicted from a state sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rrl_tf._arguments import number_from, one_of, positive_int
from rrl_tf.errors import InvalidInput
from rrl_tf.offline._batches import batches_of
from rrl_tf.offline._step_weights import drawn, only_early, step_weights

if TYPE_CHECKING:
    import tensorflow as tf

    from rrl_tf.offline.episodes import Episode, OfflineData
    from rrl_tf.offline.scaling import Scaling

CONDITIONS = ("return_to_go", "return")

Window = dict[str, np.ndarray]
"""`"states"` `(B, K, ...)`, `"actions"` `(B, K, A)`, `"returns_to_go"` `(B, K, 1)`, `"timesteps"`
`(B, K)` int32 and `"mask"` `(B, K)` float32, 1 for real steps."""


def empty_windows(
    size: int,
    length: int,
    state_shape: tuple[int, ...],
    state_dtype: np.typing.DTypeLike,
    action_size: int,
) -> Window:
    """Windows that hold nothing but padding.

    Args:
        size: B.
        length: K.
        state_shape, state_dtype: of one raw observation.
        action_size: A.

    Example:

    >>> empty_windows(2, 5, (7, 7, 4), "uint8", 3)["actions"].shape
    (2, 5, 3)
    """
    return {
        "states": np.zeros((size, length, *state_shape), state_dtype),
        "actions": np.zeros((size, length, action_size), "float32"),
        "returns_to_go": np.zeros((size, length, 1), "float32"),
        "timesteps": np.zeros((size, length), "int32"),
        "mask": np.zeros((size, length), "float32"),
    }


def write_steps(
    window: Window,
    rows: int | slice,
    begin: int,
    states: np.ndarray,
    actions: np.ndarray,
    returns_to_go: np.ndarray,
) -> None:
    """Writes n <= K consecutive steps into empty windows, so that the newest comes last.

    Args:
        window: from `empty_windows`.
        rows: number of a window, or a slice of them; where it is a slice, what is written has
            a dimension of rows in front.
        begin: number of the first step in its episode.
        states: `(n, ...)`, raw.
        actions: `(n, A)`, as `action_vectors` gives them.
        returns_to_go: `(n,)`.

    Example:

    >>> window = empty_windows(1, 3, (1,), "float32", 2)
    >>> write_steps(window, 0, 7, np.ones((2, 1)), np.ones((2, 2)), np.array([5.0, 4.0]))
    >>> window["timesteps"].tolist(), window["mask"].tolist()
    ([[0, 7, 8]], [[0.0, 1.0, 1.0]])
    """
    steps = np.shape(returns_to_go)[-1]
    place = slice(window["mask"].shape[1] - steps, None)
    window["states"][rows, place] = states
    window["actions"][rows, place] = actions
    window["returns_to_go"][rows, place, 0] = returns_to_go
    window["timesteps"][rows, place] = np.arange(begin, begin + steps)
    window["mask"][rows, place] = 1.0


def action_vectors(actions: np.ndarray, action_size: int) -> np.ndarray:
    """Actions as windows hold them: discrete ones, which are integers, become one-hot.

    Args:
        actions: `(...)` integers below A, or `(..., A)` floats.
        action_size: A.

    Returns:
        `(..., A)`.

    Example:

    >>> action_vectors(np.array([2, 0]), 3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    if actions.dtype.kind not in "iu":
        return actions
    vectors = np.zeros((*actions.shape, action_size), "float32")
    np.put_along_axis(vectors, actions[..., None].astype("int64"), 1.0, axis=-1)
    return vectors


class LastSteps:
    """What an agent that plays episodes side by side has seen of their last K steps.

    Args:
        target_returns: `(E,)`, the returns that are to be reached.
        context_length: K.
        action_size: A.
        condition: `"return_to_go"`, what is still to be reached, or the whole `"return"`.

    Example:

    >>> steps = LastSteps([10.0, 20.0], context_length=3, action_size=2)
    >>> for rewards in (None, [1.0, 2.0]):
    ...     steps.add(np.zeros((2, 4), "float32"), rewards)
    ...     steps.choose(np.array([1, 0]))
    >>> steps.window()["returns_to_go"][..., 0].tolist()
    [[0.0, 10.0, 9.0], [0.0, 20.0, 18.0]]
    """

    def __init__(
        self,
        target_returns: Sequence[float] | np.ndarray,
        context_length: int,
        action_size: int,
        condition: str = "return_to_go",
    ) -> None:
        self.context_length, self.action_size = context_length, action_size
        self.condition = condition
        self._returns = np.array(target_returns, "float64")
        self._count = 0
        self._last: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._returns)

    def add(self, observations: np.ndarray, rewards: np.ndarray | None = None) -> None:
        """A new step, whose actions are not known yet.

        Args:
            observations: `(E, ...)`, raw.
            rewards: `(E,)`, what the actions before earned; not looked at in a first step.
        """
        if self._count and self.condition == "return_to_go":
            self._returns = self._returns - np.asarray(rewards)
        new = {
            "states": np.asarray(observations),
            "actions": np.zeros((len(self), self.action_size), "float32"),
            "returns_to_go": self._returns.astype("float32"),
        }
        for name, values in new.items():
            before = self._last.get(name, values[:, None][:, :0])
            after = np.concatenate([before, values[:, None]], axis=1)
            self._last[name] = after[:, -self.context_length :]
        self._count += 1

    def choose(self, actions: np.ndarray) -> None:
        """The actions of the newest step, `(E,)` indices or `(E, A)`."""
        self._last["actions"][:, -1] = action_vectors(actions, self.action_size)

    def window(self, length: int | None = None) -> Window:
        """The last `length` steps of every episode; by default K."""
        length = self.context_length if length is None else length
        last = {name: values[:, -length:] for name, values in self._last.items()}
        states = last["states"]
        window = empty_windows(len(self), length, states.shape[2:], states.dtype, self.action_size)
        write_steps(window, slice(None), self._count - states.shape[1], **last)
        return window

    def keep(self, rows: np.ndarray) -> None:
        """Goes on with some of the episodes, by mask or indices; the others have ended."""
        self._returns = self._returns[rows]
        self._last = {name: values[rows] for name, values in self._last.items()}


class Windows:
    """Draws windows of K steps, padded in front where an episode has only just begun.

    With `sampling="steps"` every step of the data is equally often the last of a window, so that
    longer episodes are drawn more often and the network meets the beginnings of episodes as it will
    when it acts. With `"returns"` a step counts for more the higher its episode's return, from
    nothing in the data's worst episode to most in its best: the network sees low returns, yet
    learns most from what it will be asked for (trajectory weighting, Hong et al., 2023). With
    `"episodes"` all episodes are equally likely, and windows are full wherever
    the episode is long enough (min-decision-transformer).

    What is drawn depends on the seed and on the batch's number alone, so that a run which resumes
    goes on with the batches it would have had.

    Args:
        data: `OfflineData`; its episodes are copied, one behind the other.
        context_length: K.
        sampling: `"steps"`, `"returns"` or `"episodes"`.
        starts: share of the windows that end within the first steps of their episode. Every
            episode that is played begins there, with nothing but the return to go by, and few
            steps of the data show how.
        start_steps: how many steps these are; by default 2 K.
        condition: what a step's `"returns_to_go"` holds: the `"return_to_go"`, or the whole
            `"return"` of its episode.
        return_power: of `"returns"`, the power of a return's share by which steps are drawn.

    References:
        - [Hong et al., 2023](https://arxiv.org/abs/2306.13085), for `"returns"`

    Raises:
        ValueError: for an argument out of its range.

    Example:

    >>> from gymnasium.spaces import Discrete
    >>> from rrl_tf.offline import Episode, OfflineData
    >>> episode = Episode(np.zeros((8, 4)), [0] * 7, [1.0] * 7, terminated=True, truncated=False)
    >>> windows = Windows(OfflineData("mine", (episode,), Discrete(2), "none"), context_length=5)
    >>> batch = windows.batch(64, seed=0)
    >>> batch["states"].shape, batch["actions"].shape
    ((64, 5, 4), (64, 5, 2))
    >>> windows.weigh(np.eye(7)[2])  # from now on all end with the episode's third step
    >>> windows.batch(1, seed=0)["mask"].tolist()
    [[0.0, 0.0, 1.0, 1.0, 1.0]]
    """

    def __init__(
        self,
        data: OfflineData,
        context_length: int,
        sampling: str = "steps",
        starts: float = 0.0,
        start_steps: int | None = None,
        condition: str = "return_to_go",
        return_power: float = 1.0,
    ) -> None:
        self.data, self.context_length = data, positive_int("context_length", context_length)
        self._starts = number_from("starts", starts, 0, 1)
        within = 2 * context_length if start_steps is None else start_steps
        self._steps = _all_steps(data, one_of("condition", condition, CONDITIONS))
        self._first_steps = np.cumsum([0, *map(len, data.episodes)])
        power = number_from("return_power", return_power, 0)
        self._within = positive_int("start_steps", within)
        self._weigh(step_weights(data, context_length, sampling, power))

    def weigh(self, factors: np.ndarray) -> None:
        """Has steps end windows more often, or less.

        Args:
            factors: `(steps,)` numbers from 0 up, by which they count for more than now; such as
                `rrl_tf.offline.advantages.advantage_weights` gives.

        Raises:
            InvalidInput: if these are not as many as steps, not finite, negative, too large to be
                summed, or all 0 where a window may end.
        """
        factors = np.asarray(factors, "float64")
        if factors.shape != (self.data.steps,):
            raise InvalidInput(
                f"expected a factor for each of {self.data.steps} steps; received {factors.shape}"
            )
        wrong = factors[~(np.isfinite(factors) & (factors >= 0))]
        if wrong.size:
            raise InvalidInput(f"factors must be finite, from 0 up; received {wrong[0]}")
        with np.errstate(over="ignore"):  # it is told below
            weights = self._weights * factors
        if not weights.any():
            raise InvalidInput("some factors must be greater than 0; received none")
        self._weigh(weights)

    def _weigh(self, weights):
        with np.errstate(over="ignore", invalid="ignore"):
            early = only_early(weights, self._first_steps, self._within)
            ends, early_ends = np.cumsum(weights), np.cumsum(early)
        if not np.isfinite([ends[-1], early_ends[-1]]).all():
            raise InvalidInput(
                "the sum of the factors must be finite, times those before; received up to "
                f"{weights.max():.3g}"
            )
        self._weights, self._ends, self._early_ends = weights, ends, early_ends

    def batch(self, size: int, seed: int | Sequence[int]) -> Window:
        """`size` windows, as a dict of arrays.

        Args:
            size: B.
            seed: int, or a sequence of them.

        Returns:
            `Window` of raw values; actions are one-hot where they are discrete.
        """
        rng = np.random.default_rng(seed)
        place, is_early = rng.random(size), rng.random(size) < self._starts
        step = np.where(is_early, drawn(self._early_ends, place), drawn(self._ends, place))
        episode = np.searchsorted(self._first_steps, step, side="right") - 1
        return self.windows(episode, step - self._first_steps[episode])

    def check_batch(self, size: int) -> None:
        """Raises `InvalidInput` if `size` windows do not fit in memory; nothing is drawn."""
        states = self.data.episodes[0].observations
        try:
            empty_windows(
                size, self.context_length, states.shape[1:], states.dtype, self.data.action_size
            )
        except (MemoryError, ValueError, OverflowError) as error:  # ValueError: beyond 64 bits
            raise InvalidInput(
                f"batch_size windows must fit in memory ({error}); received {size}"
            ) from error

    def windows(
        self, episodes: Sequence[int] | np.ndarray, last: Sequence[int] | np.ndarray
    ) -> Window:
        """The windows of given episodes that end with given steps, as `batch` returns them."""
        numbers, begins = np.asarray(last), self._first_steps[np.asarray(episodes)]
        timesteps = numbers[:, None] + np.arange(1 - self.context_length, 1)
        is_real = timesteps >= 0
        timesteps = np.maximum(timesteps, 0)
        window = {name: steps[begins[:, None] + timesteps] for name, steps in self._steps.items()}
        for values in window.values():
            values[~is_real] = 0
        return {
            **window,
            "timesteps": timesteps.astype("int32"),
            "mask": is_real.astype("float32"),
        }

    def dataset(
        self, size: int, scaling: Scaling, seed: int = 0, first: int = 0, output: str = "action"
    ) -> tf.data.Dataset:
        """An endless `tf.data.Dataset` of `(inputs, targets, weights)` for `fit`.

        Args:
            size: B.
            scaling: `Scaling` that prepares the windows.
            seed: int.
            first: number of the first batch: the updates that were made before.
            output: of the network, that is to tell the actions.
        """
        return batches_of(lambda: (self, first), size, scaling, seed, output)


def _all_steps(data: OfflineData, condition: str) -> dict[str, np.ndarray]:
    """What a window shows of every step of the data, `(steps, ...)` each."""
    actions = np.concatenate([episode.actions for episode in data.episodes])
    returns = np.concatenate([_conditions(episode, condition) for episode in data.episodes])
    largest, most = np.abs(returns).max(), np.finfo("float32").max
    if largest > most:
        raise InvalidInput(
            f"{data.name}: returns must be within {most:.3g}; received {largest:.3g}"
        )
    return {
        "states": np.concatenate([episode.observations[:-1] for episode in data.episodes]),
        "actions": action_vectors(actions, data.action_size).astype("float32"),
        "returns_to_go": returns.astype("float32")[:, None],
    }


def _conditions(episode: Episode, condition: str) -> np.ndarray:
    """What every step of an episode is told, `(T,)`."""
    if condition == "return":
        return np.full(len(episode), episode.total)
    return episode.returns_to_go()
