"""Converted weights of min-decision-transformer give its outputs in NumPy."""

import math

import numpy as np
import pytest
from keras import ops

from rrl_tf.convert import min_decision_transformer
from rrl_tf.models import DecisionTransformer

S, A, H, K, HEADS, BLOCKS = 5, 2, 12, 6, 2, 2
LAYERS = {
    "embed_rtg": (H, 1),
    "embed_state": (H, S),
    "embed_action": (H, A),
    "predict_rtg": (1, H),
    "predict_state": (S, H),
    "predict_action.0": (A, H),
}
for i in range(BLOCKS):
    LAYERS |= {f"transformer.{i}.attention.{n}_net": (H, H) for n in ("q", "k", "v", "proj")}
    LAYERS |= {f"transformer.{i}.mlp.0": (4 * H, H), f"transformer.{i}.mlp.2": (H, 4 * H)}
NORMS = ["embed_ln", *(f"transformer.{i}.ln{n}" for i in range(BLOCKS) for n in (1, 2))]


def random_state_dict(seed=0):
    rng = np.random.default_rng(seed)
    weights = {"embed_timestep.weight": rng.normal(size=(50, H))}
    for name, shape in LAYERS.items():
        weights[f"{name}.weight"] = rng.normal(0, 0.3, size=shape)
        weights[f"{name}.bias"] = rng.normal(0, 0.3, size=shape[0])
    for name in NORMS:
        weights[f"{name}.weight"] = rng.normal(1, 0.3, size=H)
        weights[f"{name}.bias"] = rng.normal(0, 0.3, size=H)
    for i in range(BLOCKS):
        weights[f"transformer.{i}.attention.mask"] = np.tril(np.ones((1, 1, 3 * K, 3 * K)))
    return weights


def window(seed=1):
    rng = np.random.default_rng(seed)
    return {
        "states": rng.normal(size=(3, K, S)).astype("float32"),
        "actions": rng.normal(size=(3, K, A)).astype("float32"),
        "returns_to_go": rng.normal(size=(3, K, 1)).astype("float32"),
        "timesteps": np.arange(K) + np.array([[0], [7], [40]]),
        "mask": np.ones((3, K)),
    }


def numpy_original(w, x):
    """Compute the return, state and action predictions of the original, in float64."""

    def linear(name, x):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def split(x):
        return x.reshape(len(x), -1, HEADS, H // HEADS).transpose(0, 2, 1, 3)

    time = w["embed_timestep.weight"][x["timesteps"]]
    names = {"embed_rtg": "returns_to_go", "embed_state": "states", "embed_action": "actions"}
    tokens = np.stack([linear(layer, x[name]) + time for layer, name in names.items()], axis=2)
    h = norm("embed_ln", tokens.reshape(len(time), 3 * K, H))
    for i in range(BLOCKS):
        name = f"transformer.{i}"
        q, k, v = (split(linear(f"{name}.attention.{n}_net", h)) for n in "qkv")
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(H // HEADS)
        scores[..., np.triu(np.ones((3 * K, 3 * K), bool), 1)] = -np.inf
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        heads = (scores / scores.sum(-1, keepdims=True)) @ v
        heads = heads.transpose(0, 2, 1, 3).reshape(h.shape)
        h = norm(f"{name}.ln1", h + linear(f"{name}.attention.proj_net", heads))
        hidden = linear(f"{name}.mlp.0", h)
        hidden = hidden * 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
        h = norm(f"{name}.ln2", h + linear(f"{name}.mlp.2", hidden))
    h = h.reshape(len(h), K, 3, H)
    return {
        "return": linear("predict_rtg", h[:, :, 2]),
        "state": linear("predict_state", h[:, :, 2]),
        "action": np.tanh(linear("predict_action.0", h[:, :, 1])),
    }


def built(**arguments):
    sizes = {"width": H, "num_blocks": BLOCKS, "num_heads": HEADS, "context_length": K}
    model = DecisionTransformer.from_preset(
        "min-dt", state_size=S, action_size=A, max_timestep=50, **{**sizes, **arguments}
    )
    model.build()
    return model


def test_output_equals_the_original():
    weights, x = random_state_dict(), window()
    model = min_decision_transformer(built(), weights)
    predictions = model(x)
    expected = numpy_original(weights, x)
    assert predictions.keys() == expected.keys()
    for head, values in expected.items():
        np.testing.assert_allclose(
            ops.convert_to_numpy(predictions[head]), values, atol=2e-5, rtol=1e-4
        )


def test_all_weights_are_assigned():
    taken = {name for name in random_state_dict() if not name.endswith("attention.mask")}
    model = built()
    before = model.get_weights()
    min_decision_transformer(model, random_state_dict())
    assert all((new != old).any() for new, old in zip(model.get_weights(), before))
    assert sum(random_state_dict()[name].size for name in taken) == model.count_params()


def test_model_has_the_published_number_of_parameters():
    model = DecisionTransformer.from_preset("min-dt", state_size=17, action_size=6)
    model.build()
    assert model.count_params() == 1_125_912
    model = DecisionTransformer.from_preset("min-dt", state_size=11, action_size=3)
    model.build()
    assert model.count_params() == 1_123_599


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: built(norm="pre"), "norm='post'"),
        (lambda: built(positions="window"), "positions='episode'"),
        (lambda: built(heads=("action",)), "heads="),
        (lambda: built(discrete=True), "discrete=False"),
        (lambda: built(distribution="censored_normal"), "distribution='point'"),
        (lambda: DecisionTransformer.from_preset("min-dt", state_size=S, action_size=A), "build"),
        (lambda: "a string", "must be a DecisionTransformer; received 'a string'"),
    ],
)
def test_other_models_are_errors(model, message):
    with pytest.raises(ValueError, match=message):
        min_decision_transformer(model(), random_state_dict())
