"""Quantization, LoRA, dtype policies and frozen sublayers survive saving and loading."""

import keras
import numpy as np
import pytest
from keras import ops

from rrl_tf.layers import RelationalBlock, RelationalModule
from rrl_tf.models import BehaviorCloning, MLPClassifier, RelationalClassifier

X = np.random.default_rng(0).normal(size=(2, 12, 12, 1)).astype("float32")


# Keras quantizes only dense layers and embeddings, and warns about the others.
pytestmark = pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")


def array(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def classifier(**kwargs):
    block = {"num_heads": 2, "key_size": 4}
    model = RelationalClassifier(3, (4,), block=block, num_rounds=2, **kwargs)
    model.build((None, *X.shape[1:]))
    return model


def loaded(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.saving.load_model(tmp_path / "model.keras")


def attention(model, round_=1):
    return model.relations.blocks[round_].attention


@pytest.mark.tf_only
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("float8", id="float8"),
        pytest.param("int4", id="int4", marks=pytest.mark.slow),
        pytest.param(
            keras.quantizers.Int4QuantizationConfig(block_size=2),
            id="int4-blocks",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            keras.quantizers.Int8QuantizationConfig(
                keras.quantizers.AbsMaxQuantizer(axis=0, value_range=(-63, 63)), None
            ),
            id="int8-weights",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_quantization_modes(mode, dtype, tmp_path):
    model = classifier(dtype=dtype)
    model.quantize(**{"mode" if isinstance(mode, str) else "config": mode})
    for _ in range(2):  # a loaded model can be saved again
        again = loaded(model, tmp_path)
        np.testing.assert_array_equal(array(again(X)), array(model(X)))
        assert attention(again).query_key_value.dtype_policy == (
            attention(model).query_key_value.dtype_policy
        )
        model = again


def test_part_of_a_model_can_be_quantized(tmp_path):
    model = classifier()
    model.quantize("int8", filters=lambda layer: layer.name == "query_key_value")
    again = loaded(model, tmp_path)
    assert attention(again).query_key_value.quantization_mode == "int8"
    assert again.head.quantization_mode is None
    np.testing.assert_array_equal(array(again(X)), array(model(X)))


@pytest.mark.slow
def test_preset_of_a_quantized_model(tmp_path):
    model = classifier()
    model.quantize("int8")
    again = RelationalClassifier.from_preset(model.save_to_preset(tmp_path / "small"))
    np.testing.assert_array_equal(array(again(X)), array(model(X)))


def test_build_configuration_restores_a_layer():
    module = RelationalModule(RelationalBlock(2, 4), num_rounds=2)
    module.build((None, 6, 8))
    module.blocks[1].attention.query_key_value.quantize("int8")
    again = RelationalModule.from_config(module.get_config())
    again.build_from_config(module.get_build_config())
    again.set_weights(module.get_weights())
    x = np.random.default_rng(1).normal(size=(2, 6, 8)).astype("float32")
    np.testing.assert_array_equal(array(again(x)), array(module(x)))


def test_low_rank_adapters(tmp_path):
    model = classifier()
    dense = attention(model).query_key_value
    dense.enable_lora(2, lora_alpha=3)
    dense.lora_kernel_b.assign(np.full(dense.lora_kernel_b.shape, 0.1))
    again = loaded(model, tmp_path)
    found = attention(again).query_key_value
    assert (found.lora_enabled, found.lora_rank, found.lora_alpha) == (True, 2, 3)
    assert len(again.trainable_weights) == len(model.trainable_weights)
    np.testing.assert_allclose(array(again(X)), array(model(X)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_dtype_policies_set_on_sublayers_after_building(dtype, tmp_path):
    model = classifier(dtype=dtype)
    model.head.dtype_policy = "mixed_bfloat16"
    attention(model).query_key_value.dtype_policy = "float16"
    again = loaded(model, tmp_path)
    assert again.head.dtype_policy.name == "mixed_bfloat16"
    assert attention(again).query_key_value.dtype_policy.name == "float16"
    np.testing.assert_array_equal(array(again(X)), array(model(X)))


def test_dtype_policy_set_on_a_model_after_building(tmp_path):
    model = MLPClassifier(3, (8,))
    model.build((None, *X.shape[1:]))
    model.dtype_policy = "mixed_bfloat16"
    again = loaded(model, tmp_path)
    assert [again.hidden[0].dtype_policy.name, again.dtype_policy.name] == [
        "float32",
        "mixed_bfloat16",
    ]
    np.testing.assert_array_equal(array(again(X)), array(model(X)))


def test_frozen_parts_stay_frozen(tmp_path):
    model = BehaviorCloning(4, 3, (6,), members=2)
    model.build()
    model.networks[1].trainable = False
    attempt = loaded(model, tmp_path)
    assert [network.trainable for network in attempt.networks] == [True, False]
    assert len(attempt.trainable_weights) == len(model.trainable_weights) == 4


def test_parts_of_frozen_parts_stay_trainable(tmp_path):
    model = classifier()
    dense = attention(model).query_key_value
    dense.enable_lora(2)
    model.relations.trainable = False
    attention(model, 0).trainable = True
    again = loaded(model, tmp_path)
    assert [attention(again, round_).trainable for round_ in (0, 1)] == [True, False]
    expected = [weight.path for weight in model.trainable_weights]
    assert [weight.path for weight in again.trainable_weights] == expected


def test_unchanged_layers_have_an_unchanged_configuration():
    model = classifier()
    assert set(model.get_build_config()) == {"input_shape"}
