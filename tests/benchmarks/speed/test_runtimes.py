"""Pretrained models have the same outputs in TFLite, ONNX Runtime and TensorFlow."""

import importlib.util

import pytest
import tensorflow as tf

from benchmarks.speed import runtimes
from rrl_tf.pretrained import pretrained_models

# TensorFlow warns that its interpreter moves to LiteRT.
pytestmark = [pytest.mark.tf_only, pytest.mark.filterwarnings("ignore::UserWarning")]

MODELS = sorted(pretrained_models())
WITHOUT_ONNX = any(importlib.util.find_spec(name) is None for name in ("tf2onnx", "onnxruntime"))
# OneHot: ONNX counts the index -1 from the end, whereas TensorFlow returns zeros for it.
UNSUPPORTED = {"Bitcast", "BitwiseAnd", "BitwiseOr", "LeftShift", "RightShift", "OneHot"}


def operations(graph_def):
    functions = (node for function in graph_def.library.function for node in function.node_def)
    return {node.op for node in (*graph_def.node, *functions)}


@pytest.mark.parametrize("name", MODELS)
def test_graphs_have_no_operation_that_other_runtimes_lack(name):
    version, signatures = runtimes.signatures_of(name)
    loaded = tf.saved_model.load(str(version))
    for signature in signatures:
        graph_def = loaded.signatures[signature].graph.as_graph_def()
        assert not operations(graph_def) & UNSUPPORTED


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in MODELS])
def test_tflite_outputs_equal_those_of_tensorflow(name):
    version, signatures = runtimes.signatures_of(name)
    for signature, spec in signatures.items():
        arrays = runtimes.random_inputs(spec["inputs"], 3)
        expected = runtimes.in_tensorflow(version, signature)(arrays)
        _, run = runtimes.in_tflite(version, signature)
        assert runtimes.largest_difference(expected, run(arrays)) < 1e-5


@pytest.mark.slow
@pytest.mark.skipif(WITHOUT_ONNX, reason="needs tf2onnx and onnxruntime")
@pytest.mark.parametrize("name", MODELS)
def test_onnx_outputs_equal_those_of_tensorflow(name):
    version, signatures = runtimes.signatures_of(name)
    for signature, spec in signatures.items():
        arrays = runtimes.random_inputs(spec["inputs"], 3)
        expected = runtimes.in_tensorflow(version, signature)(arrays)
        _, run = runtimes.in_onnx(version, signature)
        assert runtimes.largest_difference(expected, run(arrays)) < 1e-5


def test_different_actions_are_an_infinite_difference():
    expected = {"action": tf.constant([1, 2]).numpy(), "q": tf.constant([0.5]).numpy()}
    assert runtimes.largest_difference(expected, expected) == 0
    assert runtimes.largest_difference(
        expected, expected | {"action": expected["action"] + 1}
    ) == float("inf")
    with pytest.raises(ValueError, match="outputs must be"):
        runtimes.largest_difference(expected, {})
