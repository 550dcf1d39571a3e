"""DecisionTransformer: presets, padding and time."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from rrl_tf.models import DecisionTransformer

S, A, K = 5, 3, 6
PRESETS = pytest.mark.parametrize("preset", ["min-dt", "paper", "fast"])


def array(tensor):
    return ops.convert_to_numpy(tensor)


def built(preset="min-dt", **arguments):
    sizes = {"width": 16, "num_blocks": 2, "num_heads": 2, "context_length": K, "max_timestep": 30}
    model = DecisionTransformer.from_preset(
        preset, state_size=S, action_size=A, **{**sizes, **arguments}
    )
    model.build()
    return model


def window(steps=K, batch=2, seed=0, first=3):
    rng = np.random.default_rng(seed)
    return {
        "states": rng.normal(size=(batch, steps, S)).astype("float32"),
        "actions": rng.normal(size=(batch, steps, A)).astype("float32"),
        "returns_to_go": rng.normal(size=(batch, steps, 1)).astype("float32"),
        "timesteps": np.tile(np.arange(first, first + steps, dtype="int32"), (batch, 1)),
        "mask": np.ones((batch, steps), "float32"),
    }


def padded(x, front):
    rng = np.random.default_rng(9)

    def pad(name, values):
        shape = (len(values), front, *values.shape[2:])
        if name == "mask":
            fill = np.zeros(shape)
        elif name == "timesteps":
            fill = rng.integers(30, size=shape)
        else:
            fill = 50 * rng.normal(size=shape)
        return np.concatenate([fill.astype(values.dtype), values], axis=1)

    return {name: pad(name, values) for name, values in x.items()}


@PRESETS
@settings(max_examples=3)
@given(front=st.integers(1, 4), steps=st.integers(2, K), ask=st.booleans())
def test_padding_changes_no_real_step(preset, front, steps, ask):
    model, x = built(preset), window(steps)
    plain = model(x)
    if ask:
        result, attention = model(padded(x, front), return_attention_scores=True)
        for scores in attention.values():
            np.testing.assert_allclose(array(scores).sum(-1), 1.0, atol=1e-5)
            assert (array(scores)[:, :, 3 * front :, : 3 * front] == 0).all()
    else:
        result = model(padded(x, front))
    for head, values in plain.items():
        np.testing.assert_allclose(array(result[head])[:, front:], array(values), atol=1e-5)


@PRESETS
@settings(max_examples=4)
@given(step=st.integers(0, K - 1), name=st.sampled_from(["states", "actions", "returns_to_go"]))
def test_action_does_not_depend_on_later_steps(preset, step, name):
    model, x = built(preset), window()
    changed = {**x, name: x[name].copy()}
    changed[name][:, step] += 3.0
    before, after = array(model(x)["action"]), array(model(changed)["action"])
    first = step + (name == "actions")  # step t does not receive its own action
    np.testing.assert_array_equal(before[:, :first], after[:, :first])
    assert (np.abs(before - after)[:, first:].max(axis=-1) > 1e-7).all()


@PRESETS
def test_last_action_equals_the_last_of_all(preset):
    model, x = built(preset), padded(window(4), 2)
    all_heads = built(preset, heads=("action", "state", "return"))
    all_heads.set_weights([*model.get_weights(), *all_heads.get_weights()[len(model.weights) :]])
    full, attention = model(x, return_attention_scores=True)
    assert attention.keys() == {"block_1", "block_2"}
    last = model(x, last_action=True)
    asked, _ = model(x, last_action=True, return_attention_scores=True)
    np.testing.assert_allclose(array(all_heads(x)["action"]), array(full["action"]), atol=1e-5)
    np.testing.assert_allclose(array(model(x)["action"]), array(full["action"]), atol=1e-5)
    np.testing.assert_allclose(array(last["action"]), array(full["action"])[:, -1], atol=1e-5)
    np.testing.assert_allclose(array(asked["action"]), array(last["action"]), atol=1e-5)


@pytest.mark.parametrize("heads", [["action"], ["state", "action"], ["return", "action"]])
def test_heads_may_be_left_out(heads):
    model, everything, x = built(heads=heads), built(), window()
    copies = [(everything.embedding, model.embedding), *zip(everything.blocks, model.blocks)]
    copies += [(everything.predictors[head], model.predictors[head]) for head in set(heads)]
    for ours, theirs in copies:
        ours.set_weights(theirs.get_weights())
    result, expected = model(x), everything(x)
    assert result.keys() == set(heads)
    for head, values in result.items():
        np.testing.assert_allclose(array(values), array(expected[head]), atol=1e-6)


@settings(max_examples=3)
@given(front=st.integers(0, 3), steps=st.integers(1, K), first=st.integers(0, 2000))
def test_window_positions_count_from_the_newest_step(front, steps, first):
    model, x = built("fast", positions="window"), window(steps)
    embedding = model.embedding
    embedding.norm.set_weights([weight + 0.5 for weight in embedding.norm.get_weights()])
    others = padded({**x, "timesteps": x["timesteps"] + first}, front)
    np.testing.assert_allclose(
        array(model(others)["action"])[:, front:], array(model(x)["action"]), atol=1e-5
    )
    table = array(embedding.timestep.embeddings)[:steps][::-1]
    assert embedding.timestep.input_dim == K
    layers = embedding.return_to_go, embedding.state, embedding.action
    values = x["returns_to_go"], x["states"], x["actions"]
    tokens = [v @ array(each.kernel) + array(each.bias) + table for v, each in zip(values, layers)]
    tokens = np.stack(tokens, axis=2).reshape(2, 3 * steps, -1)
    centred = tokens - tokens.mean(-1, keepdims=True)
    scale, bias = embedding.norm.get_weights()
    expected = centred / np.sqrt(tokens.var(-1, keepdims=True) + 1e-5) * scale + bias
    result = embedding({name: v for name, v in x.items() if name != "mask"})
    np.testing.assert_allclose(array(result), expected, atol=1e-4)


def test_steps_before_the_context_share_the_last_position():
    model, x = built("fast", positions="window", context_length=2), window(4, batch=1)
    alike = {name: np.repeat(values[:, :1], 4, axis=1) for name, values in x.items()}
    first, second, third, newest = array(model.embedding(alike)).reshape(4, -1)
    np.testing.assert_allclose(first, second, atol=1e-6)
    np.testing.assert_allclose(second, third, atol=1e-6)
    assert np.abs(third - newest).max() > 1e-3
    with pytest.raises(ValueError, match=r"`positions` must be one of .*received 'place'"):
        built("fast", positions="place")


def test_late_timesteps_share_the_last_embedding():
    model, x = built(), window()
    late = {**x, "timesteps": np.full((2, K), 29, "int32")}
    later = {**x, "timesteps": np.full((2, K), 900, "int32")}
    np.testing.assert_array_equal(array(model(late)["action"]), array(model(later)["action"]))


def test_continuous_actions_stay_in_range_and_discrete_ones_are_logits():
    x = {name: 100 * v if name == "states" else v for name, v in window(batch=20).items()}
    assert np.abs(array(built(kernel_initializer="random_uniform")(x)["action"])).max() <= 1
    logits = built(discrete=True, kernel_initializer=keras.initializers.RandomNormal(stddev=2.0))
    assert np.abs(array(logits(x)["action"])).max() > 1


@PRESETS
def test_saved_file_and_config_give_the_same_output(preset, tmp_path):
    model, x = built(preset), window()
    again = DecisionTransformer.from_config(model.get_config())
    assert again.get_config() == model.get_config()
    expected = model(x)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for head, values in expected.items():
        np.testing.assert_array_equal(array(loaded(x)[head]), array(values))


def test_symbolic_shapes_are_the_real_shapes():
    model, x = built(), window()
    symbols = {
        name: keras.Input(values.shape[1:], dtype=values.dtype.name) for name, values in x.items()
    }
    predictions, attention = model(symbols, return_attention_scores=True)
    real, real_attention = model(x, return_attention_scores=True)
    assert {n: s.shape[1:] for n, s in predictions.items()} == {
        n: tuple(v.shape[1:]) for n, v in real.items()
    }
    assert {n: s.shape[1:] for n, s in attention.items()} == {
        n: tuple(v.shape[1:]) for n, v in real_attention.items()
    }
    assert model(symbols, last_action=True)["action"].shape == (None, A)


def test_mixed_precision_predicts_in_float32():
    model, x = built(dtype="mixed_bfloat16"), window()
    predictions, attention = model(x, return_attention_scores=True)
    full = built()
    full.set_weights(model.get_weights())
    for head, values in predictions.items():
        assert keras.backend.standardize_dtype(values.dtype) == "float32"
        np.testing.assert_allclose(array(values), array(full(x)[head]), atol=0.15, rtol=0.15)
    assert keras.backend.standardize_dtype(attention["block_1"].dtype) == "bfloat16"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": ("state",)}, "`heads`"),
        ({"heads": ("action", "reward")}, "`heads`"),
        ({"num_blocks": 0}, "`num_blocks` must be a positive integer"),
        ({"norm": "none"}, "`norm` must be one of"),
    ],
)
def test_bad_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        built(**arguments)


def test_bad_inputs_are_errors():
    x = window()
    with pytest.raises(ValueError, match="must be a dict of states"):
        DecisionTransformer(S, A)({name: x[name] for name in ("states", "actions")})
    with pytest.raises(ValueError, match="`actions` must be of the shape"):
        DecisionTransformer(S, A + 1)(x)
    with pytest.raises(
        ValueError, match=r"`mask` must have the shape of .*\(2, 6\); received \(1, 6\)"
    ):
        DecisionTransformer(S, A)({**x, "mask": x["mask"][:1]})
