"""Check whether the browser can compute a network, and describe the network for the page.

`static/network.js` computes the networks. It supports the settings in the tables below: if the
configuration of a network has one of these keys, its value must be the one in the table.
"""

from __future__ import annotations

import math
from typing import Any

from rrl_tf.errors import InvalidInput

_SUPPORTED = (
    "the page computes only these float32 networks: relational Q networks for one-hot DoorKey "
    "views, without a memory or with an LSTM; relational classifiers for 28 x 28 pixels; and "
    "Decision Transformers for one-hot DoorKey views and discrete actions (for example the "
    "architecture 'fast' of each)"
)
_ONE_HOT_VIEW = (7, 7, 11 + 6 + 3 + 4)  # one-hot object, color, state, direction
_Q_NETWORK = {
    "input_shape": _ONE_HOT_VIEW,
    "conv_kernel_size": (1,),
    "conv_activation": "relu",
    "coordinates": None,
    "position_embedding": True,
    "share_weights": False,
    "unseen_feature": 0,
    "encoder": "relational",
    "core": "lstm",
    "memory_input": "vector",
    "hidden_activation": "relu",
    "dueling": True,
    "output_activation": "linear",
}
_SETTINGS = {
    "RelationalQNetwork": _Q_NETWORK,
    "RecurrentQNetwork": _Q_NETWORK,
    "RelationalClassifier": {
        "input_shape": (28, 28, 1),
        "conv_padding": "same",
        "coordinates": {},
        "share_weights": False,
    },
    "DecisionTransformer": {
        "state_size": math.prod(_ONE_HOT_VIEW),
        "norm": "pre",
        "activation": "gelu",
        "epsilon": 1e-5,
        "discrete": True,
    },
}
_BLOCK_NORMS = (None, "entity")


def check_network(network: Any, name: str) -> None:
    """Raise `InvalidInput` if the browser cannot compute a network.

    Args:
        network: The network.
        name: The name of the pretrained model, for the message.
    """
    import rrl_tf.models  # imported here, because it loads TensorFlow

    kind = type(network).__name__
    if kind not in _SETTINGS or type(network) is not getattr(rrl_tf.models, kind):
        raise InvalidInput(f"{_SUPPORTED}; received {name!r}, a {kind}.")
    if other := _unsupported_settings(network, _SETTINGS[kind]):
        raise InvalidInput(f"{_SUPPORTED}; received {name!r}, with {other}.")


def _unsupported_settings(network, supported):
    settings = network.get_config()
    if settings.get("encoder", "relational") == "relational":
        settings = {**settings, **_encoder(network).get_config()}
    if "input_shape" in supported:
        shape = network.get_build_config()["input_shape"]
        shape = shape["observation"] if isinstance(shape, dict) else shape
        settings["input_shape"] = tuple(shape[-3:])
    if settings.get("readout") == "max":
        supported = {**supported, "readout_cell": None}
    else:
        supported = {**supported, "readout": "cell", "readout_cell": (3, 6)}
    other = {key: value for key, value in settings.items() if value != supported.get(key, value)}
    for key, value in settings.get("block", {}).items():
        is_norm = key in ("qkv_norm", "norm") and value in _BLOCK_NORMS
        if key not in ("num_heads", "key_size") and not is_norm:
            other[key] = value
    if network.dtype_policy.name != "float32":
        other["dtype"] = network.dtype_policy.name
    return other


def _encoder(network):
    return getattr(network, "encoder_layer", network)


def network_description(network: Any, policy: Any) -> dict[str, Any]:
    """Return the class name of a network, and the sizes that the page cannot read from its weights.

    Args:
        network: A network that `check_network` accepts.
        policy: The policy from `load_policy` that was exported from the network. It must preprocess
            its inputs as the page does: views are encoded as one-hot, pixels are divided by 255.
    """
    kind = type(network).__name__
    if kind == "DecisionTransformer":
        sizes = {key: getattr(network, key) for key in ("num_heads", "num_blocks", "positions")}
        sizes["return_scale"] = policy.details["return_scale"]
        if "default_target" in policy.signatures:
            target = policy.predict({"batch_size": 1}, "default_target")
            # Sorted, because the order of a SavedModel's outputs varies from process to process.
            sizes["default_target"] = {key: target[key].tolist() for key in sorted(target)}
        return {"kind": kind, **sizes}
    encoder = _encoder(network)
    sizes = {"num_heads": encoder.block["num_heads"], "num_rounds": encoder.num_rounds}
    if kind == "RelationalClassifier":
        return {"kind": kind, **sizes, "strides": encoder.conv_strides}
    return {"kind": kind, **sizes, "readout": encoder.readout}
