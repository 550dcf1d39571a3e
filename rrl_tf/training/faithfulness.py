"""Whether attention explains: what is lost with the most attended entities, and with any others."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from rrl_tf._arguments import number_from
from rrl_tf.errors import InvalidInput
from rrl_tf.models._encoders import RelationalEncoder

MOST, LEAST, LAST, RANDOM = "most attended", "least attended", "most, last round", "at random"


@dataclasses.dataclass(frozen=True)
class Faithfulness:
    """What a network makes of observations from which entities were removed.

    Attributes:
        counts: `(K,)` int, how many were removed.
        drop: dict order → `(K, B)`, by how much the value of the action that is greedy with all
            entities fell; at random, the mean of the draws.
        kept: dict order → `(K, B)`, share of draws in which that action is still the greedy one.
        candidates: `(B,)` int, how many entities there were to remove.
    """

    counts: np.ndarray
    drop: dict[str, np.ndarray]
    kept: dict[str, np.ndarray]
    candidates: np.ndarray


def faithfulness(
    network: keras.Model,
    inputs: Any,
    memory: np.ndarray | None = None,
    *,
    counts: Sequence[int] = (1, 2, 4, 8),
    draws: int = 10,
    seed: int = 0,
) -> Faithfulness:
    """What is lost when the k most attended entities are removed, the least, or any k.

    If attention explains what a network does, it does without the entities it attends to least, and
    not without those it attends to most (Samek et al., 2017). To be removed is to be out of sight:
    in no round does anything attend to a removed entity. Its numbers are not touched, so nothing is
    shown that training never showed. Candidates are the entities in sight, but for the one that the
    Q values are read from, which is never removed; of fewer than k candidates all are.

    Who is attended to, `attention_rollout` says; for the order `"most, last round"`, the row that
    is read in the last round.

    Args:
        network: `RelationalQNetwork`, or `RecurrentQNetwork` behind such an encoder, that reads one
            cell and hides cells out of sight, as the preset `"fast"` does.
        inputs: prepared observations `(B, height, width, F)`, or the dict that a
            `RecurrentQNetwork` takes.
        memory: `(B, M)`, which is left as it is; of a `RecurrentQNetwork` alone.
        counts: how many entities to remove.
        draws: of random entities, for each observation.
        seed: of these draws.

    Returns:
        A `Faithfulness` with the orders `"most attended"`, `"most, last round"`,
        `"least attended"` and `"at random"`.

    Raises:
        InvalidInput: if the network is another one, or a number is out of range.

    Example:
        >>> network = RelationalQNetwork.from_preset("doorkey-5x5")
        >>> found = faithfulness(network, task.preparation(observations))
        >>> {order: drop.mean(axis=1) for order, drop in found.drop.items()}

    Source: Samek et al., "Evaluating the visualization of what a deep neural network has learned"
    (2017); Jain and Wallace, "Attention is not explanation" (2019), for the question.
    """
    _check_numbers(counts, draws, seed)
    asked = _Asked(network, inputs, memory)
    candidate, relevances = asked.relevances(draws, np.random.default_rng(seed))
    q, drop, kept = asked.values(asked.views), {}, {}
    for order, each in relevances.items():
        removed = [[most_relevant(one, candidate, count) for one in each] for count in counts]
        found = [[_lost(q, asked.without(cells)) for cells in row] for row in removed]
        drop[order], kept[order] = np.moveaxis(np.mean(found, axis=1), 1, 0)
    return Faithfulness(np.array(counts), drop, kept, candidate.sum(axis=1))


class _Asked:
    """A network as a function of what it sees; all that it knows beside is held still."""

    def __init__(self, network, inputs, memory):
        self._encoder = _encoder_of(network)
        self._network, self._inputs, self._memory = network, inputs, memory
        self._recurrent = self._encoder is not network
        self.views = _checked_views(inputs, memory, self._recurrent)

    def values(self, views):
        """Q values `(B, A)`."""
        return _array(self._ask(views)[0])

    def without(self, cells):
        """Q values without these cells, `(B, N)` bool."""
        return self.values(hidden(self.views, cells, self._encoder.unseen_feature))

    def relevances(self, draws, rng):
        """Which entities may be removed, `(B, N)`, and order → `(B, N)` numbers, one a draw."""
        scores = self._ask(self.views, return_attention_scores=True)[-1]
        rounds = [_array(value) for name, value in scores.items() if name.startswith("round_")]
        read = _read(self._encoder, self.views)
        candidate = np.array(self._encoder.seen(self.views))
        candidate[np.arange(len(self.views)), read] = False
        attended = attention_rollout(rounds, read)
        return candidate, {
            MOST: [attended],
            LAST: [attention_rollout(rounds[-1:], read)],
            LEAST: [-attended],
            RANDOM: rng.random((draws, *attended.shape)),
        }

    def _ask(self, views, **options):
        if self._recurrent:
            inputs = {**self._inputs, "observation": views}
            return self._network(inputs, self._memory, **options)
        answer = self._network(views, **options)
        return answer if options else (answer,)


def attention_rollout(rounds: Sequence[np.ndarray], entity: np.ndarray) -> np.ndarray:
    """How much of every entity has come to one of them, by attention and residual connections.

    With `A_l` the mean attention of the heads of round l, it is the entity's row of

        (I + A_L) / 2 · ... · (I + A_1) / 2.

    Args:
        rounds: attention `(B, H, N, N)` of each, the first to the last.
        entity: `(B,)`, its index.

    Returns:
        `(B, N)`; rows sum to 1 where those of the attention do.

    Example:
        >>> scores = [np.asarray(attention[name]) for name in ("round_1", "round_2")]
        >>> attention_rollout(scores, np.array([27]))

    Source: Abnar and Zuidema, "Quantifying attention flow in transformers" (2020).
    """
    row = np.eye(rounds[0].shape[-1])[entity]
    for attention in reversed(rounds):
        row = (row + np.einsum("bn,bnm->bm", row, attention.mean(axis=1))) / 2
    return row


def most_relevant(relevance: np.ndarray, candidate: np.ndarray, count: int) -> np.ndarray:
    """Which `(B, N)` are the `count` most relevant candidates, or all of them if they are fewer."""
    order = np.argsort(-np.where(candidate, relevance, -np.inf), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return candidate & (rank < count)


def hidden(views: np.ndarray, removed: np.ndarray, unseen_feature: int) -> np.ndarray:
    """Prepared observations in which the cells `removed` `(B, N)` are marked as out of sight."""
    views = views.copy()
    marks = views[..., unseen_feature]
    marks[removed.reshape(marks.shape)] = 1.0
    return views


def _encoder_of(network):
    encoder = getattr(network, "encoder_layer", network)
    name = getattr(network, "name", repr(network))
    if not (
        isinstance(encoder, RelationalEncoder)
        and encoder.unseen_feature is not None
        and encoder.readout in ("cell", "feature")
        and encoder.conv_kernel_size == 1
    ):
        raise InvalidInput(
            "entities can be removed of a network that relates single cells, hides those out of "
            f"sight and reads one of them; received {name!r}"
        )
    return encoder


def _check_numbers(counts, draws, seed):
    if not isinstance(counts, Sequence) or not counts:
        raise InvalidInput(f"`counts` must be a sequence of whole numbers; received {counts!r}")
    for name, values, least in (("counts", counts, 0), ("draws", [draws], 1), ("seed", [seed], 0)):
        for value in values:
            if not isinstance(value, numbers.Integral):
                raise InvalidInput(f"`{name}` must be whole numbers; received {value!r}")
            number_from(name, value, least)


def _checked_views(inputs, memory, recurrent):
    """The prepared observations `(B, height, width, F)` of a network's inputs, float32."""
    if recurrent != isinstance(inputs, Mapping) or recurrent != (memory is not None):
        takes = "a dict of inputs and a `memory`" if recurrent else "an array and no `memory`"
        raise InvalidInput(
            f"this network takes {takes}; received {type(inputs).__name__} and "
            f"{'none' if memory is None else 'a memory'}"
        )
    if recurrent and "observation" not in inputs:
        raise InvalidInput(f"expected inputs with an 'observation'; received {sorted(inputs)}")
    try:
        views = np.asarray(inputs["observation"] if recurrent else inputs, "float32")
    except (TypeError, ValueError):
        raise InvalidInput(f"expected prepared observations; received {inputs!r}") from None
    if views.ndim != 4 or not len(views):
        raise InvalidInput(
            "expected prepared observations (B, height, width, F), at least one; received the "
            f"shape {views.shape}"
        )
    for name, values in (("inputs", views), ("memory", memory)):
        if values is not None and not np.isfinite(values).all():
            raise InvalidInput(f"`{name}` must be finite numbers; received NaN or an infinite one")
    return views


def _read(encoder, views):
    """Index `(B,)` of the entity that is read."""
    if encoder.readout == "cell":
        row, column = encoder.readout_cell
        return np.full(len(views), row * views.shape[2] + column)
    return views[..., encoder.readout_feature].reshape(len(views), -1).argmax(axis=1)


def _lost(before, after):
    """Drop of the value of the greedy action, and whether it is greedy still, `(2, B)`."""
    rows, greedy = np.arange(len(before)), before.argmax(axis=1)
    return np.stack([(before - after)[rows, greedy], after.argmax(axis=1) == greedy])


def _array(tensor):
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))
