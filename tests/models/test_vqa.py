"""Models that answer questions about images."""

import re

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.models import ConvolutionalVQA, RelationalVQA

SMALL = {"num_classes": 4, "conv_filters": (4, 8), "hidden_units": (8,)}
BLOCK = {"num_heads": 2, "key_size": 4}


def relational(**arguments):
    return RelationalVQA(cell_units=(8,), width=8, **{**SMALL, **arguments})


def convolutional():
    return ConvolutionalVQA(conv_kernel_size=(3, 3), conv_strides=(2, 2), **SMALL)


def make_inputs(pictures, questions, batch=None):
    batch = pictures if batch is None else batch
    rng = np.random.default_rng(0)
    return {
        "images": rng.random((pictures, 12, 12, 3)).astype("float32"),
        "questions": rng.random((batch, questions, 5)).astype("float32"),
    }


@given(
    norm=st.sampled_from([None, "entity"]),
    qkv_norm=st.sampled_from([None, "entity", "fused"]),
    score=st.sampled_from(["dot", "additive"]),
)
@settings(max_examples=6, deadline=None)
def test_answer_does_not_depend_on_other_questions(norm, qkv_norm, score):
    model = relational(block={**BLOCK, "norm": norm, "qkv_norm": qkv_norm, "score": score})
    inputs = make_inputs(2, 3)
    alone = {**inputs, "questions": inputs["questions"][:, 1:2]}
    among, own = (keras.ops.convert_to_numpy(model(each)) for each in (inputs, alone))
    np.testing.assert_allclose(own[:, 0], among[:, 1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"norm": "joint"}, {"qkv_norm": "joint"}, {"score": "book_additive"}], ids=repr
)
def test_block_that_relates_all_entities_is_an_error(wrong):
    with pytest.raises(InvalidInput, match=r"`block` must have no 'joint' norms.*; received .*"):
        relational(block={**BLOCK, **wrong})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"block": {"num_heads": 2}}, "`block` must be a dict of arguments of RelationalBlock"),
        ({"block": {**BLOCK, "foo": 1}}, "`block` must be .*of RelationalBlock.*'foo': 1"),
        ({"block": "abc"}, "`block` must be a dict; received 'abc'"),
        ({"coordinates": {"foo": 1}}, "`coordinates`.*of AppendCoordinates.*received {'foo': 1}"),
        ({"coordinates": 3}, "`coordinates` must be a dict; received 3"),
    ],
)
def test_bad_arguments_are_errors(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        relational(**arguments)


def test_arguments_of_a_block_replace_those_of_the_model():
    model = relational(block={**BLOCK, "dtype": "float64", "name": "mine"})
    assert model.relations.block.name == "mine"
    assert model.relations.block.compute_dtype == "float64"


@pytest.mark.parametrize("make", [relational, convolutional])
@pytest.mark.parametrize("built", [False, True])
def test_bad_inputs_are_errors(make, built):
    model = make()
    if built:
        model(make_inputs(2, 3))
    for inputs, received in (
        (make_inputs(2, 3, batch=1), "the shapes (2, 12, 12, 3) and (1, 3, 5)"),
        (make_inputs(2, 0), "the shapes (2, 12, 12, 3) and (2, 0, 5)"),
        (make_inputs(0, 3), "the shapes (0, 12, 12, 3) and (0, 3, 5)"),
        (list(make_inputs(2, 3).values()), "a list" if built else "[(2, 12, 12, 3), (2, "),
    ):
        with pytest.raises(InvalidInput, match=f"must be .*; received {re.escape(received)}"):
            model(inputs)


def test_functional_model_takes_batches_of_any_size():
    inputs = {
        "images": keras.Input((12, 12, 3), name="images"),
        "questions": keras.Input((None, 5), name="questions"),
    }
    model = keras.Model(inputs, relational()(inputs))
    assert [model(make_inputs(n, 4 - n)).shape for n in (1, 2)] == [(1, 3, 4), (2, 2, 4)]


def test_bad_hidden_units_are_errors():
    for units, message in (
        (5, "must be a sequence of positive"),
        ((), "`the number of hidden_units`"),
    ):
        with pytest.raises(InvalidInput, match=message):
            ConvolutionalVQA(hidden_units=units)
