"""Load weights of the repository min-decision-transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from rrl_tf.convert._assign import (
    Assignment,
    assign,
    check_built,
    check_same_network,
    different_arguments,
    torch_layer,
    torch_layer_norm,
)
from rrl_tf.models import DecisionTransformer


def min_decision_transformer(
    model: DecisionTransformer, state_dict: Mapping[str, Any]
) -> DecisionTransformer:
    """Fill a model with the weights of min-decision-transformer's `DecisionTransformer`.

    Args:
        model: a built `DecisionTransformer.from_preset("min-dt", ...)` of any size; it is filled in
            place.
        state_dict: mapping from the original's names to arrays (NumPy, or objects with `.numpy()`),
            as `torch_module.state_dict()` returns it and the repository's `.pt` files contain it.

    Returns:
        `model`.

    Raises:
        InvalidInput: if the model is not built or does not compute the original's function, or
            if names are missing, unknown or have a wrong shape. The message lists all of these
            names, and the model is unchanged.

    Example:

    >>> model = DecisionTransformer.from_preset("min-dt", state_size=17, action_size=6)
    >>> model.build()
    >>> checkpoint = torch.load("dt_walker2d.pt")  # doctest: +SKIP
    >>> model = min_decision_transformer(model, checkpoint)  # doctest: +SKIP
    """
    check_model(model, "min-dt")
    embedding = model.embedding
    assignments = [
        table_assignment("embed_timestep", embedding),
        *torch_layer("embed_rtg", embedding.return_to_go),
        *torch_layer("embed_state", embedding.state),
        *torch_layer("embed_action", embedding.action),
        *torch_layer_norm("embed_ln", embedding.norm),
        *torch_layer("predict_rtg", model.predictors["return"]),
        *torch_layer("predict_state", model.predictors["state"]),
        *torch_layer("predict_action.0", model.predictors["action"]),
    ]
    masks = []
    for i, block in enumerate(model.blocks):
        name = f"transformer.{i}"
        masks.append(f"{name}.attention.mask")
        assignments += [
            *torch_layer(f"{name}.attention.q_net", block.query),
            *_key_value(f"{name}.attention", block.key_value),
            *torch_layer(f"{name}.attention.proj_net", block.projection),
            *torch_layer(f"{name}.mlp.0", block.hidden),
            *torch_layer(f"{name}.mlp.2", block.output_dense),
            *torch_layer_norm(f"{name}.ln1", block.attention_norm),
            *torch_layer_norm(f"{name}.ln2", block.output_norm),
        ]
    assign(state_dict, assignments, leftovers=masks)
    return model


def check_model(model: DecisionTransformer, preset: str) -> None:
    """Raise an `InvalidInput` unless the model is built and has the architecture, of any size."""
    check_built(model, [DecisionTransformer], "model.build()")
    original = DecisionTransformer.from_preset(preset, state_size=1, action_size=1)
    # Dropout rates, sizes and initialisers do not change the meaning of the weights.
    names = ("positions", "norm", "activation", "epsilon", "discrete", "distribution", "heads")
    differences = different_arguments(model, original, names)
    check_same_network(model, f"DecisionTransformer.from_preset({preset!r}, ...)", differences)


def table_assignment(name: str, embedding: keras.layers.Layer) -> Assignment:
    """Return the assignment of the embedding table of the time steps."""
    table = embedding.timestep.embeddings
    return Assignment(table, {f"{name}.weight": tuple(table.shape)})


def _key_value(name, dense):
    """Return the assignments of the original's key and value layers to our one layer."""
    inputs, outputs = dense.kernel.shape
    half = outputs // 2
    names = (f"{name}.k_net", f"{name}.v_net")
    return [
        Assignment(
            dense.kernel,
            {f"{n}.weight": (half, inputs) for n in names},
            lambda *weights: np.concatenate([weight.T for weight in weights], axis=1),
        ),
        Assignment(
            dense.bias,
            {f"{n}.bias": (half,) for n in names},
            lambda *biases: np.concatenate(biases),
        ),
    ]
