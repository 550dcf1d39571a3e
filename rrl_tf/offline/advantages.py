"""How much better recorded steps went than is usual where they were taken.

Example:

Where action 1 was rewarded and action 0 was not, the better one comes to be drawn more often:

>>> from gymnasium.spaces import Discrete
>>> from rrl_tf.offline import Episode
>>> steps = tuple(Episode(np.zeros((2, 1)), [a], [float(a)], True, False) for a in (0, 1))
>>> data = OfflineData("two arms", steps, Discrete(2), "none")
>>> found = advantages(data, Scaling.of(data))
>>> (found > 0).tolist()
[False, True]
>>> windows = Windows(data, context_length=1)
>>> windows.weigh(advantage_weights(found, power=1.0))  # in one go: `weigh_by_advantage`
>>> windows.batch(1000, seed=0)["actions"].mean(axis=(0, 1)).round(1)
array([0.1, 0.9], dtype=float32)
"""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from rrl_tf._arguments import number_from, positive_int, random_generator
from rrl_tf._typing import Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.offline.episodes import OfflineData
from rrl_tf.offline.scaling import Scaling
from rrl_tf.offline.windows import Windows

MOST = 20.0
"""How much more than a usual step any step may count for."""


def lambda_returns(
    data: OfflineData, values: np.ndarray, discount: float, trace: float
) -> np.ndarray:
    """Discounted returns of every step, of recorded rewards and of values that are believed.

    `G_t = r_t + γ ((1 - λ) v_{t+1} + λ G_{t+1})`, where an episode that was cut off goes on with
    the value of its last observation, and one that terminated with 0.

    Args:
        data: episodes.
        values: `(steps + episodes,)`, of all observations, one episode behind the other.
        discount: γ.
        trace: λ; 1 believes rewards alone, up to the end of the episode.

    Returns:
        `(steps,)` float64.

    Example:

    >>> from gymnasium.spaces import Discrete
    >>> from rrl_tf.offline import Episode
    >>> cut_off = Episode(np.zeros((3, 1)), np.array([0, 0]), np.array([1.0, 2.0]), False, True)
    >>> data = OfflineData("two steps", (cut_off,), Discrete(2), "none")
    >>> lambda_returns(data, np.array([0.0, 0.0, 8.0]), discount=0.5, trace=1.0)
    array([4., 6.])
    """
    returns, begin = [], 0
    for episode in data.episodes:
        after = np.array(values[begin + 1 : begin + len(episode) + 1], "float64")
        if episode.terminated:
            after[-1] = 0.0
        total, backwards = float(after[-1]), []
        for reward, value in zip(episode.rewards[::-1].tolist(), after[::-1].tolist()):
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
    """How much more came of every step than is usual for good play from its state on.

    A network of two ReLU layers learns from pass to pass over the data an expectile of the
    λ-returns that its own values of the pass before make: its value of a state is what the better
    ones of the recorded steps got from there. What a step got beyond that is its advantage.

    Args:
        data: episodes.
        scaling: how their observations become states.
        seed: of the network and of the order of the steps.
        expectile: 0.5 is the mean of what was recorded; the nearer to 1, the better the play that
            counts as usual.
        discount, trace: of `lambda_returns`.
        rounds: passes over the data.
        batch_size: B.

    Returns:
        `(steps,)` float64, one episode behind the other, in units of the reward.

    Raises:
        InvalidInput: for a number out of its range.

    Example: at the top of this module.

    References:
        - [Kostrikov et al., 2021](https://arxiv.org/abs/2110.06169), for values as expectiles
    """
    for name, share in (("expectile", expectile), ("discount", discount), ("trace", trace)):
        number_from(name, share, 0, 1)
    positive_int("batch_size", batch_size)
    rng = random_generator(seed)
    observations = np.concatenate([episode.observations for episode in data.episodes])
    states = ops.convert_to_numpy(scaling.states(observations[:, None])[:, 0])
    is_last = np.zeros(len(states), bool)
    is_last[np.cumsum([len(episode) + 1 for episode in data.episodes]) - 1] = True
    values = np.zeros(len(states))
    returns = lambda_returns(data, values, discount, trace=1.0)
    scale = float(returns.std()) or 1.0
    steps = positive_int("rounds", rounds) * -(-len(returns) // batch_size)
    network = _value_network(states.shape[1], expectile, steps, seed)
    for _ in range(rounds):
        order = rng.permutation(len(returns))
        inputs, targets = states[~is_last][order], (returns / scale)[order]
        network.fit(inputs, targets, batch_size=batch_size, shuffle=False, verbose=0)
        values = scale * network.predict(states, batch_size=4096, verbose=0)[:, 0]
        returns = lambda_returns(data, values, discount, trace)
    return returns - values[~is_last]


def advantage_weights(advantages: np.ndarray, power: float) -> np.ndarray:
    """How much more steps count for, the more came of them: `exp(power A / deviation)`, at most 20.

    Args:
        advantages: A, `(steps,)`.
        power: from 0 up; 0 makes all of them equal.

    Returns:
        `(steps,)`.

    Raises:
        InvalidInput: if the power is negative.

    Example:

    >>> advantage_weights(np.array([-1.0, 0.0, 1.0, 0.0]), power=0.0).tolist()
    [1.0, 1.0, 1.0, 1.0]

    References:
        - [Peng et al., 2019](https://arxiv.org/abs/1910.00177), for such weights
    """
    deviation = float(np.std(advantages)) or 1.0
    exponents = number_from("power", power, 0) * np.asarray(advantages) / deviation
    return np.exp(np.minimum(exponents, np.log(MOST)))


def weigh_by_advantage(
    windows: Windows,
    scaling: Scaling,
    power: float,
    seed: int = 0,
    trace: float = 0.95,
    rounds: int = 5,
) -> None:
    """Has steps end windows more often, the more came of them; a power of 0 changes nothing.

    Args:
        windows: of the episodes that the advantages are of.
        scaling, seed, trace, rounds: of `advantages`.
        power: of `advantage_weights`.

    Raises:
        InvalidInput: if nothing is left to learn from, or an advantage is no finite number.
    """
    if not power:
        return
    data = windows.data
    try:
        found = advantages(data, scaling, seed, trace=trace, rounds=rounds)
        windows.weigh(advantage_weights(found, power))
    except InvalidInput as error:
        low = min(float(episode.rewards.min()) for episode in data.episodes)
        high = max(float(episode.rewards.max()) for episode in data.episodes)
        raise InvalidInput(
            f"{data.name}: its steps, whose rewards are from {low:.3g} to {high:.3g}, cannot be "
            f"weighed by an advantage_power of {power:g}: {error}"
        ) from error


def expectile_loss(expectile: float, targets: Tensor, predictions: Tensor) -> Tensor:
    """Squared error that counts for `expectile` where a prediction is too low, and else for less.

    Args:
        expectile: 0.5 is half the squared error.
        targets, predictions: of one shape.

    Returns:
        A number: `mean(|expectile - 1[target < prediction]| (target - prediction)²)`.

    Example:

    >>> float(expectile_loss(0.75, np.array([1.0, 1.0]), np.array([0.0, 3.0])))
    0.875
    """
    predictions = ops.convert_to_tensor(predictions)
    error = ops.cast(targets, predictions.dtype) - predictions
    too_high = ops.cast(error < 0, predictions.dtype)
    return ops.mean((expectile + (1.0 - 2.0 * expectile) * too_high) * ops.square(error))


def _value_network(size, expectile, steps, seed):
    """A network for values of states, compiled; nothing else of the program draws its numbers."""
    seeds = np.random.default_rng(seed).integers(2**31, size=3).tolist()

    def dense(units, activation, seed):
        initial = keras.initializers.GlorotUniform(seed)
        return keras.layers.Dense(units, activation, kernel_initializer=initial, dtype="float32")

    network = keras.Sequential(
        [dense(256, "relu", seeds[0]), dense(256, "relu", seeds[1]), dense(1, None, seeds[2])]
    )
    network.build((None, size))

    def loss(targets, predictions):
        return expectile_loss(expectile, targets, predictions)

    rate = keras.optimizers.schedules.CosineDecay(1e-3, steps)
    network.compile(keras.optimizers.Adam(rate), loss)
    return network
