"""Weights of the networks of "Deep Reinforcement Learning in Action", chapter 10."""

import numpy as np

from rrl_tf.convert._assign import (
    Assignment,
    assign,
    torch_layer_norm,
    torch_linear,
    torch_pointwise_conv,
)
from rrl_tf.models import RelationalQNetwork

# Names in the class that no forward pass uses.
_LEFTOVERS = tuple(f"conv{i}.{kind}" for i in (3, 4) for kind in ("weight", "bias"))


def deep_rl_in_action(model, state_dict):
    """Fills a model with the weights of the chapter's PyTorch network.

    `MultiHeadRelationalModule` goes into `RelationalQNetwork.from_preset("book")`, also with other
    numbers of actions, channels, heads and features.

    Args:
        model: the built model; it is filled in place.
        state_dict: mapping from the original's names to arrays (NumPy, or what has `.numpy()`),
            as `torch_module.state_dict()`. `conv3` and `conv4`, which some copies of the class
            define and none uses, may be there and are ignored.

    Returns:
        `model`.

    Raises:
        ValueError: if the model is not built or not the book's, or listing every name that is
            missing, unknown or wrongly shaped. The model stays as it was.

    Example:

    >>> model = RelationalQNetwork.from_preset("book")
    >>> model.build((None, 7, 7, 3))
    >>> model = deep_rl_in_action(model, torch.load("book.pt"))  # doctest: +SKIP
    """
    if not isinstance(model, RelationalQNetwork):
        raise ValueError(
            "deep_rl_in_action fills a RelationalQNetwork. "
            f"Received a {type(model).__name__}: {model}"
        )
    assign(state_dict, _multi_head_relational_module(model), leftovers=_LEFTOVERS)
    return model


def _multi_head_relational_module(model):
    if not model.built:
        raise ValueError(
            f"{model.name} has no weights to fill yet: build it first, "
            "with `model.build((None, 7, 7, 3))`"
        )
    _check_configuration(model)
    conv1, conv2, _ = model.grid_layers  # the last one appends the coordinates
    block = model.relations.blocks[0]
    attention = block.attention
    (linear1,) = block.dense_layers
    return [
        *torch_pointwise_conv("conv1", conv1),
        *torch_pointwise_conv("conv2", conv2),
        *_query_key_value(attention),
        *torch_layer_norm("q_norm", attention.query_norm),
        *torch_layer_norm("k_norm", attention.key_norm),
        *torch_layer_norm("v_norm", attention.value_norm),
        *torch_linear("q_lin", attention.score_query),
        *torch_linear("k_lin", attention.score_key),
        *torch_linear("a_lin", attention.score_output),
        *torch_linear("linear1", linear1),
        *torch_linear("linear2", model.head),
    ]


def _query_key_value(attention):
    """Three linear layers with columns `[head][size]` become one with `[head][q | k | v]`."""
    heads = attention.num_heads
    features, _ = attention.query_key_value.kernel.shape
    widths = {
        "q_proj": heads * attention.key_size,
        "k_proj": heads * attention.key_size,
        "v_proj": heads * attention.value_size,
    }

    def kernel(*weights):  # (H * size, F) each
        per_head = [weight.T.reshape(features, heads, -1) for weight in weights]
        return np.concatenate(per_head, axis=-1).reshape(features, -1)

    def bias(*biases):  # (H * size,) each
        return np.concatenate([b.reshape(heads, -1) for b in biases], axis=-1).reshape(-1)

    dense = attention.query_key_value
    return [
        Assignment(
            dense.kernel, {f"{name}.weight": (w, features) for name, w in widths.items()}, kernel
        ),
        Assignment(dense.bias, {f"{name}.bias": (w,) for name, w in widths.items()}, bias),
    ]


def _check_configuration(model):
    """Only sizes may differ from the book's: its weights mean nothing in another computation."""
    book = RelationalQNetwork.from_preset("book")
    differences = _differences(
        model.get_config(),
        book.get_config(),
        "conv_kernel_size conv_padding conv_activation coordinates position_embedding num_rounds "
        "readout hidden_units dueling output_activation",
    ) + _differences(
        model.relations.blocks[0].get_config(),
        book.relations.blocks[0].get_config(),
        "activation residual norm score qkv_norm use_bias norm_epsilon",
    )
    if len(model.conv_filters) != 2 or len(model.relations.blocks[0].dense_layers) != 1:
        differences.append("two convolutions and one dense layer after the attention")
    if differences:
        raise ValueError(
            f"{model.name} is not the book's network, "
            f'RelationalQNetwork.from_preset("book"), which has {", ".join(differences)}'
        )


def _differences(config, wanted, names):
    return [f"{name}={wanted[name]!r}" for name in names.split() if config[name] != wanted[name]]
