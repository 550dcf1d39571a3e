"""Run a Keras model, and record or change what it computes at named places.

A model's *rounds* of attention are numbered in the order in which the model computes them. A round
is a call of a `RelationalBlock` or a `CausalTransformerBlock`, or of a
`MultiHeadDotProductAttention` outside of them. It has three places:

- `round_1/before`: the entities that it receives, `(B, N, F)`;
- `round_1/attention`: its attention after the softmax, `(B, H, N, S)`;
- `round_1/after`: the entities that it returns, `(B, N, F)`.

A recurrent network also has `memory/before`, the memory before the step as slots `(B, slots,
units)`, and `block_1/attention`, ..., the attention of a Relational Memory or a window.

A layer that you define is a round if it applies a `keras.layers.Dropout` with the name
`attention_dropout` to its attention. Keras' own `MultiHeadAttention` has no such place.

No layer knows of this module: for the time of one call, it replaces the method `call` of the layers
that have places. Models therefore must run eagerly, not in a compiled function.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from rrl_tf._typing import Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import CausalTransformerBlock, RelationalBlock, RelationalMemoryCell
from rrl_tf.layers.masks import keras_mask_functions
from rrl_tf.models import RecurrentQNetwork

Edits = Mapping[str, Any]
"""Place -> function of the tensor computed there that returns its replacement, or an array."""
FIRST = "round_1/before"
MEMORY = "memory/before"
_ROUNDS = (RelationalBlock, CausalTransformerBlock)


def trace(model: keras.Model, inputs: Any, edits: Edits | None = None) -> dict[str, np.ndarray]:
    """Run a model and return what it computes at every place, optionally with changes.

    Args:
        model: a model with attention or a memory, of this library or your own.
        inputs: the inputs of the model for B states. For a `RecurrentQNetwork`, the dict of one
            step, with the `"memory"` `(B, M)`; without it, the memory is the initial one.
        edits: dict place -> array that replaces what the model computes there, or function of that
            tensor that returns the replacement.

    Returns:
        A dict of float32 arrays: every place (see the top of this module), and `"output"`, the
        model's first output, such as Q values `(B, A)`. For a `RecurrentQNetwork` also
        `"memory/after"` and the gates, `"gates/input"`, ... With edits, places hold the values
        after the change.

    Raises:
        InvalidInput: if the model has no place, if a place of `edits` does not exist, or if a
            replacement has another shape.

    Example:
        >>> from rrl_tf.models import RelationalQNetwork
        >>> model = RelationalQNetwork.from_preset("doorkey-5x5")
        >>> x = np.random.default_rng(0).random((2, *model.input_spec.shape[1:]))
        >>> found = trace(model, x)
        >>> found["round_1/after"].shape, found["round_1/attention"].shape, found["output"].shape
        ((2, 49, 32), (2, 2, 49, 49), (2, 5))
        >>> without = trace(model, x, {"round_2/attention": lambda scores: scores * 0})
        >>> bool((without["output"] == found["output"]).all())
        False
    """
    found: dict[str, Tensor] = {}
    output = run(model, inputs, edits or {}, found)
    return {name: _array(value) for name, value in {**found, "output": output}.items()}


def outputs(model: keras.Model, inputs: Any, edits: Edits | None = None) -> np.ndarray:
    """Return only the output of `trace`, as an array `(B, A)`."""
    output = _array(run(model, inputs, edits or {}, {}))
    return output.reshape(len(output), -1)


def run(model: keras.Model, inputs: Any, edits: Edits, found: dict[str, Tensor]) -> Tensor:
    """Return the output of a model run with `edits`, and write the tensors of places to `found`."""
    if not model.built:
        _call(model, inputs, lambda _, value: value, {})
    places, errors = [], []

    def visit(place, value):
        places.append(place)
        try:
            found[place] = _edited(place, value, edits[place]) if place in edits else value
        except InvalidInput as error:
            errors.append(error)
            raise
        return found[place]

    try:
        with _visited(model, visit):
            output = _call(model, inputs, visit, found)
    except InvalidInput as error:  # Keras has added the arguments of its layers to the message
        raise errors[0] if errors else error from None
    if not places:
        raise InvalidInput(
            "`model` must have attention or a memory, in a layer of rrl_tf or a layer with an "
            f"`attention_dropout`; received {model.name!r} with the layers "
            f"{sorted({type(layer).__name__ for layer, _ in _layers(model)})}"
        )
    for place in edits:
        check_place(place, places)
    return output


def check_place(place: str, places: Iterable[str]) -> None:
    """Raise an `InvalidInput` unless a place is one of those of the model."""
    known = list(dict.fromkeys(places))
    if place not in known:
        raise InvalidInput(
            f"`place` must be one of {', '.join(known)} for this model; received {place!r}"
        )


def entity_places(found: Mapping[str, Any]) -> list[str]:
    """Return the places whose second axis is entities or slots, in the order of computation.

    The entities before a round are left out if they are those after the round before it.
    """
    after = [name for name in found if name.startswith("round") and name.endswith("/after")]
    return [name for name in (MEMORY, FIRST) if name in found] + after


def attention_places(found: Mapping[str, Any]) -> list[str]:
    """Return the places of the attention between entities, one for each round.

    Raises:
        InvalidInput: if there is none.
    """
    names = [name for name in found if name.startswith("round") and name.endswith("/attention")]
    if not names:
        raise InvalidInput(
            f"`model` must have rounds of attention; received one with the places {sorted(found)}"
        )
    return names


def gradient(function: Callable[[Tensor], Tensor], x: np.ndarray) -> np.ndarray:
    """Return the gradient of the sum of `function(x)`; the only code that depends on a backend."""
    values = ops.convert_to_tensor(x)
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(values)
            total = ops.sum(function(values))
        return _array(tape.gradient(total, values))
    if backend == "jax":
        import jax

        return _array(jax.grad(lambda x: ops.sum(function(x)))(values))
    raise InvalidInput(f"gradients need the backend tensorflow or jax; received {backend!r}")


def _call(model, inputs, visit, found):
    """Return the first output of a model, whose attention has the rows of all entities."""
    if isinstance(model, RecurrentQNetwork):
        return _call_recurrent(model, inputs, visit, found)
    has_scores = "return_attention_scores" in inspect.signature(model.call).parameters
    options = {"return_attention_scores": True} if has_scores else {}
    return keras.tree.flatten(model(inputs, **options))[0]


def _call_recurrent(model, inputs, visit, found):
    step, shape = dict(inputs), (-1, _slots(model), model.memory_size // _slots(model))
    memory = step.pop("memory", None)
    if memory is None:
        memory = model.initial_memory(len(step["previous_action"]))
    if model.memory_size:
        memory = visit(MEMORY, ops.reshape(ops.convert_to_tensor(memory), shape))
        memory = ops.reshape(memory, (-1, model.memory_size))
    output, after, _, gates = model(step, memory, return_attention_scores=True, return_gates=True)
    if model.memory_size:
        found["memory/after"] = ops.reshape(after, shape)
    found |= {f"gates/{name}": gate for name, gate in gates.items()}
    return output


def _slots(network):
    """Return the number of slots of a memory: of an LSTM two, h and c; of a window its steps."""
    cell = getattr(network.core_layer, "cell", None)
    slots = {"lstm": 2, "window": getattr(network.core_layer, "context_length", 2) - 1}
    return slots.get(network.core, 1) if cell is None else cell.mem_slots


@contextlib.contextmanager
def _visited(model: keras.Model, visit: Callable[[str, Tensor], Tensor]) -> Iterator[None]:
    """Let the layers of a model call `visit(place, tensor)`, and continue with what it returns."""
    hooked, rounds, blocks = [], itertools.count(1), itertools.count(1)
    for dropout, owners in list(_layers(model)):
        if dropout.name != "attention_dropout" or not owners:
            continue
        owner = next((each for each in owners if isinstance(each, _ROUNDS)), owners[-1])
        fixed = f"block_{next(blocks)}" if any(map(_is_memory, owners)) else None
        current = [fixed]
        hooked += [(owner, _round_call(owner, current, fixed, rounds, visit))]
        hooked += [(dropout, _attention_call(dropout, current, visit))]
    for layer, call in hooked:
        layer.__dict__["call"] = call  # not `setattr`, with which Keras would track the function
    try:
        yield
    finally:
        for layer, _ in hooked:
            layer.__dict__.pop("call", None)


def _round_call(layer, current, fixed, rounds, visit):
    """Return a `call` that visits the entities before and after a round.

    It always requests the scores, because a layer may otherwise compute queries in chunks.
    """
    call, name = layer.call, "return_attention_scores"
    has_scores = name in inspect.signature(call).parameters

    def visited(inputs, *args, **kwargs):
        current[0] = place = fixed or f"round_{next(rounds)}"
        scores = {name: True} if has_scores else {}
        result = call(visit(f"{place}/before", inputs), *args, **{**kwargs, **scores})
        if not isinstance(result, tuple):
            return visit(f"{place}/after", result)
        after = visit(f"{place}/after", result[0])
        return after if has_scores and not kwargs.get(name) else (after, *result[1:])

    return visited


def _attention_call(layer, current, visit):
    """Return a `call` that visits attention; of another rank are outputs of a transformer block."""
    call = layer.call

    def visited(scores, *args, **kwargs):
        scores = call(scores, *args, **kwargs)
        return visit(f"{current[0]}/attention", scores) if len(scores.shape) == 4 else scores

    return visited


def _is_memory(layer):
    has_memory = hasattr(layer, "memory_size") and not isinstance(layer, keras.Model)
    return has_memory or isinstance(layer, RelationalMemoryCell)


def _layers(layer, owners=()):
    """Yield every layer below a layer, with the layers that contain it, the outermost first."""
    if isinstance(layer, keras.Model):
        parts = layer.layers
    else:
        parts = keras.tree.flatten({n: part for n, part in vars(layer).items() if n[0] != "_"})
    for part in parts:
        if isinstance(part, keras.layers.Layer) and part not in owners:
            yield part, (*owners, layer)
            yield from _layers(part, (*owners, layer))


def _edited(place, value, edit):
    """Return the replacement of a tensor, with the mask that Keras has attached to the tensor."""
    new = ops.cast(ops.convert_to_tensor(edit(value) if callable(edit) else edit), value.dtype)
    if tuple(new.shape) != tuple(value.shape):
        raise InvalidInput(
            f"the replacement at {place!r} must have the shape {tuple(value.shape)}, of the states "
            f"that the model runs on; received {tuple(new.shape)}"
        )
    get_mask, set_mask = keras_mask_functions()
    if get_mask(value) is not None:
        set_mask(new, get_mask(value))
    return new


def _array(tensor):
    return np.array(ops.convert_to_numpy(ops.cast(tensor, "float32")))
