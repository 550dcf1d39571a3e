"""Converted weights of transformers' Decision Transformer give its outputs in NumPy."""

import math

import numpy as np
import pytest
from keras import ops

from rrl_tf.convert import hugging_face_decision_transformer
from rrl_tf.models import DecisionTransformer

S, A, H, K, HEADS, BLOCKS = 5, 2, 12, 6, 2, 2
LAYERS = {  # torch.nn.Linear, (out, in)
    "embed_return": (H, 1),
    "embed_state": (H, S),
    "embed_action": (H, A),
    "predict_return": (1, H),
    "predict_state": (S, H),
    "predict_action.0": (A, H),
}
CONV1D = {}  # Conv1D of GPT-2, (in, out)
for i in range(BLOCKS):
    CONV1D |= {
        f"encoder.h.{i}.attn.c_attn": (H, 3 * H),
        f"encoder.h.{i}.attn.c_proj": (H, H),
        f"encoder.h.{i}.mlp.c_fc": (H, 4 * H),
        f"encoder.h.{i}.mlp.c_proj": (4 * H, H),
    }
NORMS = [
    "embed_ln",
    "encoder.ln_f",
    *(f"encoder.h.{i}.ln_{n}" for i in range(BLOCKS) for n in (1, 2)),
]


def random_state_dict(seed=0):
    rng = np.random.default_rng(seed)
    weights = {
        "encoder.wte.weight": rng.normal(size=(1, H)),  # unused token embedding
        "embed_timestep.weight": rng.normal(size=(50, H)),
        "encoder.wpe.weight": rng.normal(size=(1024, H)),
    }
    for name, shape in LAYERS.items():
        weights[f"{name}.weight"] = rng.normal(0, 0.3, size=shape)
        weights[f"{name}.bias"] = rng.normal(0, 0.3, size=shape[0])
    for name, shape in CONV1D.items():
        weights[f"{name}.weight"] = rng.normal(0, 0.3, size=shape)
        weights[f"{name}.bias"] = rng.normal(0, 0.3, size=shape[1])
    for name in NORMS:
        weights[f"{name}.weight"] = rng.normal(1, 0.3, size=H)
        weights[f"{name}.bias"] = rng.normal(0, 0.3, size=H)
    return weights


def window(seed=1):
    """Return two windows; the second one is padded in front."""
    rng = np.random.default_rng(seed)
    mask = np.ones((2, K))
    mask[1, :3] = 0
    return {
        "states": rng.normal(size=(2, K, S)).astype("float32"),
        "actions": rng.normal(size=(2, K, A)).astype("float32"),
        "returns_to_go": rng.normal(size=(2, K, 1)).astype("float32"),
        "timesteps": np.maximum(np.arange(K) + np.array([[9], [-3]]), 0),
        "mask": mask,
    }


def numpy_original(w, x):
    """Compute the predictions of the original in float64; ignore those of padded steps."""

    def linear(name, x):
        weight = w[f"{name}.weight"]
        return x @ (weight if name in CONV1D else weight.T) + w[f"{name}.bias"]

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    time = w["embed_timestep.weight"][x["timesteps"]]
    names = {"embed_return": "returns_to_go", "embed_state": "states", "embed_action": "actions"}
    tokens = np.stack([linear(layer, x[name]) + time for layer, name in names.items()], axis=2)
    h = norm("embed_ln", tokens.reshape(len(time), 3 * K, H)) + w["encoder.wpe.weight"][0]
    hidden = np.triu(np.ones((3 * K, 3 * K)), 1) + (1 - np.repeat(x["mask"], 3, 1))[:, None, None]
    for i in range(BLOCKS):
        name = f"encoder.h.{i}"
        qkv = np.split(linear(f"{name}.attn.c_attn", norm(f"{name}.ln_1", h)), 3, axis=-1)
        q, k, v = (part.reshape(len(h), 3 * K, HEADS, -1).transpose(0, 2, 1, 3) for part in qkv)
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(H // HEADS) - 1e9 * hidden
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        heads = (scores / scores.sum(-1, keepdims=True)) @ v
        h = h + linear(f"{name}.attn.c_proj", heads.transpose(0, 2, 1, 3).reshape(h.shape))
        inner = np.maximum(linear(f"{name}.mlp.c_fc", norm(f"{name}.ln_2", h)), 0)
        h = h + linear(f"{name}.mlp.c_proj", inner)
    h = norm("encoder.ln_f", h).reshape(len(h), K, 3, H)
    return {
        "return": linear("predict_return", h[:, :, 2]),
        "state": linear("predict_state", h[:, :, 2]),
        "action": np.tanh(linear("predict_action.0", h[:, :, 1])),
    }


def built(**arguments):
    sizes = {"width": H, "num_blocks": BLOCKS, "num_heads": HEADS, "context_length": K}
    model = DecisionTransformer.from_preset(
        "paper", state_size=S, action_size=A, **{**sizes, "max_timestep": 50, **arguments}
    )
    model.build()
    return model


def test_output_equals_the_original():
    weights, x = random_state_dict(), window()
    predictions = hugging_face_decision_transformer(built(), weights)(x)
    expected = numpy_original(weights, x)
    real = x["mask"] > 0
    for head, values in expected.items():
        np.testing.assert_allclose(
            ops.convert_to_numpy(predictions[head])[real], values[real], atol=2e-5, rtol=1e-4
        )


def test_output_equals_transformers():
    """Skip if transformers is not installed (`pip install transformers torch`)."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.DecisionTransformerConfig(
        state_dim=S,
        act_dim=A,
        hidden_size=H,
        max_ep_len=50,
        n_layer=BLOCKS,
        n_head=HEADS,
        activation_function="relu",
    )
    torch.manual_seed(0)
    original = transformers.DecisionTransformerModel(config).eval()
    x = window()
    inputs = {name: torch.from_numpy(values) for name, values in x.items()}
    with torch.no_grad():
        expected = original(
            states=inputs["states"],
            actions=inputs["actions"],
            rewards=None,
            returns_to_go=inputs["returns_to_go"],
            timesteps=inputs["timesteps"],
            attention_mask=inputs["mask"],
        )
    predictions = hugging_face_decision_transformer(built(), original.state_dict())(x)
    real = x["mask"] > 0
    for head in ("action", "state", "return"):
        np.testing.assert_allclose(
            ops.convert_to_numpy(predictions[head])[real],
            expected[f"{head}_preds"].numpy()[real],
            atol=2e-5,
        )


def test_masks_of_older_versions_are_ignored():
    weights = random_state_dict()
    old = {"encoder.h.0.attn.bias": np.ones((1, 1, 9, 9)), "encoder.h.1.attn.masked_bias": -1e4}
    new, plain = built(), built()
    hugging_face_decision_transformer(new, {**weights, **old})
    hugging_face_decision_transformer(plain, weights)
    assert all((a == b).all() for a, b in zip(new.get_weights(), plain.get_weights()))


def test_error_lists_every_misfit_and_assigns_nothing():
    weights = random_state_dict()
    del weights["encoder.wpe.weight"], weights["encoder.ln_f.weight"]
    weights["encoder.h.7.ln_1.weight"] = np.zeros(H)
    weights["encoder.h.0.attn.c_attn.weight"] = np.zeros((3 * H, H))
    model = built()
    before = model.get_weights()
    with pytest.raises(ValueError) as error:
        hugging_face_decision_transformer(model, weights)
    for part in (
        "missing: encoder.wpe.weight",
        "missing: encoder.ln_f.weight",
        "unknown: encoder.h.7.ln_1.weight",
        "wrong shape: encoder.h.0.attn.c_attn.weight",
    ):
        assert part in str(error.value)
    assert all((new == old).all() for new, old in zip(model.get_weights(), before))


def test_other_models_are_errors():
    with pytest.raises(ValueError, match="norm='pre'"):
        hugging_face_decision_transformer(built(norm="post"), random_state_dict())
