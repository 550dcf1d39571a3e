"""Estimate the advantages of recorded steps, and sample steps with large advantages more often.

Example:
    Action 1 receives a reward and action 0 does not, so action 1 is sampled more often:

    >>> from gymnasium.spaces import Discrete
    >>> from rrl_tf.offline import Episode
    >>> episodes = tuple(Episode(np.zeros((2, 1)), [a], [float(a)], True, False) for a in (0, 1))
    >>> data = OfflineData("two arms", episodes, Discrete(2), "none")
    >>> found = advantages(data, Scaling.of(data))
    >>> (found > 0).tolist()
    [False, True]
    >>> windows = Windows(data, context_length=1)
    >>> windows.reweight(advantage_weights(found, power=1.0))
    >>> windows.batch(1000, seed=0)["actions"].mean(axis=(0, 1)).round(1)
    array([0.1, 0.9], dtype=float32)
"""

from __future__ import annotations

import functools

import keras
import numpy as np
from keras import ops

from rrl_tf._arguments import number_from, positive_int, random_generator
from rrl_tf._typing import Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.offline.episodes import OfflineData
from rrl_tf.offline.scaling import Scaling, within_rounding
from rrl_tf.offline.windows import Windows

MAX_WEIGHT = 20.0
"""Upper bound of the weight of a step. A step whose advantage is 0 has the weight 1."""
MAX_MEAN = 5.0
"""Largest mean of the returns, in standard deviations, that the value network learns. A larger mean
is subtracted first, because the network starts at 0 and would not reach it in a few rounds."""


def lambda_returns(
    data: OfflineData, values: np.ndarray, discount: float, trace: float
) -> np.ndarray:
    """Return the discounted λ-returns of recorded steps.

    `G_t = r_t + γ ((1 - λ) v_{t+1} + λ G_{t+1})`, where r are rewards and v are estimated values.
    After the last step of an episode, G and v are the value of the last observation if the episode
    was truncated, and 0 if it terminated.

    Args:
        data: episodes.
        values: `(steps + episodes,)`, the estimated values of all observations, in the order of the
            episodes.
        discount: γ.
        trace: λ. With 1, the returns use rewards only, up to the end of the episode.

    Returns:
        `(steps,)` float64.

    Example:
        >>> from gymnasium.spaces import Discrete
        >>> from rrl_tf.offline import Episode
        >>> truncated = Episode(np.zeros((3, 1)), [0, 0], [1.0, 2.0], False, truncated=True)
        >>> data = OfflineData("two steps", (truncated,), Discrete(2), "none")
        >>> lambda_returns(data, np.array([0.0, 0.0, 8.0]), discount=0.5, trace=1.0)
        array([4., 6.])
    """
    returns, begin = [], 0
    for episode in data.episodes:
        next_values = np.array(values[begin + 1 : begin + len(episode) + 1], "float64")
        if episode.terminated:
            next_values[-1] = 0.0
        total, backwards = float(next_values[-1]), []
        for reward, value in zip(episode.rewards[::-1].tolist(), next_values[::-1].tolist()):
            total = reward + discount * ((1 - trace) * value + trace * total)
            backwards.append(total)
        returns.append(backwards[::-1])
        begin += len(episode) + 1
    return np.concatenate(returns)


def advantages(
    data: OfflineData,
    scaling: Scaling,
    seed: int = 0,
    *,
    expectile: float = 0.7,
    discount: float = 0.99,
    trace: float = 0.95,
    rounds: int = 5,
    batch_size: int = 256,
) -> np.ndarray:
    """Return the advantage of each recorded step: its λ-return minus the value of its state.

    The value of a state is an expectile of the λ-returns from this state, which estimates the
    return of the better recorded actions. A network with two ReLU layers learns the values. After
    each pass over the data, the λ-returns are computed again from the new values.

    Args:
        data: episodes.
        scaling: scaling of the observations.
        seed: seed of the network and of the order of the steps.
        expectile: from 0 to 1. 0.5 estimates the mean of the returns, larger numbers estimate
            higher returns.
        discount, trace: see `lambda_returns`.
        rounds: number of passes over the data.
        batch_size: B, number of steps in a batch.

    Returns:
        `(steps,)` float64 in units of the reward, in the order of the episodes.

    Raises:
        InvalidInput: for a number out of range.

    Example: at the top of this module.

    References:
        - [Kostrikov et al., 2021](https://arxiv.org/abs/2110.06169), values as expectiles
    """
    for name, value in (("expectile", expectile), ("discount", discount), ("trace", trace)):
        number_from(name, value, 0, 1)
    positive_int("batch_size", batch_size)
    rng = random_generator(seed)
    observations = np.concatenate([episode.observations for episode in data.episodes])
    states = ops.convert_to_numpy(scaling.states(observations[:, None])[:, 0])
    is_last = np.zeros(len(states), bool)
    is_last[np.cumsum([len(episode) + 1 for episode in data.episodes]) - 1] = True
    returns = lambda_returns(data, np.zeros(len(states)), discount, trace=1.0)
    scale, middle = _deviation(returns), float(returns.mean())
    if abs(middle) <= MAX_MEAN * scale:
        middle = 0.0
    steps = positive_int("rounds", rounds) * -(-len(returns) // batch_size)
    network = _value_network(states.shape[1], expectile, steps, seed)
    for _ in range(rounds):
        order = rng.permutation(len(returns))
        inputs, targets = states[~is_last][order], ((returns - middle) / scale)[order]
        network.fit(inputs, targets, batch_size=batch_size, shuffle=False, verbose=0)
        values = middle + scale * network.predict(states, batch_size=4096, verbose=0)[:, 0]
        returns = lambda_returns(data, values, discount, trace)
    return returns - values[~is_last]


def advantage_weights(advantages: np.ndarray, power: float) -> np.ndarray:
    """Return the sampling weights `exp(power * advantage / standard deviation)`, at most 20.

    Args:
        advantages: `(steps,)`.
        power: a number of at least 0. With 0, all weights are equal.

    Returns:
        `(steps,)`.

    Raises:
        InvalidInput: if the power is negative.

    Example:
        >>> advantage_weights(np.array([-1.0, 0.0, 1.0, 0.0]), power=0.0).tolist()
        [1.0, 1.0, 1.0, 1.0]

    References:
        - [Peng et al., 2019](https://arxiv.org/abs/1910.00177), exponential weights
    """
    advantages = np.asarray(advantages)
    exponents = number_from("power", power, 0) * advantages / _deviation(advantages)
    return np.exp(np.minimum(exponents, np.log(MAX_WEIGHT)))


def _deviation(values: np.ndarray) -> float:
    """Return the standard deviation, or 1 if the values are equal up to rounding."""
    deviation = float(np.std(values))
    return 1.0 if within_rounding(deviation, np.abs(values).max()) else deviation


def reweight_by_advantage(
    windows: Windows, scaling: Scaling, power: float, seed: int, trace: float, rounds: int
) -> None:
    """Change the sampling of windows in place, so that steps with large advantages are more likely.

    Args:
        windows: windows of the training data. A power of 0 leaves them unchanged.
        scaling: scaling of the observations.
        power: see `advantage_weights`.
        seed, trace, rounds: see `advantages`.

    Raises:
        InvalidInput: if the weights are too large or all zero.
    """
    if not power:
        return
    data = windows.data
    try:
        found = advantages(data, scaling, seed, trace=trace, rounds=rounds)
        windows.reweight(advantage_weights(found, power))
    except InvalidInput as error:
        raise InvalidInput(
            f"{data.name} cannot be weighted with an advantage_power of {power:g}: {error}"
        ) from error


def expectile_loss(expectile: float, targets: Tensor, predictions: Tensor) -> Tensor:
    """Return the mean of `|expectile - 1[target < prediction]| (target - prediction)²`.

    Example:
        >>> float(expectile_loss(0.75, np.array([1.0, 1.0]), np.array([0.0, 3.0])))
        0.875
    """
    predictions = ops.convert_to_tensor(predictions)
    error = ops.cast(targets, predictions.dtype) - predictions
    too_high = ops.cast(error < 0, predictions.dtype)
    return ops.mean((expectile + (1.0 - 2.0 * expectile) * too_high) * ops.square(error))


def _value_network(size, expectile, steps, seed):
    """Return a compiled network for state values; it does not use Keras' global random seed."""
    network = keras.Sequential(
        [
            keras.layers.Dense(
                units,
                activation,
                kernel_initializer=keras.initializers.GlorotUniform(own_seed),
                dtype="float32",
            )
            for (units, activation), own_seed in zip(
                ((256, "relu"), (256, "relu"), (1, None)),
                np.random.default_rng(seed).integers(2**31, size=3).tolist(),
            )
        ]
    )
    network.build((None, size))
    rate = keras.optimizers.schedules.CosineDecay(1e-3, steps)
    network.compile(keras.optimizers.Adam(rate), functools.partial(expectile_loss, expectile))
    return network
