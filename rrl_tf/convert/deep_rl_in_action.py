"""Load weights of the networks in "Deep Reinforcement Learning in Action", chapter 10."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from rrl_tf.convert._assign import (
    Assignment,
    assign,
    check_built,
    check_same_network,
    different_arguments,
    torch_layer,
    torch_layer_norm,
    torch_query_key_value,
)
from rrl_tf.models import ConvolutionalClassifier, RelationalClassifier, RelationalQNetwork

# Layers that the original class defines but does not use in its forward pass.
_LEFTOVERS = tuple(f"conv{i}.{kind}" for i in (3, 4) for kind in ("weight", "bias"))
_QUERY_KEY_VALUE = ("q_proj", "k_proj", "v_proj")
# Arguments whose values must equal the book's. Sizes may differ.
_BLOCK = (
    *("activation", "residual", "norm", "score", "qkv_norm", "use_bias", "norm_epsilon"),
    "max_offset",
)
_Q_NETWORK = (
    *("unseen_feature", "conv_kernel_size", "conv_strides", "conv_padding", "conv_activation"),
    *("conv_pool", "coordinates", "position_embedding", "random_shift", "num_rounds", "readout"),
    *("hidden_units", "dueling", "output_activation"),
)
_CLASSIFIER = (
    *("conv_kernel_size", "conv_strides", "conv_padding", "conv_norm", "coordinates"),
    "num_rounds",
)

Network = TypeVar("Network", RelationalQNetwork, RelationalClassifier, ConvolutionalClassifier)


def deep_rl_in_action(model: Network, state_dict: Mapping[str, Any]) -> Network:
    """Fill a model with the weights of one of the chapter's PyTorch networks.

    | original | model |
    |---|---|
    | `MultiHeadRelationalModule` | `RelationalQNetwork.from_preset("book")` |
    | `RelationalModule` (MNIST) | `RelationalClassifier.from_preset("book")` |
    | the convolutional baseline | `ConvolutionalClassifier.from_preset("book")` |

    The numbers of actions or classes, channels, heads and features may differ from the book's.

    Args:
        model: the built model; it is filled in place.
        state_dict: mapping from the original's names to arrays (NumPy, or objects with `.numpy()`),
            as `torch_module.state_dict()` returns it. `conv3` and `conv4` are ignored, because
            `MultiHeadRelationalModule` does not use them.

    Returns:
        `model`.

    Raises:
        InvalidInput: if the model is not built or differs from the book's network, or if names are
            missing, unknown or have a wrong shape. The message lists all of these names, and the
            model is unchanged.

    Example:

    >>> model = RelationalQNetwork.from_preset("book")
    >>> model.build((None, 7, 7, 3))
    >>> model = deep_rl_in_action(model, torch.load("book.pt"))  # doctest: +SKIP
    """
    networks = {
        RelationalQNetwork: (_multi_head_relational_module, "7, 7, 3", _LEFTOVERS),
        RelationalClassifier: (_relational_module, "28, 28, 1", ()),
        ConvolutionalClassifier: (_convolutional_network, "28, 28, 1", ()),
    }
    kind = next((kind for kind in networks if isinstance(model, kind)), RelationalQNetwork)
    assignments, shape, leftovers = networks[kind]
    check_built(model, tuple(networks), f"model.build((None, {shape}))")
    assign(state_dict, assignments(model), leftovers)
    return model


def _multi_head_relational_module(model):
    _check_like_book(RelationalQNetwork, model, _Q_NETWORK, _BLOCK)
    conv1, conv2, _ = model.grid_layers  # the last one appends the coordinates
    attention = model.relations.block.attention
    return [
        *torch_layer("conv1", conv1, pointwise=True),
        *torch_layer("conv2", conv2, pointwise=True),
        *_attention(model.relations.block, squeeze=False),
        *torch_layer("q_lin", attention.score_query),
        *torch_layer("k_lin", attention.score_key),
        *torch_layer("a_lin", attention.score_output),
        *torch_layer("linear2", model.head),
    ]


def _relational_module(model):
    _check_like_book(RelationalClassifier, model, _CLASSIFIER, (*_BLOCK, "num_heads"))
    *convolutions, _ = model.grid_layers  # the last one appends the coordinates
    assignments = _attention(model.relations.block, squeeze=True)
    for i, convolution in enumerate(convolutions, start=1):
        assignments += torch_layer(f"conv{i}", convolution)
    return [*assignments, *torch_layer("linear2", model.head)]


def _attention(block, squeeze):
    """Return the assignments of a block; `squeeze`: the original norms lack the axis of heads."""
    attention = block.attention
    (linear1,) = block.dense_layers
    assignments = torch_query_key_value(attention, _QUERY_KEY_VALUE)
    for name, norm in (
        ("q_norm", attention.query_norm),
        ("k_norm", attention.key_norm),
        ("v_norm", attention.value_norm),
    ):
        shape = tuple(norm.gamma.shape[1:]) if squeeze else None
        assignments += torch_layer_norm(name, norm, shape)
    return [*assignments, *torch_layer("linear1", linear1)]


def _convolutional_network(model):
    _check_like_book(ConvolutionalClassifier, model, ("conv_kernel_size", "pool_after"))
    (hidden,) = model.hidden
    assignments = [
        _flattened("lin1.weight", hidden.kernel, model.conv_filters[-1]),
        Assignment(hidden.bias, {"lin1.bias": tuple(hidden.bias.shape)}),
        *torch_layer("out", model.head),
    ]
    for i, convolution in enumerate(model.convolutions, start=1):
        assignments += torch_layer(f"conv{i}", convolution)
    return assignments


def _flattened(name, kernel, channels):
    """Return the assignment of a linear layer that reads a flattened, channels-first grid."""
    features, units = kernel.shape

    def channels_last(weight):  # (units, channels * height * width)
        per_channel = weight.reshape(units, channels, features // channels)
        return per_channel.transpose(2, 1, 0).reshape(features, units)

    return Assignment(kernel, {name: (units, features)}, channels_last)


def _check_like_book(kind, model, names, block_names=()):
    """Raise an `InvalidInput` if a model does not compute the same function as the book's."""
    book = kind.from_preset("book")
    differences = different_arguments(model, book, names)
    if block_names:
        block = model.relations.block
        differences += different_arguments(block, book.relations.block, block_names)
        if len(block.dense_layers) != 1:
            differences.append("one dense layer after the attention")
    elif len(model.hidden_units) != 1:
        differences.append("one hidden layer")
    check_same_network(model, f'{kind.__name__}.from_preset("book")', differences)
