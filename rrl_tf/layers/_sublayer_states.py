"""Define functions that save and restore what Keras' methods change in the parts of a layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras


def sublayer_states(layer: keras.layers.Layer) -> dict[str, dict[str, Any]]:
    """Return the state of every sublayer that the constructor arguments do not determine.

    The state comprises the dtype policy, which `quantize` changes, the rank of `enable_lora`, and
    whether the sublayer is frozen.

    Returns:
        Dict path -> state, which JSON can represent. It is empty if all sublayers are as the
        constructor makes them.
    """
    policy = layer.dtype_policy
    states = {path: _state(sublayer) for path, sublayer in _sublayers(layer, "", {id(layer)})}
    # Under a mixed policy, the constructor gives some sublayers full precision.
    is_mixed = policy.compute_dtype != policy.variable_dtype
    as_constructed = {"dtype": keras.dtype_policies.serialize(policy), "trainable": True}
    changed = is_mixed or any(state != as_constructed for state in states.values())
    return states if changed else {}


def restore_sublayers(layer: keras.layers.Layer, states: Mapping[str, Mapping[str, Any]]) -> None:
    """Bring the sublayers of a built layer to the `states` that `sublayer_states` returned."""
    sublayers = dict(_sublayers(layer, "", {id(layer)}))
    for path, state in states.items():
        sublayer, policy = sublayers[path], keras.dtype_policies.get(state["dtype"])
        if policy.quantization_mode is not None:
            config = keras.saving.deserialize_keras_object(state["quantization_config"])
            sublayer.quantize(policy.quantization_mode, config=config)
        sublayer.dtype_policy = policy
        if "lora_rank" in state:
            sublayer.enable_lora(state["lora_rank"], lora_alpha=state["lora_alpha"])
    # Parents come first, because an assignment also changes all sublayers. Assigning an unchanged
    # value would make the kernel of a layer with LoRA trainable.
    for path, state in states.items():
        is_trainable = state.get("trainable", True)
        if sublayers[path].trainable != is_trainable:
            sublayers[path].trainable = is_trainable


def _state(layer):
    state = {
        "dtype": keras.dtype_policies.serialize(layer.dtype_policy),
        "trainable": layer.trainable,
    }
    if layer.quantization_mode is not None:
        config = keras.saving.serialize_keras_object(layer.quantization_config)
        state["quantization_config"] = config
    if getattr(layer, "lora_enabled", False):
        state |= {"lora_rank": layer.lora_rank, "lora_alpha": layer.lora_alpha}
    return state


def _sublayers(
    layer: keras.layers.Layer, prefix: str, found: set[int]
) -> Iterator[tuple[str, keras.layers.Layer]]:
    """Yield the path, such as `blocks/0/attention`, and the layer of every sublayer once."""
    if isinstance(layer, keras.Sequential):
        attributes = {"layers": layer.layers}
    else:
        attributes = {name: part for name, part in vars(layer).items() if name[0] != "_"}
    for path, sublayer in keras.tree.flatten_with_path(attributes):
        if isinstance(sublayer, keras.layers.Layer) and id(sublayer) not in found:
            found.add(id(sublayer))
            name = prefix + "/".join(map(str, path))
            yield name, sublayer
            yield from _sublayers(sublayer, f"{name}/", found)
