"""Load weights of two MNIST networks from a blog post on self-attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from rrl_tf.convert._assign import (
    assign,
    check_built,
    check_same_network,
    different_arguments,
    torch_layer,
    torch_query_key_value,
)
from rrl_tf.errors import InvalidInput
from rrl_tf.models import MLPClassifier, PatchAttentionClassifier

Network = TypeVar("Network", PatchAttentionClassifier, MLPClassifier)


def patch_mnist(model: Network, state_dict: Mapping[str, Any]) -> Network:
    """Fill a model with the weights of one of the blog's PyTorch networks.

    The model is `PatchAttentionClassifier.from_preset("patch-mnist")` for the network with
    attention, and `MLPClassifier.from_preset("patch-mnist")` for the `MLP`. Sizes may differ.

    Args:
        model: the built model; it is filled in place.
        state_dict: mapping from the original's names to arrays (NumPy, or objects with `.numpy()`),
            as `torch_module.state_dict()` returns it.

    Returns:
        `model`.

    Raises:
        InvalidInput: if the model is not built or differs from the blog's network, or if names are
            missing, unknown or have a wrong shape. The message lists all of these names, and the
            model is unchanged.

    Example:

    >>> model = PatchAttentionClassifier.from_preset("patch-mnist")
    >>> model.build((None, 28, 28, 1))
    >>> model = patch_mnist(model, torch.load("attention.pt"))  # doctest: +SKIP
    """
    check_built(model, [PatchAttentionClassifier, MLPClassifier], "model.build((None, 28, 28, 1))")
    if isinstance(model, PatchAttentionClassifier):
        check_same_network(
            model,
            'PatchAttentionClassifier.from_preset("patch-mnist")',
            different_arguments(
                model, PatchAttentionClassifier.from_preset("patch-mnist"), ("num_heads",)
            ),
        )
        names = ("attn.query", "attn.key", "attn.value")
        assignments = torch_query_key_value(model.attention, names)
        assignments += torch_layer("fc", model.head)
    elif len(model.hidden) == 1:
        assignments = torch_layer("mlp.0", model.hidden[0]) + torch_layer("mlp.2", model.head)
    else:
        raise InvalidInput(
            "the model must be the blog's network, which has one hidden layer; "
            f"received hidden_units={model.hidden_units}"
        )
    assign(state_dict, assignments)
    return model
