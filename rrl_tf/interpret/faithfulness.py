"""Whether attention explains a decision: its change when the most attended entities are removed.

If attention explains a decision, the network needs the entities that it attends to most, and not
those that it attends to least (Samek et al., 2017). No entity attends to a removed one in any
round, as if it were out of sight. The inputs do not change, so a convolution over several cells
still includes removed ones. Candidates are the entities in sight, except for the one that Q values
are read from, or the question. With fewer than k candidates all are removed.

Source: Samek et al., "Evaluating the visualization of what a deep neural network has learned"
(2017); Jain and Wallace, "Attention is not explanation" (2019), for the question.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from rrl_tf._arguments import array_of, finite, integers_from, natural, number_from, positive_int
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RelationalVQA
from rrl_tf.models.relational_q_network import RelationalEncoder

MOST, LEAST, LAST, RANDOM = "most attended", "least attended", "most, last round", "at random"


@dataclasses.dataclass(frozen=True)
class Faithfulness:
    """The effect of removing entities on a network's choice: its greedy action, or its answer.

    Attributes:
        counts: `(K,)` int, numbers of removed entities.
        drop: dict order -> `(K, B)`, decrease of the Q value of the original choice, or of the
            probability of the original answer; the mean over the draws of the order `"at random"`.
        kept: dict order -> `(K, B)`, fraction of draws in which the choice stays the same.
        candidates: `(B,)` int, number of entities that could be removed.
        most_attended: `(B,)` int, index of the entity that the order `"most attended"` removes
            first; any index where there are no candidates.
        accuracy_drop: dict order -> `(K, B)`, 1 for a right and 0 for a wrong original answer,
            minus the fraction of draws in which the answer is right; `None` without `answers`.
    """

    counts: np.ndarray
    drop: dict[str, np.ndarray]
    kept: dict[str, np.ndarray]
    candidates: np.ndarray
    most_attended: np.ndarray
    accuracy_drop: dict[str, np.ndarray] | None = None


def measure_faithfulness(
    network: keras.Model,
    inputs: Any,
    memory: np.ndarray | None = None,
    *,
    answers: np.ndarray | None = None,
    counts: Sequence[int] | np.ndarray = (1, 2, 4, 8),
    draws: int = 10,
    seed: int = 0,
) -> Faithfulness:
    """Measure the loss from removing the k most attended entities, the k least attended, or any k.

    `attention_rollout` measures how much an entity is attended to. The order `"most, last round"`
    uses only the last round's attention.

    Args:
        network: `RelationalQNetwork` that reads one cell, such as the preset `"fast"`,
            `RecurrentQNetwork` with such an encoder, or `RelationalVQA`.
        inputs: preprocessed observations `(B, height, width, F)`, or the dict that the other
            networks take; with one question for each picture.
        memory: `(B, M)`, memory of a `RecurrentQNetwork`, which stays the same.
        answers: `(B,)` int, right answers of a `RelationalVQA`.
        counts: number of entities to remove, or several.
        draws: random selections for each observation.
        seed: seed of the random selections.

    Returns:
        `Faithfulness` with the orders `"most attended"`, `"most, last round"`, `"least attended"`
        and `"at random"`.

    Raises:
        InvalidInput: if the network is none of these, or an argument does not fit it.

    Example:
        >>> from rrl_tf import envs, models
        >>> network = models.RelationalQNetwork.from_preset("doorkey-5x5")
        >>> task = envs.doorkey_task((5,))
        >>> env = task.make_test_env()
        >>> views = np.stack([env.reset(**start)[0] for start in task.evaluation_resets()])
        >>> found = measure_faithfulness(network, task.preprocessor(views), counts=[1])
        >>> bool(found.drop["most attended"].mean() > found.drop["least attended"].mean())
        True
    """
    counts, draws = integers_from("counts", counts, 0), positive_int("draws", draws)
    rng = np.random.default_rng(natural("seed", seed))
    if isinstance(network, RelationalVQA):
        decide, rounds, read, candidate = _open_vqa(network, inputs, memory)
        answers = _check_answers(answers, len(read), network.num_classes)
    else:
        decide, rounds, read, candidate = _open_agent(network, inputs, memory)
        if answers is not None:
            raise InvalidInput("`answers` needs a RelationalVQA; received a Q network")
    return _measure(decide, rounds, read, candidate, counts, draws, rng, answers)


def _measure(decide, rounds, read, candidate, counts, draws, rng, answers):
    relevance = attention_rollout(rounds, read)
    orders = {
        MOST: [relevance],
        LAST: [attention_rollout(rounds[-1:], read)],
        LEAST: [-relevance],
        RANDOM: rng.random((draws, *relevance.shape)),
    }
    effects = {
        order: _removal_effects(decide, draws_of_order, candidate, counts, answers)
        for order, draws_of_order in orders.items()
    }
    drop, kept, accuracy = ({order: x[:, i] for order, x in effects.items()} for i in range(3))
    return Faithfulness(
        counts=np.array(counts),
        drop=drop,
        kept=kept,
        candidates=candidate.sum(axis=1),
        most_attended=most_relevant(relevance, candidate, 1).argmax(axis=1),
        accuracy_drop=None if answers is None else accuracy,
    )


def _removal_effects(decide, relevances, candidate, counts, answers):
    """Return drop of the value, choice kept and accuracy drop, means of draws, `(K, 3, B)`."""
    before = decide(None)
    rows, choice = np.arange(len(before)), before.argmax(axis=1)

    def effect(relevance, count):
        after = decide(most_relevant(relevance, candidate, count))
        later = after.argmax(axis=1)
        accuracy = 0 if answers is None else 1 * (choice == answers) - (later == answers)
        drop = (before - after)[rows, choice]
        return np.stack([drop, later == choice, np.broadcast_to(accuracy, len(rows))])

    return np.array(
        [np.mean([effect(each, count) for each in relevances], axis=0) for count in counts]
    )


def _open_agent(network, inputs, memory):
    """Return a function removed entities -> Q values, attention, entities read, and candidates."""
    encoder = getattr(network, "encoder_layer", network)
    if not (isinstance(encoder, RelationalEncoder) and encoder.readout in ("cell", "feature")):
        raise InvalidInput(
            "`network` must be a RelationalVQA, or a Q network that relates entities and "
            f"reads one of them; received {network!r}"
        )
    is_recurrent = encoder is not network
    if is_recurrent != isinstance(inputs, Mapping) or is_recurrent != (memory is not None):
        takes = "a dict of inputs and a `memory`" if is_recurrent else "an array and no `memory`"
        raise InvalidInput(
            f"this network takes {takes}; received {type(inputs).__name__} and "
            f"{'no memory' if memory is None else 'a memory'}"
        )
    observation = inputs.get("observation") if is_recurrent else inputs
    views = finite("inputs", array_of("inputs", observation, "float32"))
    if views.ndim != 4 or not len(views):
        raise InvalidInput(
            "`inputs` must be preprocessed observations (B, height, width, F) with B > 0; received "
            f"the shape {views.shape}"
        )
    arguments = [views]
    if is_recurrent:
        for name, value in inputs.items():
            finite(name, array_of(name, value, "float32"))
        memory = finite("memory", array_of("memory", memory, "float32"))
        arguments = [{**inputs, "observation": views}, memory]

    def decide(removed):
        outputs = network(*arguments, removed=removed)
        return _array(outputs[0] if is_recurrent else outputs)

    rounds = _rounds(network(*arguments, return_attention_scores=True)[-1])
    if encoder.readout == "cell":
        row, column = encoder.readout_cell
        read = np.full(len(views), row * encoder.grid_shape(views.shape)[1] + column)
    else:
        read = views[..., encoder.readout_feature].reshape(len(views), -1).argmax(axis=1)
    seen = encoder.visible(views)
    candidate = np.ones((len(views), rounds[0].shape[-1]), bool) if seen is None else np.array(seen)
    candidate[np.arange(len(views)), read] = False
    return decide, rounds, read, candidate


def _open_vqa(network, inputs, memory):
    """Return the same of a network that answers one question about each picture."""
    if memory is not None:
        raise InvalidInput("a RelationalVQA takes no `memory`; received one")
    if not isinstance(inputs, Mapping) or set(inputs) != {"images", "questions"}:
        raise InvalidInput(
            '`inputs` of a RelationalVQA must be a dict {"images", "questions"}; received '
            f"{sorted(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__}"
        )
    inputs = {name: finite(name, array_of(name, x, "float32")) for name, x in inputs.items()}
    images, questions = inputs["images"], inputs["questions"]
    if questions.ndim != 3 or questions.shape[1] != 1 or not len(images) == len(questions) > 0:
        raise InvalidInput(
            "`questions` must be (B, 1, bits), one for each of B > 0 pictures; received the shapes "
            f"{images.shape} and {questions.shape}"
        )

    def decide(removed):
        cells = None if removed is None else removed[:, :-1]  # the last entity is the question
        return _array(keras.ops.softmax(network(inputs, removed=cells)))[:, 0]

    rounds = _rounds(network(inputs, return_attention_scores=True)[-1])
    question = np.full(len(images), rounds[0].shape[-1] - 1)
    candidate = np.arange(rounds[0].shape[-1]) < question[:, None]
    return decide, rounds, question, candidate


def _check_answers(answers, size, num_classes):
    if answers is None:
        return None
    answers = array_of("answers", answers, "int64")
    if answers.shape != (size,):
        raise InvalidInput(
            f"`answers` must be one for each picture, ({size},); received the shape {answers.shape}"
        )
    for answer in answers:
        number_from("answers", int(answer), 0, num_classes - 1)
    return answers


def attention_rollout(rounds: Sequence[np.ndarray], entity: np.ndarray) -> np.ndarray:
    """Return how much of every entity reaches one entity by attention and residual connections.

    With `A_l` the mean attention of the heads of round l, it is the entity's row of

        (I + A_L) / 2 · ... · (I + A_1) / 2.

    Args:
        rounds: attention `(B, H, N, N)` of each round, the first to the last.
        entity: `(B,)`, index of the entity.

    Returns:
        `(B, N)`; rows sum to 1 if those of the attention do.

    Raises:
        InvalidInput: if an index is out of range.

    Example:
        >>> uniform = np.full((1, 4, 2, 2), 0.5)  # one round of four heads and two entities
        >>> attention_rollout([uniform], np.array([0]))
        array([[0.75, 0.25]])

    Source: Abnar and Zuidema, "Quantifying attention flow in transformers" (2020).
    """
    entities = rounds[0].shape[-1] if len(rounds) else 0
    if not (np.greater_equal(entity, 0) & np.less(entity, entities)).all():
        raise InvalidInput(
            f"`entity` must be indices of the {entities} entities of {len(rounds)} rounds; "
            f"received {entity!r}"
        )
    row = np.eye(entities)[entity]
    for attention in reversed(rounds):
        row = (row + np.einsum("bn,bnm->bm", row, attention.mean(axis=1))) / 2
    return row


def most_relevant(relevance: np.ndarray, candidate: np.ndarray, count: int) -> np.ndarray:
    """Return a mask `(B, N)` of the `count` most relevant candidates, or of all if fewer."""
    order = np.argsort(-np.where(candidate, relevance, -np.inf), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return candidate & (rank < count)


def _rounds(scores):
    """Return the attention between entities of every round, the first to the last."""
    return [_array(value) for name, value in scores.items() if name.startswith("round_")]


def _array(tensor):
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))
