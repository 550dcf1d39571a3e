"""Whether attention explains: what is lost with the most attended entities, and with any others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from rrl_tf._arguments import array_of, integer, number_from
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RelationalAnswerer
from rrl_tf.models._encoders import RelationalEncoder

MOST, LEAST, LAST, RANDOM = "most attended", "least attended", "most, last round", "at random"


@dataclasses.dataclass(frozen=True)
class Faithfulness:
    """What a network makes of what it is shown when entities are removed.

    Its choice is the action that is greedy with all entities, or the answer that it gives then.

    Attributes:
        counts: `(K,)` int, how many were removed.
        drop: dict order → `(K, B)`, by how much the Q value of its choice fell, or the answer's
            probability; at random, the mean of the draws.
        kept: dict order → `(K, B)`, share of draws in which it is its choice still.
        candidates: `(B,)` int, how many entities there were to remove.
        most_attended: `(B,)` int, the index of the one that is removed first by the order
            `"most attended"`; of any where there is none.
        accuracy_drop: dict order → `(K, B)`, 1 for a right answer with all entities and 0 for a
            wrong one, less the share of draws in which it is right without; `None` where nobody
            told the right answers.
    """

    counts: np.ndarray
    drop: dict[str, np.ndarray]
    kept: dict[str, np.ndarray]
    candidates: np.ndarray
    most_attended: np.ndarray
    accuracy_drop: dict[str, np.ndarray] | None = None


def faithfulness(
    network: keras.Model,
    inputs: Any,
    memory: np.ndarray | None = None,
    *,
    answers: np.ndarray | None = None,
    counts: Sequence[int] | np.ndarray = (1, 2, 4, 8),
    draws: int = 10,
    seed: int = 0,
) -> Faithfulness:
    """What is lost when the k most attended entities are removed, the least, or any k.

    If attention explains what a network does, it does without the entities it attends to least, and
    not without those it attends to most (Samek et al., 2017). To be removed is to be attended to by
    nothing, in no round, as is what is out of sight. No numbers that are shown are touched; what
    convolutions made of several cells, they have made of removed ones, too. Candidates are the
    entities in sight, but for the one that Q values are read from, or the question; of fewer than k
    candidates all are removed.

    Who is attended to, `attention_rollout` says; for the order `"most, last round"`, the row that
    is read in the last round.

    Args:
        network: `RelationalQNetwork` that reads one cell, as the preset `"fast"` does,
            `RecurrentQNetwork` behind such an encoder, or `RelationalAnswerer`.
        inputs: preprocessed observations `(B, height, width, F)`, or the dict that the other
            networks take; with one question about each picture.
        memory: `(B, M)`, which is left as it is; of a `RecurrentQNetwork` alone.
        answers: `(B,)` int, the right ones; of a `RelationalAnswerer` alone.
        counts: how many entities to remove.
        draws: of random entities, for each observation.
        seed: of these draws.

    Returns:
        A `Faithfulness` with the orders `"most attended"`, `"most, last round"`,
        `"least attended"` and `"at random"`.

    Raises:
        InvalidInput: if the network is another one, or a number is out of range.

    Example:
        >>> from rrl_tf import envs, models
        >>> network = models.RelationalQNetwork.from_preset("doorkey-5x5")
        >>> task = envs.doorkey_task((5,))
        >>> env = task.make_test_env()
        >>> views = np.stack([env.reset(**start)[0] for start in task.evaluation_resets()])
        >>> found = faithfulness(network, task.preprocessor(views), counts=[1])
        >>> bool(found.drop["most attended"].mean() > found.drop["least attended"].mean())
        True

    Source: Samek et al., "Evaluating the visualization of what a deep neural network has learned"
    (2017); Jain and Wallace, "Attention is not explanation" (2019), for the question.
    """
    _check_numbers(counts, draws, seed)
    asks_answerer = isinstance(network, RelationalAnswerer)
    asked = (_Answerer if asks_answerer else _Agent)(network, inputs, memory)
    right = _checked_answers(answers, asked.size, network if asks_answerer else None)
    rounds, read, candidate = asked.attention()
    relevances = _relevances(rounds, read, draws, np.random.default_rng(seed))
    return _found(asked, relevances, candidate, counts, right)


def _found(asked, relevances, candidate, counts, right):
    values, lost = asked.values(), {}
    for order, each in relevances.items():
        removed = [[most_relevant(one, candidate, count) for one in each] for count in counts]
        found = [[_lost(values, asked.values(cells), right) for cells in row] for row in removed]
        lost[order] = np.moveaxis(np.mean(found, axis=1), 1, 0)
    drop, kept, accuracy = ({order: each[i] for order, each in lost.items()} for i in range(3))
    return Faithfulness(
        counts=np.array(counts),
        drop=drop,
        kept=kept,
        candidates=candidate.sum(axis=1),
        most_attended=most_relevant(relevances[MOST][0], candidate, 1).argmax(axis=1),
        accuracy_drop=None if right is None else accuracy,
    )


class _Agent:
    """A Q network as a function of the cells that are removed; all else is held still."""

    def __init__(self, network, inputs, memory):
        self._encoder = _encoder_of(network)
        self._network = network
        self._recurrent = self._encoder is not network
        self._views = _checked_views(inputs, memory, self._recurrent)
        self._memory = np.asarray(memory, "float32") if self._recurrent else None
        self._inputs = {**inputs, "observation": self._views} if self._recurrent else self._views
        self.size = len(self._views)

    def values(self, removed=None):
        """Q values `(B, A)`."""
        answer = self._ask(removed=removed)
        return _array(answer[0] if self._recurrent else answer)

    def attention(self):
        """Attention of every round, the entity `(B,)` that is read, and candidates `(B, N)`."""
        rounds = _rounds(self._ask(return_attention_scores=True)[-1])
        read, seen = _read(self._encoder, self._views), self._encoder.seen(self._views)
        entities = (self.size, rounds[0].shape[-1])
        candidate = np.ones(entities, bool) if seen is None else np.array(seen)
        candidate[np.arange(self.size), read] = False
        return rounds, read, candidate

    def _ask(self, **options):
        memory = (self._memory,) if self._recurrent else ()
        return self._network(self._inputs, *memory, **options)


class _Answerer:
    """An answerer of one question about each picture, as a function of the removed cells."""

    def __init__(self, network, inputs, memory):
        self._network, self._inputs = network, _checked_pictures(inputs, memory)
        self.size = len(self._inputs["questions"])

    def values(self, removed=None):
        """Probabilities of the answers `(B, K)`."""
        cells = None if removed is None else removed[:, :-1]  # the last entity is the question
        logits = self._network(self._inputs, removed=cells)
        return _array(keras.ops.softmax(logits))[:, 0]

    def attention(self):
        """Attention of every round, the question's place `(B,)`, and candidates `(B, N + 1)`."""
        rounds = _rounds(self._network(self._inputs, return_attention_scores=True)[-1])
        entities = rounds[0].shape[-1]
        candidate = np.broadcast_to(np.arange(entities) < entities - 1, (self.size, entities))
        return rounds, np.full(self.size, entities - 1), candidate


def _relevances(rounds, read, draws, rng):
    """Order → `(B, N)` numbers, one a draw."""
    attended = attention_rollout(rounds, read)
    return {
        MOST: [attended],
        LAST: [attention_rollout(rounds[-1:], read)],
        LEAST: [-attended],
        RANDOM: rng.random((draws, *attended.shape)),
    }


def attention_rollout(rounds: Sequence[np.ndarray], entity: np.ndarray) -> np.ndarray:
    """How much of every entity has come to one of them, by attention and residual connections.

    With `A_l` the mean attention of the heads of round l, it is the entity's row of

        (I + A_L) / 2 · ... · (I + A_1) / 2.

    Args:
        rounds: attention `(B, H, N, N)` of each, the first to the last.
        entity: `(B,)`, its index.

    Returns:
        `(B, N)`; rows sum to 1 where those of the attention do.

    Raises:
        InvalidInput: if an index is none of an entity.

    Example:
        >>> uniform = np.full((1, 4, 2, 2), 0.5)  # of one round, four heads and two entities
        >>> attention_rollout([uniform], np.array([0]))
        array([[0.75, 0.25]])

    Source: Abnar and Zuidema, "Quantifying attention flow in transformers" (2020).
    """
    entities = rounds[0].shape[-1] if len(rounds) else 0
    if not (np.greater_equal(entity, 0) & np.less(entity, entities)).all():
        raise InvalidInput(
            f"`entity` must be indices from 0 to {entities - 1}, of {len(rounds)} rounds among "
            f"{entities} entities; received {entity!r}"
        )
    row = np.eye(entities)[entity]
    for attention in reversed(rounds):
        row = (row + np.einsum("bn,bnm->bm", row, attention.mean(axis=1))) / 2
    return row


def most_relevant(relevance: np.ndarray, candidate: np.ndarray, count: int) -> np.ndarray:
    """Which `(B, N)` are the `count` most relevant candidates, or all of them if they are fewer."""
    order = np.argsort(-np.where(candidate, relevance, -np.inf), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return candidate & (rank < count)


def _encoder_of(network):
    encoder = getattr(network, "encoder_layer", network)
    name = getattr(network, "name", type(network).__name__)
    if not (isinstance(encoder, RelationalEncoder) and encoder.readout in ("cell", "feature")):
        raise InvalidInput(
            "entities can be removed of a network, such as from_preset gives, that relates them "
            f"and reads one of them, or answers questions about them; received {name!r}"
        )
    return encoder


def _check_numbers(counts, draws, seed):
    if not isinstance(counts, Sequence | np.ndarray) or not len(counts):
        raise InvalidInput(f"`counts` must be a sequence of whole numbers; received {counts!r}")
    for name, values, least in (("counts", counts, 0), ("draws", [draws], 1), ("seed", [seed], 0)):
        for value in values:
            number_from(name, integer(name, value), least)


def _checked_views(inputs, memory, recurrent):
    """The preprocessed observations `(B, height, width, F)` of a network's inputs, float32."""
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
        raise InvalidInput(f"expected preprocessed observations; received {inputs!r}") from None
    if views.ndim != 4 or not len(views):
        raise InvalidInput(
            "expected preprocessed observations (B, height, width, F), at least one; received the "
            f"shape {views.shape}"
        )
    _check_finite("inputs", views)
    if recurrent:
        for name in inputs.keys() - {"observation"}:
            _check_finite(name, array_of(name, inputs[name], "float32"))
        _check_finite("memory", array_of("memory", memory, "float32"))
    return views


def _checked_pictures(inputs, memory):
    """The pictures and one question about each of them, float32."""
    if not isinstance(inputs, Mapping) or set(inputs) != {"images", "questions"}:
        raise InvalidInput(
            'this network takes a dict {"images", "questions"}; received '
            f"{sorted(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__}"
        )
    if memory is not None:
        raise InvalidInput("this network takes no `memory`; received one")
    inputs = {name: array_of(name, value, "float32") for name, value in inputs.items()}
    images, questions = inputs["images"], inputs["questions"]
    if questions.ndim != 3 or questions.shape[1] != 1 or not len(images) == len(questions) > 0:
        raise InvalidInput(
            "expected pictures, at least one, and questions (B, 1, bits), one about each; received "
            f"the shapes {images.shape} and {questions.shape}"
        )
    for values in inputs.values():
        _check_finite("inputs", values)
    return inputs


def _check_finite(name, values):
    if not np.isfinite(values).all():
        raise InvalidInput(f"`{name}` must be finite numbers; received NaN or an infinite one")


def _checked_answers(answers, size, answerer):
    """The right answers `(B,)`, or `None`."""
    if answers is None:
        return None
    if answerer is None:
        raise InvalidInput("`answers` goes with a RelationalAnswerer; received some without one")
    answers = array_of("answers", answers, "int64")
    if answers.shape != (size,):
        raise InvalidInput(
            f"`answers` must be one for each picture, ({size},); received the shape {answers.shape}"
        )
    for answer in answers:
        number_from("answers", int(answer), 0, answerer.num_classes - 1)
    return answers


def _read(encoder, views):
    """Index `(B,)` of the entity that is read."""
    if encoder.readout == "cell":
        row, column = encoder.readout_cell
        return np.full(len(views), row * encoder.grid_shape(views.shape)[1] + column)
    return views[..., encoder.readout_feature].reshape(len(views), -1).argmax(axis=1)


def _lost(before, after, right):
    """Drop of the value of the choice, whether it is chosen still, and of being right, `(3, B)`."""
    rows, choice, later = np.arange(len(before)), before.argmax(axis=1), after.argmax(axis=1)
    accuracy = 0.0 * choice if right is None else 1.0 * (choice == right) - (later == right)
    return np.stack([(before - after)[rows, choice], later == choice, accuracy])


def _rounds(scores):
    """Attention of the rounds among the entities, the first to the last."""
    return [_array(value) for name, value in scores.items() if name.startswith("round_")]


def _array(tensor):
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))
