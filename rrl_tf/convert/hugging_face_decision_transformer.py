"""Weights of the Decision Transformers on the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from rrl_tf.convert._assign import Assignment, assign, torch_layer_norm, torch_linear
from rrl_tf.convert.min_decision_transformer import check_model, table_assignment
from rrl_tf.models import DecisionTransformer

# Causal masks of older versions, and GPT-2's table of words, which nothing looks up.
_LEFTOVERS = re.compile(r"encoder\.(h\.\d+\.attn\.(bias|masked_bias)|wte\.weight)")


def hugging_face_decision_transformer(
    model: DecisionTransformer, state_dict: Mapping[str, Any]
) -> DecisionTransformer:
    """Fills a model with the weights of transformers' `DecisionTransformerModel`.

    The GPT-2 in it keeps its position embedding and gives every token position 0, which adds one
    constant vector to all of them: it goes into the bias of the embedding's norm.

    Args:
        model: the built model, `DecisionTransformer.from_preset("paper", max_timestep=4096, ...)`
            with the checkpoint's sizes; it is filled in place.
        state_dict: mapping from the original's names to arrays (NumPy, or what has `.numpy()`).

    Returns:
        `model`.

    Raises:
        InvalidInput: if the model is not built or computes something else, or listing every name
            that is missing, unknown or wrongly shaped. The model stays as it was.

    Example:

    >>> from rrl_tf.models import DecisionTransformer
    >>> model = DecisionTransformer.from_preset(
    ...     "paper", state_size=11, action_size=3, max_timestep=4096
    ... )
    >>> model.build()
    >>> path = "decision-transformer-gym-hopper-medium/pytorch_model.bin"
    >>> state_dict = torch.load(path)  # doctest: +SKIP
    >>> model = hugging_face_decision_transformer(model, state_dict)  # doctest: +SKIP
    """
    check_model(model, "paper")
    embedding = model.embedding
    gain, bias = torch_layer_norm("embed_ln", embedding.norm)
    # How many positions there are says the checkpoint; of any number, one vector is used.
    positions = _rows(state_dict, "encoder.wpe.weight")
    bias = Assignment(
        bias.variable,
        {**bias.sources, "encoder.wpe.weight": (positions, embedding.width)},
        lambda bias, positions: bias + positions[0],
    )
    assignments = [
        table_assignment("embed_timestep", embedding),
        *torch_linear("embed_return", embedding.return_to_go),
        *torch_linear("embed_state", embedding.state),
        *torch_linear("embed_action", embedding.action),
        gain,
        bias,
        *torch_layer_norm("encoder.ln_f", model.final_norm),
        *torch_linear("predict_return", model.predictors["return"]),
        *torch_linear("predict_state", model.predictors["state"]),
        *torch_linear("predict_action.0", model.predictors["action"]),
    ]
    for i, block in enumerate(model.blocks):
        assignments += _block(f"encoder.h.{i}", block)
    leftovers = [name for name in state_dict if _LEFTOVERS.fullmatch(name)]
    assign(state_dict, assignments, leftovers=leftovers)
    return model


def _block(name, block):
    return [
        *_query_key_value(f"{name}.attn.c_attn", block),
        *_conv1d(f"{name}.attn.c_proj", block.projection),
        *_conv1d(f"{name}.mlp.c_fc", block.hidden),
        *_conv1d(f"{name}.mlp.c_proj", block.output_dense),
        *torch_layer_norm(f"{name}.ln_1", block.attention_norm),
        *torch_layer_norm(f"{name}.ln_2", block.output_norm),
    ]


def _rows(state_dict, name):
    return np.shape(state_dict[name])[0] if np.ndim(state_dict.get(name)) else 1


def _conv1d(name, dense):
    """GPT-2's `Conv1D` is a linear layer whose weight is `(in, out)`, as ours."""
    return [
        Assignment(dense.kernel, {f"{name}.weight": tuple(dense.kernel.shape)}),
        Assignment(dense.bias, {f"{name}.bias": tuple(dense.bias.shape)}),
    ]


def _query_key_value(name, block):
    """One layer with columns `[q | k | v]` becomes our two, `[q]` and `[k | v]`."""
    width = block.query.units
    weight = {f"{name}.weight": (width, 3 * width)}
    bias = {f"{name}.bias": (3 * width,)}
    return [
        Assignment(block.query.kernel, weight, lambda array: array[:, :width]),
        Assignment(block.query.bias, bias, lambda array: array[:width]),
        Assignment(block.key_value.kernel, weight, lambda array: array[:, width:]),
        Assignment(block.key_value.bias, bias, lambda array: array[width:]),
    ]
