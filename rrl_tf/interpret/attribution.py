"""Attribution: how much each entity contributes to a model's choice.

The choice is the largest output `(B,)` of the model, such as the greedy action.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from rrl_tf._arguments import number_from, positive_int
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret.effects import Effects
from rrl_tf.interpret.places import (
    FIRST,
    Edits,
    attention_places,
    check_place,
    gradient,
    outputs,
    run,
    trace,
)
from rrl_tf.models import RecurrentQNetwork
from rrl_tf.models.relational_q_network import RelationalEncoder

COMPLETE = 0.01
"""Largest error of integrated gradients, as a fraction of the difference of the outputs."""


def attributions(model: keras.Model, inputs: Any, steps: int = 64) -> dict[str, np.ndarray]:
    """Return the attribution to every entity by every method.

    Args:
        model: as for `trace`; it must have rounds of attention.
        inputs: inputs of the model for B states.
        steps: as for `integrated_gradients`.

    Returns:
        Dict `"rollout"`, `"flow"` (for at most two rounds), `"integrated gradients"`,
        `"gradient x input"` and `"occlusion"` -> `(B, N)`. Rollout and flow are seen from the
        entity that the outputs are read from or, for other models, from all entities on average.

    Raises:
        InvalidInput: if the model has no rounds of attention.

    Example:
        >>> from rrl_tf.models import RelationalQNetwork
        >>> model = RelationalQNetwork.from_preset("doorkey-5x5")
        >>> found = attributions(model, np.random.default_rng(0).random((1, 7, 7, 24)), steps=256)
        >>> found["rollout"].shape
        (1, 49)
    """
    found = trace(model, inputs)
    rounds = [found[place] for place in attention_places(found)]
    entity = read_entity(model, inputs)
    flow = {"flow": attention_flow(rounds, entity)} if len(rounds) <= 2 else {}
    return {
        "rollout": attention_rollout(rounds, entity),
        **flow,
        "integrated gradients": integrated_gradients(model, inputs, steps=steps),
        "gradient x input": gradient_times_input(model, inputs),
        "occlusion": occlusion(model, inputs),
    }


def attention_rollout(
    rounds: Sequence[np.ndarray], entity: np.ndarray | None = None, residual: float = 0.5
) -> np.ndarray:
    """Return how much each entity contributes to one entity over all rounds of attention.

    The estimate follows attention and residual connections. With the attention `A_l` of round l,
    averaged over heads, and the weight r of the residual connection, it is the row of `entity` in
    the matrix

        (r I + (1 - r) A_L) · ... · (r I + (1 - r) A_1).

    Args:
        rounds: attention `(B, H, N, N)` of each round, from the first to the last.
        entity: `(B,)`, index of the entity that receives the contributions; `None` returns the mean
            over all entities.
        residual: r, from 0 (no residual connection: one round equals its attention) to 1.

    Returns:
        `(B, N)`; a row sums to 1 if all rows of the attention do.

    Raises:
        InvalidInput: if an index is out of range.

    Example:
        >>> uniform = np.full((1, 4, 2, 2), 0.5)  # one round of four heads and two entities
        >>> attention_rollout([uniform], np.array([0]))
        array([[0.75, 0.25]])

    Source: Abnar and Zuidema, "Quantifying attention flow in transformers" (2020).
    """
    row, mixed = _start(rounds, entity), _mixed(rounds, residual)
    for matrix in reversed(mixed):
        row = np.einsum("bn,bnm->bm", row, matrix)
    return row


def attention_flow(
    rounds: Sequence[np.ndarray], entity: np.ndarray | None = None, residual: float = 0.5
) -> np.ndarray:
    """Return the largest flow from each entity to one entity through one or two rounds.

    The capacity of an edge is the attention along it, averaged over heads and mixed with the
    residual connection as in `attention_rollout`. Through two rounds, a path from m to n has one
    entity j in between, and no two of these paths share an edge. The largest flow is therefore the
    sum of `min(A_1[j, m], A_2[n, j])` over j. More rounds would need a general solver for every
    pair of entities.

    Args:
        rounds: attention `(B, H, N, N)` of one or two rounds.
        entity: as for `attention_rollout`.
        residual: as for `attention_rollout`.

    Returns:
        `(B, N)`, normalised so that each row sums to 1.

    Raises:
        InvalidInput: if there are more than two rounds, or an index is out of range.

    Example:
        >>> uniform = np.full((1, 4, 2, 2), 0.5)
        >>> attention_flow([uniform, uniform], np.array([0])).round(2)
        array([[0.67, 0.33]])

    Source: Abnar and Zuidema, "Quantifying attention flow in transformers" (2020).
    """
    if len(rounds) > 2:
        raise InvalidInput(
            "`rounds` must be one or two, for which the flow has a closed form; received "
            f"{len(rounds)}. Use `attention_rollout`."
        )
    start, (first, *later) = _start(rounds, entity), _mixed(rounds, residual)
    flow = np.einsum("bn,bnm->bm", start, first)
    for last in later:
        through = [
            np.minimum(first.transpose(0, 2, 1), last[:, None, n]).sum(axis=-1)
            for n in range(first.shape[1])
        ]
        flow = np.einsum("bn,nbm->bm", start, np.array(through))
    return flow / flow.sum(axis=-1, keepdims=True)


def _start(rounds, entity):
    """Return one-hot rows `(B, N)` of the entities, or rows of 1 / N."""
    count = rounds[0].shape[-1] if len(rounds) else 0
    if entity is None and count:
        return np.full((len(rounds[0]), count), 1 / count)
    if not (np.greater_equal(entity, 0) & np.less(entity, count)).all():
        raise InvalidInput(
            f"`entity` must be indices from 0 to {count - 1}, for {count} entities in "
            f"{len(rounds)} rounds; received {entity!r}"
        )
    return np.eye(count)[entity]


def _mixed(rounds, residual):
    number_from("residual", residual, 0, 1)
    identity = residual * np.eye(rounds[0].shape[-1])
    return [identity + (1 - residual) * attention.mean(axis=1) for attention in rounds]


def read_entity(model: keras.Model, inputs: Any) -> np.ndarray | None:
    """Return the entity `(B,)` that a Q network reads its values from; `None` if there is not one.

    Args:
        model: any model.
        inputs: its inputs.
    """
    encoder = getattr(model, "encoder_layer", model)
    views: Any = inputs.get("observation") if isinstance(inputs, Mapping) else inputs
    if not isinstance(encoder, RelationalEncoder):
        return None
    if encoder.readout_cell is not None:
        row, column = encoder.readout_cell
        return np.full(len(views), row * encoder.grid_shape(views.shape)[1] + column)
    if encoder.readout_feature is not None:
        marked = np.asarray(views)[..., encoder.readout_feature]
        return marked.reshape(len(views), -1).argmax(axis=1)
    return None


def integrated_gradients(
    model: keras.Model,
    inputs: Any,
    place: str = FIRST,
    baseline: np.ndarray | float = 0.0,
    steps: int = 64,
) -> np.ndarray:
    """Return integrated gradients of the chosen output with respect to the entities at a place.

    The gradients are averaged along the straight line from the baseline to the activations, at the
    nodes of Gauss and Legendre's rule, and multiplied by the difference of both. The sum over the
    entities is the output minus the output for the baseline (completeness). A warning reports
    states where this fails by more than 1 %.

    Args:
        model: as for `trace`.
        inputs: inputs of the model for B states.
        place: place of the entities, such as `round_1/before`.
        baseline: activations that stand for no information, broadcast to `(B, N, F)`.
        steps: number of nodes.

    Returns:
        `(B, N)`, the sum over the features of an entity.

    Raises:
        InvalidInput: if the place does not exist, or the backend is PyTorch.

    Example:
        >>> from rrl_tf.models import RelationalQNetwork
        >>> model = RelationalQNetwork.from_preset("doorkey-5x5")
        >>> integrated_gradients(model, np.ones((1, 7, 7, 24))).shape
        (1, 49)

    Source: Sundararajan, Taly and Yan, "Axiomatic attribution for deep networks" (2017).
    """
    value, chosen, before = _chosen(model, inputs, place)
    start = np.broadcast_to(np.float32(baseline), value.shape)
    nodes, weights = np.polynomial.legendre.leggauss(positive_int("steps", steps))
    mean = np.zeros_like(value)
    for node, weight in zip((nodes + 1) / 2, weights / 2):
        mean += np.float32(weight) * gradient(chosen, start + np.float32(node) * (value - start))
    result = ((value - start) * mean).sum(axis=tuple(range(2, value.ndim)))
    difference = before - ops.convert_to_numpy(chosen(ops.convert_to_tensor(start)))
    error = np.abs(result.sum(axis=1) - difference)
    if wrong := int((error > COMPLETE * np.maximum(np.abs(difference), 1e-3)).sum()):
        warnings.warn(
            f"integrated gradients of {wrong} of {len(error)} states differ from the difference of "
            f"the outputs by more than {COMPLETE:.0%} with {steps} nodes",
            stacklevel=2,
        )
    return result


def gradient_times_input(model: keras.Model, inputs: Any, place: str = FIRST) -> np.ndarray:
    """Return the gradient of the chosen output, times the activations at a place.

    Args:
        model, inputs, place: as for `integrated_gradients`.

    Returns:
        `(B, N)`, the sum over the features of an entity.
    """
    value, chosen, _ = _chosen(model, inputs, place)
    return (value * gradient(chosen, value)).sum(axis=tuple(range(2, value.ndim)))


def _chosen(model, inputs, place):
    """Return the activations at a place, and the chosen output as a function of them and `(B,)`."""
    found = trace(model, inputs)
    check_place(place, [name for name in found if name != "output"])
    before = found["output"].reshape(len(found["output"]), -1)
    mask = np.eye(before.shape[1], dtype="float32")[before.argmax(axis=1)]

    def chosen(value):
        output = run(model, inputs, {place: value}, {})
        return ops.sum(ops.reshape(output, mask.shape) * mask, axis=1)

    return found[place], chosen, before.max(axis=1)


def occlusion(model: keras.Model, inputs: Any) -> np.ndarray:
    """Return the drop of the chosen output if no entity attends to an entity, for each entity.

    Args:
        model: as for `trace`; it must have rounds of attention.
        inputs: inputs of the model for B states.

    Returns:
        `(B, N)`.

    Example:
        >>> from rrl_tf.models import RelationalQNetwork
        >>> occlusion(RelationalQNetwork.from_preset("doorkey-5x5"), np.ones((1, 7, 7, 24))).shape
        (1, 49)
    """
    found = trace(model, inputs)
    size = found[attention_places(found)[0]].shape[-1]
    removed = np.broadcast_to(np.eye(size, dtype=bool)[:, None], (size, len(found["output"]), size))
    after = [outputs(model, inputs, hide(model, found, each)) for each in removed]
    return Effects((), outputs(model, inputs), np.array(after)).drop.T


def hide(model: keras.Model, found: Mapping[str, np.ndarray], removed: np.ndarray) -> Edits:
    """Return edits with which no entity attends to removed ones, as if they were masked.

    The other entities share the attention: their scores are divided by their sum. The slots of a
    Relational Memory that attends to entities ignore the removed ones, too.

    Args:
        model: the model.
        found: its trace.
        removed: `(B, N)` bool.
    """
    kept = dict.fromkeys(attention_places(found), ~removed)
    if isinstance(model, RecurrentQNetwork) and model.memory_input == "entities":
        slots = model.core_layer.cell.mem_slots  # before the entities; the action is after them
        padded = np.pad(~removed, ((0, 0), (slots, 1)), constant_values=True)
        kept |= {name: padded for name in found if name.startswith("block") and "/att" in name}

    def masked(keep):
        keep = keep[:, None, None].astype("float32")

        def edit(scores):
            scores = scores * keep
            total = ops.sum(scores, axis=-1, keepdims=True)
            return scores / ops.where(total > 0, total, 1)

        return edit

    return {place: masked(keep) for place, keep in kept.items()}


def most_relevant(
    relevance: np.ndarray, candidate: np.ndarray, count: int | np.ndarray
) -> np.ndarray:
    """Return a mask `(B, N)` of the most relevant candidates, or of all candidates.

    Args:
        relevance: `(B, N)`.
        candidate: `(B, N)` bool.
        count: number of entities, or one number `(B, 1)` for every state.
    """
    order = np.argsort(-np.where(candidate, relevance, -np.inf), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return candidate & (rank < count)
