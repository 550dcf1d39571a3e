"""Weights of the two networks of the blog on self-attention and MNIST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from rrl_tf.convert._assign import assign, torch_linear, torch_query_key_value
from rrl_tf.errors import InvalidInput
from rrl_tf.models import MLPClassifier, PatchAttentionClassifier

Network = TypeVar("Network", PatchAttentionClassifier, MLPClassifier)


def patch_mnist(model: Network, state_dict: Mapping[str, Any]) -> Network:
    """Fills a model with the weights of one of the blog's PyTorch networks.

    The one with attention goes into `PatchAttentionClassifier.from_preset("patch-mnist")`, the
    `MLP` into `MLPClassifier.from_preset("patch-mnist")`; also with other sizes.

    Args:
        model: the built model; it is filled in place.
        state_dict: mapping from the original's names to arrays (NumPy, or what has `.numpy()`),
            as `torch_module.state_dict()`.

    Returns:
        `model`.

    Raises:
        InvalidInput: if the model is not built or not the blog's, or listing every name that is
            missing, unknown or wrongly shaped. The model stays as it was.

    Example:

    >>> model = PatchAttentionClassifier.from_preset("patch-mnist")
    >>> model.build((None, 28, 28, 1))
    >>> model = patch_mnist(model, torch.load("attention.pt"))  # doctest: +SKIP
    """
    networks = {PatchAttentionClassifier: _attention, MLPClassifier: _mlp}
    if type(model) not in networks:
        raise InvalidInput(
            f"`model` must be a {' or a '.join(kind.__name__ for kind in networks)}; "
            f"received {model!r}"
        )
    if not model.built:
        raise InvalidInput(
            "`model` has no weights to fill yet, build it first with "
            f"`model.build((None, 28, 28, 1))`; received {model!r}"
        )
    assign(state_dict, networks[type(model)](model))
    return model


def _attention(model):
    return [
        *torch_query_key_value(model.attention, ("attn.query", "attn.key", "attn.value")),
        *torch_linear("fc", model.head),
    ]


def _mlp(model):
    if len(model.hidden) != 1:
        raise InvalidInput(
            "`model` must be the blog's network, which has one hidden layer; "
            f"received hidden_units={model.hidden_units}"
        )
    (hidden,) = model.hidden
    return [*torch_linear("mlp.0", hidden), *torch_linear("mlp.2", model.head)]
