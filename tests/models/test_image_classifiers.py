"""Image classifiers; test_conformance.py tests properties of all models."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.models import (
    ConvolutionalClassifier,
    MLPClassifier,
    PatchAttentionClassifier,
    RelationalClassifier,
)


def images(batch=2, size=28, channels=1, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((batch, size, size, channels)).astype("float32")


def numbers(tensor):
    return ops.convert_to_numpy(tensor)


def test_fast_has_no_more_parameters_than_book():
    model = RelationalClassifier.from_preset("fast")
    model.build((None, 28, 28, 1))
    assert model.count_params() <= 85_228
    config = model.get_config()
    assert config["num_rounds"] > 1 and config["block"]["qkv_norm"] == "entity"


@given(size=st.integers(16, 40))
@settings(max_examples=2)
def test_fast_takes_images_of_any_size(size):
    model = RelationalClassifier.from_preset("fast")
    model.build((None, 28, 28, 1))
    x = images(size=size)
    logits, attention = model(x, return_attention_scores=True)
    rows, columns = model.grid_shape(x.shape)
    assert attention["round_1"].shape[-2:] == (rows * columns, rows * columns)
    assert np.isfinite(numbers(logits)).all()
    assert model.grid_shape((None, None, None, 1)) == (None, None)


def test_images_of_another_size_are_an_error():
    for model in (
        RelationalClassifier.from_preset("book"),
        ConvolutionalClassifier.from_preset("book"),
        PatchAttentionClassifier.from_preset("patch-mnist"),
        MLPClassifier.from_preset("patch-mnist"),
    ):
        model.build((None, 28, 28, 1))
        with pytest.raises(ValueError, match=r"\(None, 28, 28, 1\).*\(2, 35, 35, 1\)"):
            model(images(size=35))


@given(row=st.integers(0, 2), column=st.integers(0, 3))
def test_patch_at_row_and_column_is_its_node(row, column):
    """All weights of the projection are 1, so only the bright patch gets attention."""
    model = PatchAttentionClassifier(patch_size=2, key_size=1)
    model.build((None, 6, 8, 1))
    kernel = model.attention.query_key_value.kernel
    kernel.assign(np.ones(kernel.shape))  # query, key and value are the sum of the pixels
    x = np.zeros((1, 6, 8, 1), np.float32)
    x[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = 3.0
    _, attention = model(x, return_attention_scores=True)
    assert model.grid_shape(x.shape) == (3, 4)
    bright = 4 * row + column
    assert numbers(attention["round_1"])[0, 0, bright].argmax() == bright
    assert numbers(attention["round_1"])[0, 0, bright].max() > 0.99


def test_pixels_of_a_patch_keep_their_order():
    model = PatchAttentionClassifier(patch_size=2)
    model.build((None, 4, 6, 2))
    x = np.arange(48, dtype="float32").reshape(1, 4, 6, 2)
    patches = numbers(model._patches(x))[0]
    for node in range(6):
        top, left = 2 * (node // 3), 2 * (node % 3)
        expected = x[0, top : top + 2, left : left + 2].ravel()
        np.testing.assert_array_equal(patches[node], expected)


def test_single_image_equals_its_row_of_a_batch():
    model = RelationalClassifier.from_preset("book")
    x = images(3)
    whole = numbers(model(x))
    for i in range(3):
        np.testing.assert_allclose(numbers(model(x[i : i + 1]))[0], whole[i], atol=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RelationalClassifier(num_classes=0), "num_classes"),
        (lambda: RelationalClassifier(conv_padding="full"), r"conv_padding.*'full'"),
        (lambda: RelationalClassifier(conv_strides=(1, 2, 3)), r"one for each of the 2.*\(1, 2, 3"),
        (
            lambda: RelationalClassifier.from_preset("boook"),
            "one of .'book', 'fast', .*; received 'boook'",
        ),
        (
            lambda: ConvolutionalClassifier(pool_after=(3,)),
            r"convolutions, 1 to 2; received \(3,\)",
        ),
        (
            lambda: PatchAttentionClassifier().build((None, 30, 28, 1)),
            r"patch_size=7.*\(None, 30, 28, 1",
        ),
        (lambda: MLPClassifier().build((None, None, 28, 1)), "must be known"),
        (lambda: ConvolutionalClassifier().build((None, None, 28, 1)), "must be known"),
        (lambda: RelationalClassifier().build((None, 28, 28)), r"images must be.*\(None, 28, 28\)"),
        (
            lambda: RelationalClassifier(block={"numheads": 2}),
            "`block` must be a dict of arguments",
        ),
        (lambda: RelationalClassifier(block=5), "`block` must be a dict; received 5"),
        (lambda: RelationalClassifier(coordinates={"lo": 2}), "`coordinates` must be .*'lo': 2"),
        (lambda: RelationalClassifier(coordinates=2), "`coordinates` must be a dict; received 2"),
    ],
)
def test_bad_arguments_are_errors(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (ConvolutionalClassifier(), 4),
        (ConvolutionalClassifier(), 3),
        (RelationalClassifier(conv_padding="valid"), 4),
    ],
)
def test_building_for_images_that_are_too_small_is_an_error(model, size):
    with pytest.raises(ValueError, match=r"zero or negative.*1 1"):
        model.build((None, size, size, 1))
