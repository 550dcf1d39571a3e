"""The double Q-learning target and loss as pure functions of arrays, on any Keras backend."""

from __future__ import annotations

from typing import Any

from keras import ops

from rrl_tf.errors import InvalidInput

LOSSES = ("huber", "mse")


def double_dqn_target(
    q_tpn_select: Any,
    q_tpn_evaluate: Any,
    return_t: Any,
    discount_t: Any,
    return_lower_bound: Any = None,
) -> Any:
    """Return the bootstrapped targets of double Q-learning.

    `target_t = return_t + discount_t * q_tpn_evaluate[argmax_a q_tpn_select[a]]`: one network
    chooses the action at `t + n`, another one evaluates it.

    All shapes may have further axes after B, such as time.

    Args:
        q_tpn_select: `(B, A)`, Q values that choose the action: the online network's at `t + n`.
        q_tpn_evaluate: `(B, A)`, Q values that evaluate it: the target network's at `t + n`.
        return_t: `(B,)`, discounted sum of the rewards from `t` to `t + n - 1`.
        discount_t: `(B,)`, `discount ** n`, or 0 where the episode terminated on the way. A
            truncation is not a termination: its last observation is bootstrapped from.
        return_lower_bound: `(B,)`, observed returns, -inf where unknown; lower targets are raised
            to them. `None` raises none.

    Returns:
        `(B,)` targets, without a gradient.

    Example:
        >>> double_dqn_target([[0.0, 1.0]], [[5.0, 3.0]], [1.0], [0.5])  # 1 + 0.5 * 3
        <tf.Tensor: shape=(1,), dtype=float32, numpy=array([2.5], dtype=float32)>

    Source: van Hasselt, Guez and Silver, "Deep reinforcement learning with double Q-learning"
    (2016), equation 4; He et al., "Learning to play in a day" (2017) for the lower bound.
    """
    select = ops.convert_to_tensor(q_tpn_select)
    evaluate = ops.convert_to_tensor(q_tpn_evaluate)
    value = _pick(evaluate, ops.argmax(select, axis=-1))
    target = return_t + discount_t * value
    if return_lower_bound is not None:
        target = ops.maximum(target, return_lower_bound)
    return ops.stop_gradient(target)


def double_dqn_loss(
    q_t: Any, action_t: Any, target_t: Any, weight_t: Any = None, loss: str = "huber"
) -> tuple[Any, Any]:
    """Return the weighted loss of the chosen actions' Q values, and their errors.

    Args:
        q_t: `(B, A)`, the online network's Q values at `t`.
        action_t: `(B,)` int, the actions taken.
        target_t: `(B,)`, what `double_dqn_target` returned.
        weight_t: `(B,)` importance weights of prioritised replay; `None` weights all equally.
        loss: `"huber"` (quadratic up to an error of 1, linear beyond) or `"mse"` (no factor 1/2).

    Returns:
        The scalar mean loss, and the temporal-difference errors `(B,)`, without a gradient.

    Raises:
        InvalidInput: if `loss` is neither.

    Example:
        >>> loss, errors = double_dqn_loss(ops.array([[0.0, 1.0]]), [1], [3.0], loss="mse")
        >>> float(loss)
        4.0
    """
    if loss not in LOSSES:
        raise InvalidInput(f"`loss` must be one of {LOSSES}; received {loss!r}.")
    error = target_t - _pick(ops.convert_to_tensor(q_t), action_t)
    if loss == "huber":
        size = ops.abs(error)
        per_item = ops.where(size <= 1.0, 0.5 * error * error, size - 0.5)
    else:
        per_item = error * error
    if weight_t is not None:
        per_item = per_item * weight_t
    return ops.mean(per_item), ops.stop_gradient(error)


def _pick(q, action):
    """Return `q[b, action[b]]` as a masked sum: XLA fuses it, unlike the gradient of a gather."""
    chosen = ops.one_hot(action, q.shape[-1], dtype=q.dtype)
    return ops.sum(q * chosen, axis=-1)
