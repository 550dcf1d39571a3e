"""Linear probes: what can be decoded from a model's activations, with two controls."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from rrl_tf._arguments import array_of, natural, number_from, positive_int
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret.places import check_place, entity_places, trace

SHUFFLES = 5


@dataclasses.dataclass(frozen=True)
class Probe:
    """Results of a linear probe. Accuracies are balanced: the mean of the accuracies of each class.

    Attributes:
        accuracy: balanced accuracy on held-out states.
        shuffled: the same with shuffled labels, a mean over five shuffles.
        chance: 1 / number of classes.
    """

    accuracy: float
    shuffled: float
    chance: float


def probe(
    features: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray | None = None,
    folds: int = 5,
    ridge: float = 1.0,
    seed: int = 0,
) -> Probe:
    """Decode labels from features by a linear classifier, with cross-validation.

    The classifier is a ridge regression to one output per class on standardised features.

    Args:
        features: `(B, ...)`, activations of B states; further axes are flattened.
        labels: `(B,)`, integers, bools or strings.
        groups: `(B,)`, such as the number of the episode; states of a group are in the same fold,
            because neighbouring states are alike. `None` makes every state its own group.
        folds: number of folds, at least 2.
        ridge: weight of the penalty.
        seed: seed of the folds and the shuffles.

    Returns:
        `Probe`.

    Raises:
        InvalidInput: if shapes do not fit, there is one class only, or there are fewer groups than
            folds.

    Example:
        >>> features = np.random.default_rng(0).normal(size=(100, 3))
        >>> found = probe(features, features[:, 0] > 0)
        >>> found.accuracy > 0.9, found.chance
        (True, 0.5)
    """
    number_from("folds", positive_int("folds", folds), 2)
    features = array_of("features", features, "float64")
    features, labels = features.reshape(len(features), -1), np.asarray(labels)
    groups = np.arange(len(labels)) if groups is None else np.asarray(groups)
    classes, targets = np.unique(labels, return_inverse=True)
    rng = np.random.default_rng(natural("seed", seed))
    names = rng.permutation(np.unique(groups))
    fits = labels.shape == groups.shape == (len(features),)
    if not fits or len(classes) < 2 or len(names) < folds:
        raise InvalidInput(
            f"`labels` and `groups` must have the shape ({len(features)},), at least two classes "
            f"and {folds} groups; received the shapes {labels.shape} and {groups.shape}, "
            f"{len(classes)} classes and {len(names)} groups"
        )
    parts = [np.isin(groups, part) for part in np.array_split(names, folds)]
    number_from("ridge", ridge, 0)
    shuffled = [rng.permutation(targets) for _ in range(SHUFFLES)]
    accuracy, *controls = _accuracies(features, [targets, *shuffled], parts, ridge)
    return Probe(accuracy, float(np.mean(controls)), 1 / len(classes))


def _accuracies(features, labelings, parts, ridge):
    """Return the balanced accuracy of every labeling on the held-out `parts`."""
    count = labelings[0].max() + 1
    targets = np.eye(count)[np.array(labelings)].transpose(1, 0, 2)  # (B, labelings, classes)
    predicted = np.zeros(targets.shape[:2], int)
    for held_out in parts:
        known, mean = features[~held_out], features[~held_out].mean(axis=0)
        scale = known.std(axis=0) + 1e-6
        known, new = (known - mean) / scale, (features[held_out] - mean) / scale
        average = targets[~held_out].mean(axis=0)
        residuals = (targets[~held_out] - average).reshape(len(known), -1)
        # The dual form, because there are often more features than states.
        weights = np.linalg.solve(known @ known.T + ridge * np.eye(len(known)), residuals)
        scores = (new @ known.T @ weights).reshape(len(new), *average.shape) + average
        predicted[held_out] = scores.argmax(axis=-1)
    hits = predicted == np.array(labelings).T
    return [
        float(np.mean([hit[labels == each].mean() for each in range(count)]))
        for hit, labels in zip(hits.T, labelings)
    ]


def probe_places(
    model: keras.Model,
    inputs: Any,
    labels: Mapping[str, np.ndarray],
    groups: np.ndarray | None = None,
    places: Sequence[str] | None = None,
    entity: np.ndarray | None = None,
    **options: Any,
) -> list[dict[str, object]]:
    """Probe every place of a model for every label, also in an untrained copy of the model.

    Args:
        model: as for `trace`.
        inputs: inputs of the model for B states.
        labels: dict name -> `(B,)`.
        groups: as for `probe`.
        places: places to probe. `None` means the memory, the entities before the first round and
            those after each round.
        entity: `(B,)`, index of the entity to decode from; `None` decodes from all entities.
        **options: `folds`, `ridge` and `seed` of `probe`.

    Returns:
        A table, a list of dicts with the keys `place`, `label`, `accuracy`, `shuffled labels`,
        `untrained network` and `chance`.

    Raises:
        InvalidInput: as for `probe`, or if a place does not exist.

    Example:
        >>> from rrl_tf.models import RelationalQNetwork
        >>> x = np.random.default_rng(0).random((60, 7, 7, 24))
        >>> labels = {"first feature": x[:, 3, 6, 1] > 0.5}
        >>> model = RelationalQNetwork.from_preset("doorkey-5x5")
        >>> len(probe_places(model, x, labels, places=["round_1/before"], folds=2))
        1
    """
    found, control = trace(model, inputs), trace(untrained(model), inputs)
    rows: list[dict[str, object]] = []
    for place in entity_places(found) if places is None else places:
        check_place(place, [name for name in found if name != "output"])
        for name, each in labels.items():
            trained, blank = (
                probe(_features(values[place], entity), each, groups, **options)
                for values in (found, control)
            )
            rows.append(
                {
                    "place": place,
                    "label": name,
                    "accuracy": trained.accuracy,
                    "shuffled labels": trained.shuffled,
                    "untrained network": blank.accuracy,
                    "chance": trained.chance,
                }
            )
    return rows


def _features(values, entity):
    return values if entity is None else values[np.arange(len(values)), entity]


def untrained(model: keras.Model) -> keras.Model:
    """Return a model of the same architecture with new random weights.

    For the same weights again, call `keras.utils.set_random_seed` first.
    """
    twin = type(model).from_config(model.get_config())
    if not twin.built:
        twin.build_from_config(model.get_build_config())
    return twin
