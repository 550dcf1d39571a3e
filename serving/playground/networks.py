"""Which networks the page computes by itself, and what it has to know of them.

`playground/network.js` computes them. A network says otherwise of a setting here, or not at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rrl_tf.errors import InvalidInput

_EXPECTED = (
    "the page computes relational Q networks of one-hot DoorKey views, as of the preset 'fast', "
    "without a memory or with an LSTM; relational classifiers of 28 x 28 pixels, as of 'fast'; and "
    "Decision Transformers of such views and discrete actions, as of 'fast'; all in float32"
)
_CODES = (11, 6, 3, 4)  # of each channel of a view, each a one-hot
_VIEW = (7, 7, len(_CODES))
_HOTS = (7, 7, sum(_CODES))
_EXAMPLES = 8
_READ = {"cell": {"readout_cell": (3, 6)}, "max": {"readout_cell": None}}
"""What is read of the cells, the agent's or of every feature the largest."""
_Q_NETWORK = {
    "input_shape": _HOTS,
    "conv_kernel_size": 1,
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
_COMPUTED = {
    "RelationalQNetwork": _Q_NETWORK,
    "RecurrentQNetwork": _Q_NETWORK,
    "RelationalClassifier": {
        "input_shape": (28, 28, 1),
        "conv_padding": "same",
        "coordinates": {},
        "share_weights": False,
    },
    "DecisionTransformer": {
        "state_size": int(np.prod(_HOTS)),
        "norm": "pre",
        "activation": "gelu",
        "epsilon": 1e-5,
        "discrete": True,
    },
}
_OF_A_BLOCK = {"qkv_norm": (None, "entity"), "norm": (None, "entity")}


def check_computed(network: Any, name: str) -> None:
    """Raises an `InvalidInput` unless the page computes networks like that of preset `name`."""
    import rrl_tf.models  # with TensorFlow, which is loaded by who needs it

    kind = type(network).__name__
    if kind not in _COMPUTED or type(network) is not getattr(rrl_tf.models, kind):
        raise InvalidInput(f"{_EXPECTED}; received {name!r}, a {kind}")
    if other := _uncomputed(network, _COMPUTED[kind]):
        raise InvalidInput(f"{_EXPECTED}; received {name!r}, with {other}")


def described(network: Any, policy: Any, name: str) -> dict[str, Any]:
    """What the page has to know of a network beside its weights.

    Args:
        network: One for which `check_computed` raises nothing.
        policy: `load_policy`'s, which was exported of it.
        name: The preset's, for the error.

    Raises:
        InvalidInput: If the policy takes inputs that the page prepares otherwise.
    """
    kind = type(network).__name__
    if not _ANSWERS[kind](network, policy):
        raise InvalidInput(
            f"{_EXPECTED}; received {name!r}, whose policy prepares inputs otherwise"
        )
    return {"kind": kind, **_sizes(network, policy)}


def _uncomputed(network, computed):
    """The settings of a network that the page knows nothing of, by their names."""
    settings = network.get_config()
    if settings.get("encoder") in (None, computed.get("encoder")):
        settings = {**settings, **_encoder(network).get_config()}
    if "input_shape" in computed:
        settings["input_shape"] = _input_shape(network)
    computed = {**computed, **_READ.get(settings.get("readout"), {"readout": "cell"})}
    other = {each: value for each, value in settings.items() if value != computed.get(each, value)}
    for each, value in settings.get("block", {}).items():
        if each not in ("num_heads", "key_size") and value not in _OF_A_BLOCK.get(each, ()):
            other[each] = value
    if network.dtype_policy.name != "float32":
        other["dtype"] = network.dtype_policy.name
    return other


def _sizes(network, policy):
    """What the shapes of its weights do not tell."""
    if type(network).__name__ == "DecisionTransformer":
        sizes = {each: getattr(network, each) for each in ("num_heads", "num_blocks", "positions")}
        sizes["return_scale"] = policy.details["return_scale"]
        if "default_target" in policy.signatures:
            found = policy.predict({"batch_size": 1}, "default_target")
            # In one order: a SavedModel's outputs come in another one in every process.
            sizes["default_target"] = {each: found[each].tolist() for each in sorted(found)}
        return sizes
    encoder = _encoder(network)
    sizes = {"num_heads": encoder.block["num_heads"], "num_rounds": encoder.num_rounds}
    if type(network).__name__ == "RelationalClassifier":
        sizes["strides"] = encoder.conv_strides
    else:
        sizes["readout"] = encoder.readout
    return sizes


def _q_network_answers(network, policy):
    """Whether a policy says of views what its network says of their one-hots, as the page does."""
    signatures = policy.details["signatures"]
    if not _takes(policy, "act", "observation", _VIEW):
        return False
    views = _views()
    inputs, view = {"observation": views}, _one_hot(views)
    if "initial_memory" in signatures:
        nothing = np.zeros(_EXAMPLES, "float32")
        memory = policy.predict({"batch_size": _EXAMPLES}, "initial_memory")
        inputs |= {**memory, "reward": nothing}
        before = {"previous_action": np.full(_EXAMPLES, -1), "previous_reward": nothing}
        said, *_ = network({"observation": view, **before})
    else:
        said = network(view)
    return _same(policy.predict(inputs, "act")["q_values"], said)


def _classifier_answers(network, policy):
    """Whether a policy says of bytes what its network says of numbers from 0 to 1."""
    if not _takes(policy, "classify", "image", (28, 28)):
        return False
    images = np.random.default_rng(0).integers(0, 256, (_EXAMPLES, 28, 28), "uint8")
    said = _softmax(network(images[..., None].astype("float32") / 255))
    return _same(policy.predict({"image": images}, "classify")["probabilities"], said)


def _transformer_answers(network, policy):
    """Whether a policy says of a window what its network says of one-hots and scaled returns."""
    steps, scale = network.context_length, policy.details.get("return_scale")
    if scale is None or not _takes(policy, "act", "states", (steps, *_VIEW)):
        return False
    views = _views(steps)
    rng = np.random.default_rng(0)
    actions = rng.integers(0, network.action_size, (_EXAMPLES, steps))
    window = {
        "states": views,
        "actions": np.eye(network.action_size, dtype="float32")[actions],
        "returns_to_go": rng.uniform(0, scale, (_EXAMPLES, steps, 1)).astype("float32"),
        "timesteps": np.tile(np.arange(steps, dtype="int32"), (_EXAMPLES, 1)),
        "mask": np.ones((_EXAMPLES, steps), "float32"),
    }
    prepared = {
        "states": _one_hot(views).reshape(_EXAMPLES, steps, -1),
        "returns_to_go": window["returns_to_go"] / scale,
    }
    said = network({**window, **prepared}, last_action=True)["action"]
    return _same(policy.predict(window, "act")["probabilities"], _softmax(said))


_ANSWERS = {
    "RelationalQNetwork": _q_network_answers,
    "RecurrentQNetwork": _q_network_answers,
    "RelationalClassifier": _classifier_answers,
    "DecisionTransformer": _transformer_answers,
}


def _takes(policy, signature, name, shape):
    """Whether that is an input of such a shape, the batch aside."""
    inputs = policy.details["signatures"].get(signature, {}).get("inputs", {})
    return inputs.get(name, {}).get("shape", [])[1:] == [*shape]


def _views(*steps):
    return np.random.default_rng(0).integers(0, _CODES, (_EXAMPLES, *steps, *_VIEW), "uint8")


def _one_hot(views):
    hots = [np.eye(n, dtype="float32")[views[..., i]] for i, n in enumerate(_CODES)]
    return np.concatenate(hots, axis=-1)


def _softmax(logits):
    from keras import ops

    return ops.softmax(logits)


def _same(said, expected):
    return np.allclose(said, expected, rtol=1e-4, atol=1e-4)


def _input_shape(network):
    """That of a prepared input."""
    shape = network.get_build_config()["input_shape"]
    return tuple(shape["observation"] if isinstance(shape, dict) else shape)[-3:]


def _encoder(network):
    """What relates the entities: the network, or a part of one with a memory."""
    return getattr(network, "encoder_layer", network)
