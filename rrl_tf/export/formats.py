"""Convert exported policies for runtimes that need no Python: SavedModel, ONNX, TFLite."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import one_of, path_of
from rrl_tf._atomic import draft_folder, replace_folder, restore_folder
from rrl_tf._optional_packages import optional_package
from rrl_tf.errors import InvalidInput
from rrl_tf.export.load import Policy


def convert_policy(
    policy: Policy,
    path: str | os.PathLike,
    format: str,
    signature: str = "serving_default",
    overwrite: bool = False,
) -> Path:
    """Write a policy as a SavedModel, an ONNX file or a TFLite file.

    The file or folder appears under its name only when it is complete; until then, the one that it
    replaces remains. The inputs, the outputs and their names equal those of the signature.
    `rrl-export` is the same on the command line.

    Args:
        policy: Policy that `load_policy` has returned.
        path: File to write; for "saved_model", a folder.
        format: "saved_model", "onnx" or "tflite".
        signature: Name of the signature to convert. A SavedModel contains all signatures.
        overwrite: Whether to replace an existing file, or an existing folder with a SavedModel.

    Returns:
        The path.

    Raises:
        InvalidInput: If the policy lacks the signature, if the path exists and may not be replaced,
            if the path of a SavedModel is inside the folder of the policy, if the format lacks an
            operation of the signature, or if ONNX is requested and tf2onnx is not installed.
            Nothing is written.
        OSError: If the path cannot be written.

    Example:

    >>> from rrl_tf.export import load_policy
    >>> convert_policy(load_policy("doorkey-5x5"), "runs/converted/policy", "saved_model")
    PosixPath('runs/converted/policy')
    """
    converters = {"onnx": to_onnx, "tflite": to_tflite}
    one_of("format", format, ("saved_model", *converters))
    one_of("signature", signature, sorted(policy.signatures))
    path = path_of("path", path)
    restore_folder(path)
    of_same_kind = path.is_file() if format in converters else (path / "saved_model.pb").exists()
    if path.exists() and not (overwrite and of_same_kind):
        hint = "Use `overwrite`." if of_same_kind else f"It is not of the format {format}."
        raise InvalidInput(f"`path` must not exist; received {str(path)!r}. {hint}")
    if format not in converters and policy.directory.resolve() in path.resolve().parents:
        raise InvalidInput(
            f"`path` must not be inside the policy {str(policy.directory)!r}; "
            f"received {str(path)!r}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_folder(path.parent) as draft:
        written = draft / path.name
        if format in converters:
            written.write_bytes(converters[format](policy.directory, signature))
        else:
            shutil.copytree(policy.directory, written)
        if not path.is_dir():  # a folder cannot be renamed to the name of a folder with files
            return written.rename(path)
        replace_folder(written, path)
        return path


def to_tflite(directory: Path, signature: str) -> bytes:
    """Return a signature of the SavedModel in a version folder as a TFLite model."""
    converter = tf.lite.TFLiteConverter.from_saved_model(str(directory), signature_keys=[signature])
    try:
        return converter.convert()
    except Exception as error:  # the class of the converter's errors is private
        reason = str(error).partition("\n")[0]
        raise InvalidInput(f"{signature!r} cannot be converted to TFLite ({reason}).") from error


def to_onnx(directory: Path, signature: str) -> bytes:
    """Return a signature of the SavedModel in a version folder as an ONNX model.

    Raises:
        InvalidInput: If tf2onnx is not installed, or ONNX lacks an operation of the signature.
    """
    tf2onnx = optional_package("tf2onnx", "the conversion to ONNX", "pip install '.[onnx]'")
    onnx = optional_package("onnx", "the conversion to ONNX", "pip install '.[onnx]'")
    loaded = tf.saved_model.load(str(directory))  # owns the variables of its signatures
    function = loaded.signatures[signature]
    specs = function.structured_input_signature[1]
    model, _ = tf2onnx.convert.from_function(
        tf.function(lambda *tensors: function(**dict(zip(specs, tensors)))),
        input_signature=list(specs.values()),
        opset=17,
        custom_op_handlers={"Erfc": (_one_minus_erf, [])},
    )
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInput(f"{signature!r} cannot be converted to ONNX ({reason}).") from error
    return model.SerializeToString()


def _one_minus_erf(context, node, name, args):
    """Convert `Erfc` for ONNX, which lacks it; TensorFlow's optimizer creates it from GELU."""
    node.type = "Erf"
    (output,) = node.output
    one = context.make_const(f"{name}/one", np.float32(1)).output[0]
    difference = context.insert_new_node_on_output("Sub", output, name=f"{name}/difference")
    context.replace_inputs(difference, [one, output])
    return node
