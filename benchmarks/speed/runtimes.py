"""Measure the size and the accuracy of pretrained models in TFLite and ONNX Runtime.

Every signature of every pretrained model is converted, and its outputs for random inputs are
compared with TensorFlow's. ONNX needs `pip install '.[onnx]'`.
"""

import dataclasses
import json

import numpy as np
import tensorflow as tf

from benchmarks.measure import Report
from rrl_tf.export.formats import to_onnx, to_tflite
from rrl_tf.pretrained import POLICY, pretrained_folder, pretrained_models


@dataclasses.dataclass(frozen=True)
class Config:
    """Select the models to convert."""

    models: tuple[str, ...] = tuple(sorted(pretrained_models()))
    """Names of pretrained models."""


def main(config):
    """Convert the models, and compare their outputs with TensorFlow's."""
    rows = [row for name in config.models for row in model_rows(name)]
    note = (
        "Difference: the largest of all outputs for three random inputs; actions and classes are "
        "equal."
    )
    return Report("Pretrained models in other runtimes", rows, (note,))


def model_rows(name):
    """Yield one row for each signature of a pretrained model except `serving_default`."""
    version, signatures = signatures_of(name)
    for signature, spec in signatures.items():
        arrays = random_inputs(spec["inputs"], 3)
        expected = in_tensorflow(version, signature)(arrays)
        row = {"model": name, "signature": signature}
        for runtime, (model, run) in {
            "TFLite": in_tflite(version, signature),
            "ONNX": in_onnx(version, signature),
        }.items():
            row[f"{runtime}, kB"] = f"{len(model) / 1e3:.0f}"
            row[f"{runtime}, difference"] = f"{largest_difference(expected, run(arrays)):.0e}"
        yield row


def signatures_of(name):
    """Return the version folder of a pretrained model, and its signatures in `policy.json`."""
    version = pretrained_folder(name) / POLICY / "1"
    details = json.loads((version / "assets.extra" / "policy.json").read_text())
    return version, {k: v for k, v in details["signatures"].items() if k != "serving_default"}


def in_tensorflow(version, signature):
    """Return a function that runs a signature in TensorFlow, from and to named NumPy arrays."""
    model = tf.saved_model.load(str(version))

    def run(arrays):
        tensors = {name: tf.constant(array) for name, array in arrays.items()}
        outputs = model.signatures[signature](**tensors)
        return {name: output.numpy() for name, output in outputs.items()}

    return run


def in_tflite(version, signature):
    """Return the TFLite model of a signature, and a function that runs it."""
    model = to_tflite(version, signature)
    runner = tf.lite.Interpreter(model_content=model).get_signature_runner(signature)
    return model, lambda arrays: runner(**arrays)


def in_onnx(version, signature):
    """Return the ONNX model of a signature, and a function that runs it."""
    model = to_onnx(version, signature)
    import onnxruntime  # of the same extra as tf2onnx, which `to_onnx` needs

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return model, lambda arrays: dict(zip(names, session.run(None, arrays)))


def random_inputs(inputs, rows):
    """Return random NumPy inputs of a signature; a memory is zero, as before an episode."""
    rng, arrays = np.random.default_rng(0), {}
    for name, spec in inputs.items():
        shape = [rows if size is None else size for size in spec["shape"]]
        if not shape:
            array = np.array(rows)  # `batch_size`
        elif name == "memory":
            array = np.zeros(shape)
        else:
            array = rng.random(shape) if spec["dtype"] == "float32" else rng.integers(0, 4, shape)
        arrays[name] = array.astype(spec["dtype"])
    return arrays


def largest_difference(expected, found):
    """Return the largest difference of named outputs, or infinity if integers differ."""
    if expected.keys() != found.keys():
        raise ValueError(f"outputs must be {sorted(expected)}; received {sorted(found)}")
    largest = 0.0
    for name, array in expected.items():
        difference = float(np.abs(array.astype("float64") - found[name]).max(initial=0.0))
        is_exact = array.dtype.kind in "iu"
        largest = max(largest, float("inf") if is_exact and difference else difference)
    return largest
