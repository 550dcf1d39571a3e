"""Measure whether attention explains a network's decisions.

If attention explains a decision, removing the most attended entities should change the decision,
and removing the least attended ones should not (Samek et al., 2017).

- Removing an entity masks it in every round of attention, like an entity that is not visible. The
  inputs do not change, so a convolution over several cells still includes removed cells.
- The candidates for removal are the visible entities, except the one that the Q values are read
  from and, in visual question answering, the question.
- If there are fewer than k candidates, all of them are removed.

Source: Samek et al., "Evaluating the visualization of what a deep neural network has learned"
(2017). Jain and Wallace, "Attention is not explanation" (2019), ask whether attention explains
decisions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from rrl_tf._arguments import array_of, finite, integers_from, natural, number_from, positive_int
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret.attribution import attention_rollout, most_relevant, read_entity
from rrl_tf.models import RelationalVQA
from rrl_tf.models.relational_q_network import RelationalEncoder

MOST, LEAST, LAST, RANDOM = "most attended", "least attended", "most, last round", "at random"


@dataclasses.dataclass(frozen=True)
class Faithfulness:
    """The effect of removing entities on a network's choice, an action or an answer.

    Values of the order `"at random"` are means over draws. Other orders have one draw.

    Attributes:
        counts: `(K,)` int, numbers of removed entities.
        drop: dict order -> `(K, B)`, decrease of the Q value of the originally chosen action, or of
            the probability of the original answer.
        kept: dict order -> `(K, B)`, fraction of draws in which the choice stays the same.
        candidates: `(B,)` int, number of entities that could be removed.
        most_attended: `(B,)` int, index of the entity that the order `"most attended"` removes
            first; arbitrary if there are no candidates.
        accuracy_drop: dict order -> `(K, B)`, decrease of the accuracy: 1 for a correct and 0 for a
            wrong original answer, minus the fraction of draws with a correct answer. `None` if no
            `answers` were given.
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
    """Measure how a network's choice changes if k entities are removed, in four orders.

    The orders are:

    - `"most attended"`: the k most attended entities, as measured by `attention_rollout`.
    - `"most, last round"`: the same, but from the attention of the last round only.
    - `"least attended"`: the k least attended entities, as measured by `attention_rollout`.
    - `"at random"`: k random entities.

    Args:
        network: a `RelationalQNetwork` that computes Q values from one cell, such as the
            architecture `"fast"`; a `RecurrentQNetwork` with such an encoder; or a `RelationalVQA`.
        inputs: preprocessed observations `(B, height, width, F)` for a `RelationalQNetwork`; a dict
            of inputs for the other networks. A `RelationalVQA` gets one question per picture.
        memory: `(B, M)`, memory of a `RecurrentQNetwork`, in which nothing is removed; `None` for
            other networks.
        answers: `(B,)` int, correct answers for a `RelationalVQA`; `None` skips `accuracy_drop`.
        counts: numbers k of entities to remove, or one number.
        draws: number of random selections per observation.
        seed: seed of the random selections, a non-negative integer.

    Returns:
        `Faithfulness`.

    Raises:
        InvalidInput: if the network is not supported, or an argument does not fit the network.

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
            raise InvalidInput("`answers` must be None for a Q network; received answers")
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
    """Return `(K, 3, B)`: the `drop`, `kept` and `accuracy_drop` for one order of removal."""
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
    """Return what `_measure` needs of a Q network.

    These are a function from removed entities `(B, N)` to Q values, the attention of each round,
    the entities `(B,)` from which Q values are computed, and a mask `(B, N)` of the candidates.
    """
    encoder = getattr(network, "encoder_layer", network)
    if not (isinstance(encoder, RelationalEncoder) and encoder.readout in ("cell", "feature")):
        raise InvalidInput(
            "`network` must be a RelationalVQA, or a Q network with attention between entities "
            f"whose readout is 'cell' or 'feature'; received {network!r}"
        )
    is_recurrent = encoder is not network
    if is_recurrent != isinstance(inputs, Mapping) or is_recurrent != (memory is not None):
        expected = "a dict with a `memory`" if is_recurrent else "an array without a `memory`"
        raise InvalidInput(
            f"`inputs` must be {expected} for this network; received {type(inputs).__name__} and "
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
    read = read_entity(network, views)
    seen = encoder.visible(views)
    candidate = np.ones((len(views), rounds[0].shape[-1]), bool) if seen is None else np.array(seen)
    candidate[np.arange(len(views)), read] = False
    return decide, rounds, read, candidate


def _open_vqa(network, inputs, memory):
    """Return what `_open_agent` returns, for a network that answers one question per picture."""
    if memory is not None:
        raise InvalidInput("`memory` must be None for a RelationalVQA; received a memory")
    if not isinstance(inputs, Mapping) or set(inputs) != {"images", "questions"}:
        raise InvalidInput(
            '`inputs` of a RelationalVQA must be a dict {"images", "questions"}; received '
            f"{sorted(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__}"
        )
    inputs = {name: finite(name, array_of(name, x, "float32")) for name, x in inputs.items()}
    images, questions = inputs["images"], inputs["questions"]
    if questions.ndim != 3 or questions.shape[1] != 1 or not len(images) == len(questions) > 0:
        raise InvalidInput(
            "`questions` must have shape (B, 1, bits), one for each of B > 0 pictures; received "
            f"pictures of shape {images.shape} and questions of shape {questions.shape}"
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
            f"`answers` must have shape ({size},), one per picture; received shape {answers.shape}"
        )
    for answer in answers:
        number_from("answers", int(answer), 0, num_classes - 1)
    return answers


def _rounds(scores):
    """Return the attention between entities in each round, from the first to the last."""
    return [_array(value) for name, value in scores.items() if name.startswith("round_")]


def _array(tensor):
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))
