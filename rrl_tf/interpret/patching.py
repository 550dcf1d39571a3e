"""Activation patching: run a model on one state with the activations of another."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from rrl_tf._arguments import array_of
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret.effects import Effects
from rrl_tf.interpret.places import check_place, entity_places, outputs, trace


@dataclasses.dataclass(frozen=True)
class Patching(Effects):
    """The effect of patching entities at places; `after` is `(P, E, B, A)` for P places, the names.

    Attributes:
        donor: `(B, A)`, outputs for the donors.
    """

    donor: np.ndarray

    @property
    def taken(self) -> np.ndarray:
        """Whether the state's choice becomes that of its donor, `(P, E, B)`."""
        return self.after.argmax(axis=-1) == self.donor.argmax(axis=-1)

    @property
    def table(self) -> np.ndarray:
        """The mean absolute change of the outputs, a (place x entity) table `(P, E)`."""
        return np.abs(self.after - self.before).mean(axis=(-2, -1))

    def rows(self) -> list[dict[str, object]]:
        """Return the table with one row per place and entity, and the fraction of taken choices.

        The fraction counts only states whose choice differs from that of their donor.
        """
        differs = self.donor.argmax(axis=-1) != self.choice
        taken = self.taken[..., differs].mean(axis=-1) if differs.any() else 0 * self.table
        return [
            {
                "place": self.names[place],
                "entity": entity,
                "change of the output": float(self.table[place, entity]),
                "takes the donor's choice": float(taken[place, entity]),
            }
            for place, entity in np.ndindex(self.table.shape)
        ]


def patch(
    model: keras.Model,
    inputs: Any,
    donors: Any,
    places: Sequence[str] | None = None,
    entities: Any = None,
    donor_entities: Any = None,
) -> Patching:
    """Replace one entity's activation by that of another state, for every place and entity.

    Args:
        model: as for `trace`.
        inputs: inputs of the model for B states.
        donors: inputs of the same shapes; state b receives an activation of donor b.
        places: places to patch, one at a time: `round_1/before`, `round_1/after`, ... or
            `memory/before`, whose entities are slots. `None` means the memory, the entities before
            the first round and those after each round, as far as the model has them.
        entities: the E entities to patch, one at a time: indices `(E,)` or, for another entity in
            every state, `(E, B)`. `None` means all; places with fewer entities are then left out.
        donor_entities: the donor's entity that each of `entities` receives, of the same shape.
            `None` means the same index.

    Returns:
        `Patching`.

    A mask of invisible entities comes from the state and is not patched.

    Raises:
        InvalidInput: if a place does not exist or holds no entities, an index is out of range, or
            the donors have other shapes than the states.

    Example:
        >>> from rrl_tf import envs, models
        >>> task = envs.doorkey_task((5,))
        >>> views = np.stack([task.make_env().reset(seed=seed)[0] for seed in range(4)])
        >>> model = models.RelationalQNetwork.from_preset("doorkey-5x5")
        >>> x = np.array(task.preprocessor(views))
        >>> found = patch(model, x, x[::-1], ["round_2/after"])
        >>> found.table.shape, int(found.table.argmax())  # the Q values are read from cell (3, 6)
        ((1, 49), 27)
    """
    found, donor = trace(model, inputs), trace(model, donors)
    places = entity_places(found) if places is None else list(places)
    for place in places:
        check_place(place, [name for name, each in found.items() if "/" in name and each.ndim == 3])
        if found[place].shape != donor[place].shape:
            raise InvalidInput(
                f"`donors` must have the shapes of `inputs`, here {found[place].shape} at "
                f"{place!r}; received donors with {donor[place].shape}"
            )
    if entities is None:
        most = max(found[place].shape[1] for place in places)
        places = [place for place in places if found[place].shape[1] == most]
        entities = np.arange(most)
    to, source = (
        _indices(entities if each is None else each, found, places)
        for each in (entities, donor_entities)
    )
    after = [
        [
            outputs(model, inputs, {place: _replaced(found[place], donor[place], *pair)})
            for pair in zip(to, source)
        ]
        for place in places
    ]
    return Patching(tuple(places), _flat(found), np.array(after), _flat(donor))


def _flat(found):
    return found["output"].reshape(len(found["output"]), -1)


def _indices(entities, found, places):
    """Return indices `(E, B)`, or raise an `InvalidInput` if one is out of range."""
    indices = array_of("entities", entities, "int64")
    size = min(found[place].shape[1] for place in places)
    if indices.ndim not in (1, 2) or not ((indices >= 0) & (indices < size)).all():
        raise InvalidInput(
            f"`entities` must be indices (E,) or (E, B) of the {size} entities at "
            f"{', '.join(places)}; received {entities!r}"
        )
    count = len(found["output"])
    return np.broadcast_to(indices.reshape(len(indices), -1), (len(indices), count))


def _replaced(own, other, entity, source):
    """Return activations `(B, N, F)` whose `entity` `(B,)` is the `source` of other activations."""
    rows, result = np.arange(len(own)), own.copy()
    result[rows, entity] = other[rows, source]
    return ops.convert_to_tensor(result)
