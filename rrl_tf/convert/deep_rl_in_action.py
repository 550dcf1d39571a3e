"""Weights of the networks of "Deep Reinforcement Learning in Action", chapter 10."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from rrl_tf.convert._assign import (
    Assignment,
    assign,
    torch_conv,
    torch_layer_norm,
    torch_linear,
    torch_pointwise_conv,
    torch_query_key_value,
)
from rrl_tf.errors import InvalidInput
from rrl_tf.models import ConvolutionalClassifier, RelationalClassifier, RelationalQNetwork

# Names in the class that no forward pass uses.
_LEFTOVERS = tuple(f"conv{i}.{kind}" for i in (3, 4) for kind in ("weight", "bias"))
_QUERY_KEY_VALUE = ("q_proj", "k_proj", "v_proj")

Network = TypeVar("Network", RelationalQNetwork, RelationalClassifier, ConvolutionalClassifier)


def deep_rl_in_action(model: Network, state_dict: Mapping[str, Any]) -> Network:
    """Fills a model with the weights of one of the chapter's PyTorch networks.

    `MultiHeadRelationalModule` goes into `RelationalQNetwork.from_preset("book")`,
    `RelationalModule` (MNIST) into `RelationalClassifier.from_preset("book")`, and the
    convolutional network it is compared with into `ConvolutionalClassifier.from_preset("book")`;
    also with other numbers of actions or classes, channels, heads and features.

    Args:
        model: the built model; it is filled in place.
        state_dict: mapping from the original's names to arrays (NumPy, or what has `.numpy()`),
            as `torch_module.state_dict()`. `conv3` and `conv4` of `MultiHeadRelationalModule`,
            which some copies of the class define and none uses, may be there and are ignored.

    Returns:
        `model`.

    Raises:
        InvalidInput: if the model is not built or not the book's, or listing every name that is
            missing, unknown or wrongly shaped. The model stays as it was.

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
    if type(model) not in networks:
        raise InvalidInput(
            f"`model` must be a {' or a '.join(kind.__name__ for kind in networks)}; "
            f"received {model!r}"
        )
    assignments, shape, leftovers = networks[type(model)]
    if not model.built:
        raise InvalidInput(
            "`model` has no weights to fill yet, build it first with "
            f"`model.build((None, {shape}))`; received {model!r}"
        )
    assign(state_dict, assignments(model), leftovers)
    return model


def _multi_head_relational_module(model):
    book = RelationalQNetwork.from_preset("book")
    arguments = (
        "unseen_feature conv_kernel_size conv_strides conv_padding conv_activation conv_pool "
        "coordinates position_embedding random_shift num_rounds readout hidden_units dueling "
        "output_activation"
    )
    differences = _differences(model, book, arguments) + _block_differences(model, book)
    if len(model.conv_filters) != 2:
        differences.append("two convolutions")
    _check_none(model, book, differences)
    conv1, conv2, _ = model.grid_layers  # the last one appends the coordinates
    block = model.relations.block
    attention = block.attention
    (linear1,) = block.dense_layers
    return [
        *torch_pointwise_conv("conv1", conv1),
        *torch_pointwise_conv("conv2", conv2),
        *torch_query_key_value(attention, _QUERY_KEY_VALUE),
        *torch_layer_norm("q_norm", attention.query_norm),
        *torch_layer_norm("k_norm", attention.key_norm),
        *torch_layer_norm("v_norm", attention.value_norm),
        *torch_linear("q_lin", attention.score_query),
        *torch_linear("k_lin", attention.score_key),
        *torch_linear("a_lin", attention.score_output),
        *torch_linear("linear1", linear1),
        *torch_linear("linear2", model.head),
    ]


def _relational_module(model):
    book = RelationalClassifier.from_preset("book")
    arguments = "conv_kernel_size conv_strides conv_padding conv_norm coordinates num_rounds"
    differences = _differences(model, book, arguments) + _block_differences(model, book)
    if model.relations.block.num_heads != 1:
        differences.append("one head")
    _check_none(model, book, differences)
    *convolutions, _ = model.grid_layers  # the last one appends the coordinates
    block = model.relations.block
    attention = block.attention
    (linear1,) = block.dense_layers
    norms = {
        "q_norm": attention.query_norm,
        "k_norm": attention.key_norm,
        "v_norm": attention.value_norm,
    }
    return [
        *(
            assignment
            for i, convolution in enumerate(convolutions, start=1)
            for assignment in torch_conv(f"conv{i}", convolution)
        ),
        *torch_query_key_value(attention, _QUERY_KEY_VALUE),
        *(
            assignment
            for name, norm in norms.items()
            for assignment in torch_layer_norm(name, norm, tuple(norm.gamma.shape[1:]))
        ),
        *torch_linear("linear1", linear1),
        *torch_linear("linear2", model.head),
    ]


def _convolutional_network(model):
    book = ConvolutionalClassifier.from_preset("book")
    differences = _differences(model, book, "conv_kernel_size pool_after")
    if len(model.hidden_units) != 1:
        differences.append("one hidden layer")
    _check_none(model, book, differences)
    (hidden,) = model.hidden
    return [
        *(
            assignment
            for i, convolution in enumerate(model.convolutions, start=1)
            for assignment in torch_conv(f"conv{i}", convolution)
        ),
        _flattened("lin1.weight", hidden.kernel, model.conv_filters[-1]),
        Assignment(hidden.bias, {"lin1.bias": tuple(hidden.bias.shape)}),
        *torch_linear("out", model.head),
    ]


def _flattened(name, kernel, channels):
    """A linear layer on a flattened grid: the original's channels come first, ours last."""
    features, units = kernel.shape

    def channels_last(weight):  # (units, channels * height * width)
        per_channel = weight.reshape(units, channels, features // channels)
        return per_channel.transpose(2, 1, 0).reshape(features, units)

    return Assignment(kernel, {name: (units, features)}, channels_last)


def _block_differences(model, book):
    """What sets the relational block apart from the book's; sizes may differ."""
    ours, theirs = model.relations.block, book.relations.block
    differences = _differences(
        ours, theirs, "activation residual norm score qkv_norm use_bias norm_epsilon"
    )
    if len(ours.dense_layers) != 1:
        differences.append("one dense layer after the attention")
    return differences


def _differences(ours, theirs, names):
    config, wanted = ours.get_config(), theirs.get_config()
    return [
        f"{name}={wanted[name]!r}"
        for name in names.split()
        if _one(config[name]) != _one(wanted[name])
    ]


def _one(value):
    """The number that all convolutions share, whether it was written once or for each."""
    return value[0] if isinstance(value, tuple) and len(set(value)) == 1 else value


def _check_none(model, book, differences):
    """Only sizes may differ from the book's: its weights mean nothing in another computation."""
    if differences:
        raise InvalidInput(
            f'`model` must be the book\'s network, {type(book).__name__}.from_preset("book"), '
            f"which has {', '.join(differences)}; received {model!r}"
        )
