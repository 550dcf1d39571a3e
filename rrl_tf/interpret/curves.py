"""Deletion and insertion curves: does an attribution rank the entities that the choice needs?"""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np

from rrl_tf._arguments import array_of, natural, positive_int
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret.attribution import hide, most_relevant, read_entity
from rrl_tf.interpret.effects import interval
from rrl_tf.interpret.places import attention_places, outputs, trace


@dataclasses.dataclass(frozen=True)
class RemovalCurves:
    """The output of the original choice while entities are removed or inserted.

    Attributes:
        fractions: `(K,)`, fractions of the entities that are removed or inserted.
        curves: dict `"deletion"`, `"insertion"`, `"deletion, random"` and `"insertion, random"` ->
            outputs `(K, B)`. Random curves are means over draws.
    """

    fractions: np.ndarray
    curves: dict[str, np.ndarray]

    @property
    def area(self) -> dict[str, np.ndarray]:
        """The area under each curve, `(B,)`: the mean output over the fractions."""
        return {
            name: np.trapezoid(values, self.fractions, axis=0)
            for name, values in self.curves.items()
        }

    def rows(self) -> list[dict[str, object]]:
        """Return a table of the areas: means over states, with 95 % intervals.

        The rows `better than random` have the area below random for deletion and above random for
        insertion, so that positive numbers speak for the attribution.
        """
        area = self.area
        for kind, sign in (("deletion", -1), ("insertion", 1)):
            area[f"{kind}, better than random"] = sign * (area[kind] - area[f"{kind}, random"])
        return [
            {"curve": name, "area": float(each.mean()), "low": float(low), "high": float(high)}
            for name, each in area.items()
            for low, high in [interval(each)]
        ]


def removal_curves(
    model: keras.Model,
    inputs: Any,
    relevance: np.ndarray,
    candidate: np.ndarray | None = None,
    points: int = 9,
    draws: int = 3,
    seed: int = 0,
) -> RemovalCurves:
    """Remove entities from the most to the least relevant one, and insert them in the same order.

    A removed entity gets no attention in any round (see `hide` in `rrl_tf.interpret.attribution`).
    If the relevance identifies what the choice depends on, deletion lowers the output early, and
    insertion restores it early.

    Args:
        model: as for `trace`; it must have rounds of attention.
        inputs: inputs of the model for B states.
        relevance: `(B, N)`, such as the result of an attribution.
        candidate: `(B, N)` bool, entities that may be removed. `None` means those that receive
            attention in the first round, without the entity that Q values are read from.
        points: K, number of fractions from 0 to 1.
        draws: number of random orders.
        seed: seed of the random orders.

    Returns:
        `RemovalCurves`.

    Raises:
        InvalidInput: if an array has a wrong shape, or the model has no rounds of attention.

    Example:
        >>> from rrl_tf.interpret import occlusion
        >>> from rrl_tf.models import RelationalQNetwork
        >>> model, x = RelationalQNetwork.from_preset("doorkey-5x5"), np.ones((1, 7, 7, 24))
        >>> removal_curves(model, x, occlusion(model, x), points=3).curves["deletion"].shape
        (3, 1)

    Source: Samek et al., "Evaluating the visualization of what a deep neural network has learned"
    (2017); Petsiuk, Das and Saenko, "RISE" (2018).
    """
    found, rng = trace(model, inputs), np.random.default_rng(natural("seed", seed))
    received = found[attention_places(found)[0]].sum(axis=(1, 2))
    if candidate is None:
        candidate, read = received > 0, read_entity(model, inputs)
        if read is not None:
            candidate[np.arange(len(candidate)), read] = False
    candidate = array_of("candidate", candidate, bool)
    relevance = array_of("relevance", relevance, "float64")
    for name, each in (("relevance", relevance), ("candidate", candidate)):
        if each.shape != received.shape:
            raise InvalidInput(
                f"`{name}` must be (B, N), here {received.shape}; received {each.shape}"
            )
    fractions = np.linspace(0, 1, positive_int("points", points))
    before = outputs(model, inputs)
    rows, choice = np.arange(len(before)), before.argmax(axis=1)

    def curve(order, insert=False):
        values = []
        for fraction in fractions:
            count = np.rint(fraction * candidate.sum(axis=1, keepdims=True))
            moved = most_relevant(order, candidate, count)
            removed = candidate & ~moved if insert else moved
            values.append(outputs(model, inputs, hide(model, found, removed))[rows, choice])
        return np.array(values)

    orders = rng.random((positive_int("draws", draws), *relevance.shape))
    random = np.mean([curve(order) for order in orders], axis=0)
    curves = {"deletion": curve(relevance), "insertion": curve(relevance, insert=True)}
    curves |= {"deletion, random": random, "insertion, random": random[::-1]}
    return RemovalCurves(fractions, curves)
