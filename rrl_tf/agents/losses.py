"""Define the double Q-learning target and loss as pure functions, for any Keras backend."""

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

    The target is `return_t + discount_t * q_tpn_evaluate[argmax_a q_tpn_select[a]]`. One network
    selects the action at `t + n`, and another network evaluates it.

    All shapes may have further axes after B, such as time.

    Args:
        q_tpn_select: `(B, A)`, Q values of the online network at `t + n`; they select the action.
        q_tpn_evaluate: `(B, A)`, Q values of the target network at `t + n`; they evaluate it.
        return_t: `(B,)`, discounted sum of the rewards from `t` to `t + n - 1`.
        discount_t: `(B,)`, `discount ** n`, or 0 if the episode terminates before `t + n`. After a
            truncation it is not 0, because the last observation provides a bootstrap value.
        return_lower_bound: `(B,)`, observed returns, -inf where unknown. A target below the
            observed return is raised to it. `None` leaves all targets unchanged.

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
        target_t: `(B,)`, targets from `double_dqn_target`.
        weight_t: `(B,)`, importance weights of prioritised replay; `None` gives all items weight 1.
        loss: `"huber"` (quadratic up to an error of 1, linear beyond) or `"mse"` (no factor 1/2).

    Returns:
        The scalar mean loss, and the temporal-difference errors `(B,)`, without a gradient.

    Raises:
        InvalidInput: if `loss` is unknown.

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
    """Return `q[b, action[b]]`, computed as a masked sum.

    XLA can fuse the gradient of a masked sum, but not that of a gather.
    """
    chosen = ops.one_hot(action, q.shape[-1], dtype=q.dtype)
    return ops.sum(q * chosen, axis=-1)
