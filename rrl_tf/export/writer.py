"""Write SavedModels for TensorFlow Serving into version folders, which are named by numbers."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from rrl_tf._arguments import optional_positive_int
from rrl_tf._atomic import draft_folder
from rrl_tf.errors import InvalidInput
from rrl_tf.export.session import SavedModelSession

#: Dict signature name -> (function of tensors, named TensorSpecs of its inputs).
Endpoints = Mapping[str, tuple[Callable[..., dict[str, Any]], Sequence[tf.TensorSpec]]]

#: The input of a signature that returns a batch of a requested size.
BATCH_SIZE = tf.TensorSpec((), "int32", name="batch_size")

# Limits `batch_size`, so that a small request cannot fill the memory of the server.
_LARGEST_BATCH = 4096


def model_endpoints(
    name: str, model: keras.Layer, answer: Callable[..., dict[str, Any]], inputs: Sequence
) -> Endpoints:
    """Return the endpoints `name`, `serving_default` and `<name>_with_attention` of a model.

    `<name>_with_attention` exists if the model's `call` has the argument `return_attention_scores`.
    It adds one output `attention_<key>` for each entry of the model's dict of scores.

    Args:
        name: Name of the signature.
        model: Keras layer or model. With `return_attention_scores=True`, its last result is the
            dict of scores.
        answer: Function `answer(predict, *inputs) -> {output name: tensor}`. `predict` calls the
            model and returns its results without the scores, cast to float32, because REST does not
            support bfloat16.
        inputs: Named TensorSpecs of the inputs.

    Raises:
        InvalidInput: If Keras does not run on TensorFlow.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> inputs = [input_spec("observation", (4,), "float32")]
    >>> endpoints = model_endpoints("act", model, lambda predict, x: {"q": predict(x)}, inputs)
    >>> list(endpoints)
    ['act', 'serving_default']
    """
    if keras.backend.backend() != "tensorflow":
        raise InvalidInput(
            "Keras' backend must be TensorFlow for an export; received "
            f"{keras.backend.backend()!r}."
        )

    def plain(*tensors):
        return answer(lambda *args, **options: _float32(model(*args, **options)), *tensors)

    def with_attention(*tensors):
        attention = {}

        def predict(*args, **options):
            *results, scores = model(*args, **options, return_attention_scores=True)
            attention.update({f"attention_{key}": score for key, score in scores.items()})
            return _float32(results[0] if len(results) == 1 else tuple(results))

        return answer(predict, *tensors) | _float32(attention)

    endpoints = {name: (plain, inputs), "serving_default": (plain, inputs)}
    if "return_attention_scores" in inspect.signature(model.call).parameters:
        endpoints[f"{name}_with_attention"] = (with_attention, inputs)
    return endpoints


def _float32(results):
    return keras.tree.map_structure(lambda tensor: ops.cast(tensor, "float32"), results)


def input_spec(name: str, shape: Sequence[int], dtype: Any) -> tf.TensorSpec:
    """Return the TensorSpec of a batch of inputs.

    Raises:
        InvalidInput: If the sizes are not positive or the dtype is not numeric.

    Example:

    >>> input_spec("observation", (7, 7, 3), "uint8")
    TensorSpec(shape=(None, 7, 7, 3), dtype=tf.uint8, name='observation')
    """
    sizes, dtype = tuple(int(size) for size in shape), np.dtype(dtype)
    if min(sizes, default=1) < 1 or dtype.kind not in "iuf":
        raise InvalidInput(
            f"`{name}_shape` must hold positive sizes and `{name}_dtype` must be numeric; "
            f"received {shape!r} and {dtype.name!r}."
        )
    return tf.TensorSpec((None, *sizes), dtype.name, name=name)


def argmax(values: Any) -> Any:
    """Return the index of the largest value of the last axis, int32.

    `keras.ops.argmax` adds bit operations that TFLite and ONNX do not have.
    """
    return tf.argmax(values, axis=-1, output_type=tf.int32)


def checked_batch_size(batch_size: Any) -> Any:
    """Check that a batch size (scalar tensor) is between 0 and 4096, and return it."""
    message = f"batch_size must be 0 to {_LARGEST_BATCH}"
    checks = [
        tf.debugging.assert_non_negative(batch_size, message),
        tf.debugging.assert_less_equal(batch_size, _LARGEST_BATCH, message),
    ]
    return after_checks(checks, batch_size)


def after_checks(checks: Sequence[Any], tensor: Any) -> Any:
    """Return the tensor. In a graph, operations that use the result run after the checks."""
    with tf.control_dependencies([check for check in checks if check is not None]):  # None if eager
        return tf.identity(tensor)


def write_version(
    directory: str | os.PathLike,
    model: keras.Layer,
    endpoints: Endpoints,
    details: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> Path:
    """Write signatures as `directory/<version>/`, which appears only when it is complete.

    The folder contains the SavedModel, `assets.extra/policy.json` (the signatures and `details`)
    and `assets.extra/tf_serving_warmup_requests`. It is written and tested under a hidden name in
    `directory` and then renamed, so a server that watches `directory` sees complete versions only.
    Hidden folders that killed exports left behind are removed.

    Args:
        directory: Base folder of the model, created if missing.
        model: Keras layer or model that the signatures use.
        endpoints: Dict as `model_endpoints` returns it; it may have more signatures and must have
            `serving_default`.
        details: JSON-able dict for `policy.json`.
        version: Positive integer; by default one more than the highest version in `directory`.

    Returns:
        The version folder.

    Raises:
        InvalidInput: If the version is not a positive integer, or if a signature returns outputs
            whose batch size differs from that of its inputs; nothing is written.
        FileExistsError: If the version exists.
        TypeError, ValueError: If the details are not JSON-able.
        Exception: If an endpoint raises it; nothing is written.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> inputs = [input_spec("observation", (4,), "float32")]
    >>> endpoints = model_endpoints("act", model, lambda predict, x: {"q": predict(x)}, inputs)
    >>> write_version("runs/mine/export", model, endpoints, {"environment": "mine"})
    PosixPath('runs/mine/export/1')
    """
    directory = Path(directory)
    version = optional_positive_int("version", version)
    if version is not None and (directory / str(version)).exists():
        raise FileExistsError(f"version {version} is already in {directory}")
    details = dict(details or {})
    json.dumps(details, allow_nan=False)  # raises errors of `details` before anything is written
    for function, specs in _distinct(endpoints).values():
        # This call builds the model, and raises errors of the endpoints before anything is written.
        function(*map(tf.constant, _examples(specs, 2).values()))
    directory.mkdir(parents=True, exist_ok=True)
    with draft_folder(directory) as draft:
        _write_graph(draft, model, endpoints)
        details["signatures"] = _test_signatures(draft, endpoints)
        _write_extras(draft, endpoints, details)
        return move_into_place(draft, directory, version)


def _examples(specs, batch):
    """Return a dict name -> zeros (batch, ...); a scalar input is the batch size."""
    return {
        spec.name: np.zeros((batch, *spec.shape[1:]), spec.dtype.as_numpy_dtype)
        if spec.shape.rank
        else np.array(batch, spec.dtype.as_numpy_dtype)
        for spec in specs
    }


def _distinct(endpoints):
    """Return the endpoints without a `serving_default` that is the first endpoint."""
    (first, _), *_ = endpoints.values()
    return {
        name: (function, specs)
        for name, (function, specs) in endpoints.items()
        if name != "serving_default" or function is not first
    }


def _write_graph(folder, model, endpoints):
    archive = keras.export.ExportArchive()
    # The archive must track the model to save its tables. It would save the variables of a model
    # that it tracks directly twice, because it also finds them in the signatures. It saves the
    # variables of a model inside a tf.Module only once.
    owner = tf.Module()
    owner.model = model
    archive.track(owner)
    # Keras also adds the first endpoint as `serving_default`, without tracing it again.
    for name, (function, specs) in _distinct(endpoints).items():
        archive.add_endpoint(name, function, input_signature=specs)
    archive.write_out(str(folder), verbose=False)


def _test_signatures(folder, endpoints):
    """Run every signature as a server does, and return the dtypes and shapes for `policy.json`."""
    described = {}
    session = SavedModelSession(folder)
    try:
        for name, (_, specs) in endpoints.items():
            for batch in (1, 2):
                outputs = session.run(name, _examples(specs, batch))
                shapes = {key: np.shape(value) for key, value in outputs.items()}
                if any(shape[:1] != (batch,) for shape in shapes.values()):
                    raise InvalidInput(
                        f"{name!r} must return outputs of batch size {batch} for inputs of batch "
                        f"size {batch}; received the shapes {shapes}."
                    )
            described[name] = {
                "inputs": {s.name: _description(s.dtype.name, s.shape) for s in specs},
                "outputs": {
                    key: _description(outputs[key].dtype.name, (None, *outputs[key].shape[1:]))
                    for key in sorted(outputs)
                },
            }
    finally:
        session.close()
    return described


def _description(dtype, shape):
    return {"dtype": dtype, "shape": [size and int(size) for size in shape]}


def _write_extras(folder, endpoints, details):
    # Imported here, because only an export needs these stubs.
    from tensorflow_serving.apis import prediction_log_pb2

    extras = folder / "assets.extra"
    extras.mkdir()
    (extras / "policy.json").write_text(json.dumps(details, indent=2) + "\n", encoding="utf-8")
    with tf.io.TFRecordWriter(str(extras / "tf_serving_warmup_requests")) as writer:
        for name, (_, specs) in endpoints.items():
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            for key, value in _examples(specs, 1).items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
            writer.write(log.SerializeToString(deterministic=True))


def next_version(directory: str | os.PathLike) -> int:
    """Return one more than the highest version in `directory`, or 1 if there is none.

    Example:

    >>> Path("runs/next/export/7").mkdir(parents=True)
    >>> next_version("runs/next/export")
    8
    """
    return max(_versions(directory), default=0) + 1


def newest_version(directory: str | os.PathLike) -> Path:
    """Return the version folder of `directory` with the highest number.

    Raises:
        InvalidInput: If there is no version folder.

    Example:

    >>> for version in ("9", "10"):
    ...     Path("runs/newest/export", version).mkdir(parents=True)
    >>> newest_version("runs/newest/export")
    PosixPath('runs/newest/export/10')
    """
    folders = {number: path for number, path in _versions(directory).items() if path.is_dir()}
    if not folders:
        export = Path(directory) / "export"
        hint = f" Use {str(export)!r}." if _versions(export) else ""
        raise InvalidInput(
            f"`directory` must hold version folders; received {str(directory)!r}.{hint}"
        )
    return folders[max(folders)]


def _versions(directory):
    """Return a dict version -> path, with files too, because a file also blocks a version name."""
    paths = Path(directory).iterdir() if Path(directory).is_dir() else ()
    return {int(p.name): p for p in paths if p.name.isascii() and p.name.isdigit()}


def move_into_place(draft: Path, directory: Path, version: int | None) -> Path:
    """Rename a finished draft to its version; None means the next free version."""
    while True:
        target = directory / str(version or next_version(directory))
        try:
            return draft.rename(target)
        except OSError:
            if version is not None or not target.exists():
                raise
