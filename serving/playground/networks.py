"""The networks that the browser computes, and the sizes that it reads with their weights.

`static/network.js` computes them. A network must have the settings below, where it has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rrl_tf.errors import InvalidInput

_SUPPORTED = (
    "the page computes relational Q networks of one-hot DoorKey views, like the preset 'fast', "
    "without a memory or with an LSTM; relational classifiers of 28 x 28 pixels, like 'fast'; and "
    "Decision Transformers of such views and discrete actions, like 'fast'; all in float32"
)
_CODES = (11, 6, 3, 4)  # values of each channel of a view, each encoded as one-hot
_VIEW = (7, 7, len(_CODES))
_ONE_HOT_VIEW = (7, 7, sum(_CODES))
_EXAMPLES = 8
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
        "state_size": int(np.prod(_ONE_HOT_VIEW)),
        "norm": "pre",
        "activation": "gelu",
        "epsilon": 1e-5,
        "discrete": True,
    },
}
_BLOCK_NORMS = (None, "entity")


def check_network(network: Any, name: str) -> None:
    """Raise an `InvalidInput` unless the browser computes the network of the preset `name`."""
    import rrl_tf.models  # here, because it loads TensorFlow

    kind = type(network).__name__
    if kind not in _SETTINGS or type(network) is not getattr(rrl_tf.models, kind):
        raise InvalidInput(f"{_SUPPORTED}; received {name!r}, a {kind}")
    if other := _unsupported_settings(network, _SETTINGS[kind]):
        raise InvalidInput(f"{_SUPPORTED}; received {name!r}, with {other}")


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


def network_description(network: Any, policy: Any, name: str) -> dict[str, Any]:
    """Return the kind of a network, and the sizes that the shapes of its weights do not show.

    Args:
        network: A network that `check_network` accepts.
        policy: The policy of `load_policy` that was exported from the network.
        name: The name of the preset, for the error.

    Raises:
        InvalidInput: If the policy preprocesses its inputs in another way than the browser.
    """
    kind = type(network).__name__
    signature, inputs, output, expected = _EXAMPLES_OF[kind](network, policy)
    try:
        outputs = policy.predict(inputs, signature)[output]
        same = np.allclose(outputs, expected, rtol=1e-4, atol=1e-4)
    except InvalidInput:  # the policy has other inputs
        same = False
    if not same:
        raise InvalidInput(
            f"{_SUPPORTED}; received {name!r}, whose policy preprocesses its inputs in another way"
        )
    if kind == "DecisionTransformer":
        sizes = {key: getattr(network, key) for key in ("num_heads", "num_blocks", "positions")}
        sizes["return_scale"] = policy.details["return_scale"]
        if "default_target" in policy.signatures:
            target = policy.predict({"batch_size": 1}, "default_target")
            # Sorted, because the order of a SavedModel's outputs differs between processes.
            sizes["default_target"] = {key: target[key].tolist() for key in sorted(target)}
        return {"kind": kind, **sizes}
    encoder = _encoder(network)
    sizes = {"num_heads": encoder.block["num_heads"], "num_rounds": encoder.num_rounds}
    if kind == "RelationalClassifier":
        return {"kind": kind, **sizes, "strides": encoder.conv_strides}
    return {"kind": kind, **sizes, "readout": encoder.readout}


def _q_network_examples(network, policy):
    """Return a signature, raw inputs, the name of an output and the network's own output."""
    views = _views()
    inputs, network_inputs = {"observation": views}, _one_hot(views)
    if "initial_memory" in policy.signatures:
        zeros = np.zeros(_EXAMPLES, "float32")
        memory = policy.predict({"batch_size": _EXAMPLES}, "initial_memory")
        inputs |= {**memory, "reward": zeros}
        first = {"previous_action": np.full(_EXAMPLES, -1), "previous_reward": zeros}
        q_values, _ = network({"observation": network_inputs, **first})
    else:
        q_values = network(network_inputs)
    return "act", inputs, "q_values", q_values


def _classifier_examples(network, policy):
    images = np.random.default_rng(0).integers(0, 256, (_EXAMPLES, 28, 28), "uint8")
    logits = network(images[..., None].astype("float32") / 255)
    return "classify", {"image": images}, "probabilities", _softmax(logits)


def _transformer_examples(network, policy):
    steps = network.context_length
    views, rng = _views(steps), np.random.default_rng(0)
    actions = rng.integers(0, network.action_size, (_EXAMPLES, steps))
    window = {
        "states": views,
        "actions": np.eye(network.action_size, dtype="float32")[actions],
        "returns_to_go": rng.uniform(0, 2, (_EXAMPLES, steps, 1)).astype("float32"),
        "timesteps": np.tile(np.arange(steps, dtype="int32"), (_EXAMPLES, 1)),
        "mask": np.ones((_EXAMPLES, steps), "float32"),
    }
    scale = np.float32(policy.details.get("return_scale", np.nan))
    network_inputs = {
        **window,
        "states": _one_hot(views).reshape(_EXAMPLES, steps, -1),
        "returns_to_go": window["returns_to_go"] / scale,
    }
    logits = network(network_inputs, last_action=True)["action"]
    return "act", window, "probabilities", _softmax(logits)


_EXAMPLES_OF = {
    "RelationalQNetwork": _q_network_examples,
    "RecurrentQNetwork": _q_network_examples,
    "RelationalClassifier": _classifier_examples,
    "DecisionTransformer": _transformer_examples,
}


def _views(*steps):
    return np.random.default_rng(0).integers(0, _CODES, (_EXAMPLES, *steps, *_VIEW), "uint8")


def _one_hot(views):
    channels = [np.eye(n, dtype="float32")[views[..., i]] for i, n in enumerate(_CODES)]
    return np.concatenate(channels, axis=-1)


def _softmax(logits):
    from keras import ops

    return ops.softmax(logits)
