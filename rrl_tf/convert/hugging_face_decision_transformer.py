"""Load weights of the Decision Transformers on the Hugging Face Hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from rrl_tf.convert._assign import Assignment, assign, torch_layer, torch_layer_norm
from rrl_tf.convert.min_decision_transformer import check_model, table_assignment
from rrl_tf.models import DecisionTransformer

# Causal masks, which older versions store, and GPT-2's unused word embeddings.
_LEFTOVERS = re.compile(r"encoder\.(h\.\d+\.attn\.(bias|masked_bias)|wte\.weight)")


def hugging_face_decision_transformer(
    model: DecisionTransformer, state_dict: Mapping[str, Any]
) -> DecisionTransformer:
    """Fill a model with the weights of transformers' `DecisionTransformerModel`.

    In transformers' model, GPT-2 adds the position embedding of index 0 to every token. Our model
    has no such embedding, so this function adds the vector to the bias of the layer normalisation
    that produces the tokens.

    Args:
        model: a built `DecisionTransformer.from_preset("paper", max_timestep=4096, ...)` with the
            sizes of the checkpoint; it is filled in place.
        state_dict: mapping from the original's names to arrays (NumPy, or objects with `.numpy()`).

    Returns:
        `model`.

    Raises:
        InvalidInput: if the model is not built or does not compute the original's function, or
            if names are missing, unknown or have a wrong shape. The message lists all of these
            names, and the model is unchanged.

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
    # The checkpoint may have any number of position embeddings. Only the first one is used.
    table: Any = state_dict.get("encoder.wpe.weight")
    positions = np.shape(table)[0] if np.ndim(table) else 1
    bias = Assignment(
        bias.variable,
        {**bias.sources, "encoder.wpe.weight": (positions, embedding.width)},
        lambda bias, positions: bias + positions[0],
    )
    assignments = [
        table_assignment("embed_timestep", embedding),
        *torch_layer("embed_return", embedding.return_to_go),
        *torch_layer("embed_state", embedding.state),
        *torch_layer("embed_action", embedding.action),
        gain,
        bias,
        *torch_layer_norm("encoder.ln_f", model.final_norm),
        *torch_layer("predict_return", model.predictors["return"]),
        *torch_layer("predict_state", model.predictors["state"]),
        *torch_layer("predict_action.0", model.predictors["action"]),
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


def _conv1d(name, dense):
    """Return the assignments of GPT-2's `Conv1D`, a linear layer whose weight is `(in, out)`."""
    return [
        Assignment(dense.kernel, {f"{name}.weight": tuple(dense.kernel.shape)}),
        Assignment(dense.bias, {f"{name}.bias": tuple(dense.bias.shape)}),
    ]


def _query_key_value(name, block):
    """Return the assignments of one layer `[q | k | v]` to our two layers, `[q]` and `[k | v]`."""
    width = block.query.units
    weight = {f"{name}.weight": (width, 3 * width)}
    bias = {f"{name}.bias": (3 * width,)}
    return [
        Assignment(block.query.kernel, weight, lambda array: array[:, :width]),
        Assignment(block.query.bias, bias, lambda array: array[:width]),
        Assignment(block.key_value.kernel, weight, lambda array: array[:, width:]),
        Assignment(block.key_value.bias, bias, lambda array: array[width:]),
    ]
