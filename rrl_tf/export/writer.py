"""Writes any model as a servable SavedModel version."""

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
from rrl_tf._atomic_dir import draft_folder
from rrl_tf.errors import InvalidInput
from rrl_tf.export.session import SavedModelSession
from rrl_tf.export.versions import LARGEST_VERSION, move_into_place, next_version

#: Signature → (function of tensors, the TensorSpecs of its inputs, which name them).
Endpoints = Mapping[str, tuple[Callable[..., dict[str, Any]], Sequence[tf.TensorSpec]]]

_RESERVED = ("signatures", "version")

#: The input of a signature that makes as many rows as it is told.
BATCH_SIZE = tf.TensorSpec((), "int32", name="batch_size")

# What one request may ask for, so that a few bytes do not fill a server's memory.
_LARGEST_BATCH = 4096


def model_endpoints(
    name: str, model: keras.Layer, answer: Callable[..., dict[str, Any]], inputs: Sequence
) -> Endpoints:
    """Returns signature `name` of a model, also as `serving_default`, and `<name>_with_attention`.

    The last, where the model's `call` takes `return_attention_scores`, has one more output
    `attention_<key>` for each entry of the model's dict of scores.

    Args:
        name: Of the signature.
        model: Keras layer or model; its scores, when asked for, are the last of its results.
        answer: `answer(ask, *inputs) -> {output name: tensor}`; `ask` is the model without its
            scores, and float32 whatever it computes in: REST carries no bfloat16.
        inputs: TensorSpecs of the inputs, which name them.

    Raises:
        InvalidInput: If Keras does not run on TensorFlow.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> inputs = [input_spec("observation", (4,), "float32")]
    >>> endpoints = model_endpoints("act", model, lambda ask, x: {"q_values": ask(x)}, inputs)
    >>> list(endpoints)
    ['act', 'serving_default']
    """
    if keras.backend.backend() != "tensorflow":
        raise InvalidInput(
            "expected Keras' TensorFlow backend for an export; "
            f"received {keras.backend.backend()!r}"
        )

    def plain(*tensors):
        return answer(lambda *args, **options: _float32(model(*args, **options)), *tensors)

    def with_attention(*tensors):
        attention = {}

        def ask(*args, **options):
            *results, scores = model(*args, **options, return_attention_scores=True)
            attention.update({f"attention_{key}": score for key, score in scores.items()})
            return _float32(results[0] if len(results) == 1 else tuple(results))

        return answer(ask, *tensors) | _float32(attention)

    endpoints = {name: (plain, inputs), "serving_default": (plain, inputs)}
    if "return_attention_scores" in inspect.signature(model.call).parameters:
        endpoints[f"{name}_with_attention"] = (with_attention, inputs)
    return endpoints


def _float32(results):
    return keras.tree.map_structure(lambda tensor: ops.cast(tensor, "float32"), results)


def input_spec(name: str, shape: Sequence[int], dtype: Any) -> tf.TensorSpec:
    """Returns the TensorSpec of a batch of inputs.

    Raises:
        InvalidInput: If shape and dtype are not those of an array of numbers.

    Example:

    >>> input_spec("observation", (7, 7, 3), "uint8")
    TensorSpec(shape=(None, 7, 7, 3), dtype=tf.uint8, name='observation')
    """
    try:
        sizes = tuple(int(size) for size in shape)
        dtype = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{name}_shape must be a sequence of integers and {name}_dtype a NumPy dtype; "
            f"received {shape!r} and {dtype!r}"
        ) from error
    if min(sizes, default=1) < 1:
        raise InvalidInput(f"{name}_shape must hold positive sizes; received {shape!r}")
    if dtype.kind not in "iuf":
        raise InvalidInput(f"{name}_dtype must be a number's; received {dtype.name!r}")
    return tf.TensorSpec((None, *sizes), dtype.name, name=name)


def checked_batch_size(batch_size: Any) -> Any:
    """Returns a `BATCH_SIZE`, in a graph only after it was found to be 0 to 4096."""
    message = f"batch_size must be 0 to {_LARGEST_BATCH}"
    checks = [
        tf.debugging.assert_non_negative(batch_size, message),
        tf.debugging.assert_less_equal(batch_size, _LARGEST_BATCH, message),
    ]
    # In a graph nothing else keeps the rows from being made before the checks.
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.identity(batch_size)


def write_version(
    directory: str | os.PathLike,
    model: keras.Layer,
    endpoints: Endpoints,
    details: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> Path:
    """Writes signatures as `directory/<version>/`, which appears whole or not at all.

    The folder holds the SavedModel, `assets.extra/policy.json` (signatures, and everything in
    `details`) and `assets.extra/tf_serving_warmup_requests`. It is written and tried under a hidden
    name beside its place and then renamed, so a server that watches `directory` sees a whole
    version or none; the hidden folders of killed exports are removed.

    Args:
        directory: The model's base folder, made if missing.
        model: Keras layer or model that the signatures use.
        endpoints: From `model_endpoints`, and any others; `serving_default` among them.
        details: JSON-able dict for `policy.json`.
        version: Positive integer below 2**63; by default one more than the highest version in
            `directory`.

    Returns:
        The version folder.

    Raises:
        InvalidInput: If the version is no such number, or none can follow those in `directory`, the
            details are no JSON, or an endpoint fails; nothing is written.
        FileExistsError: If the version is already there.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> inputs = [input_spec("observation", (4,), "float32")]
    >>> endpoints = model_endpoints("act", model, lambda ask, x: {"q_values": ask(x)}, inputs)
    >>> write_version("runs/mine/export", model, endpoints, {"environment": "mine"})
    PosixPath('runs/mine/export/1')
    """
    version = optional_positive_int("version", version)
    if version is not None and version > LARGEST_VERSION:
        raise InvalidInput(f"version must be at most {LARGEST_VERSION}; received {version}")
    if version is None:
        next_version(directory)  # refused here where there is none, and not when all is written
    document = _json_dict(details)
    for name, (function, specs) in endpoints.items():
        _try_eagerly(name, function, specs)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if version is not None and (directory / str(version)).exists():
        raise FileExistsError(f"version {version} is already in {directory}")
    with draft_folder(directory) as draft:
        _write_graph(draft, model, endpoints)
        _write_extras(draft, endpoints, {"signatures": _try_saved(draft, endpoints), **document})
        return move_into_place(draft, directory, version)


def _json_dict(details):
    details = dict(details or {})
    if clashes := sorted(set(details) & set(_RESERVED)):
        raise InvalidInput(f"the export fills in {_RESERVED} itself; received {clashes}")
    try:
        return json.loads(json.dumps(details, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"policy.json must be a dict that JSON can hold: {error}") from error


def _try_eagerly(name, function, specs):
    """Builds a model that is not yet, and finds a user's mistake before anything is written."""
    examples = _examples(specs, 2)
    try:
        function(*map(tf.constant, examples.values()))
    except InvalidInput:
        raise
    except Exception as error:
        shapes = ", ".join(f"{key} {value.shape} {value.dtype}" for key, value in examples.items())
        raise InvalidInput(f"{name} cannot answer 2 requests, {shapes}: {error}") from error


def _examples(specs, batch):
    """Returns name → array: zeros for what comes in batches, the batch for a number."""
    return {
        spec.name: np.zeros((batch, *spec.shape[1:]), spec.dtype.as_numpy_dtype)
        if spec.shape.rank
        else np.array(batch, spec.dtype.as_numpy_dtype)
        for spec in specs
    }


def _write_graph(folder, model, endpoints):
    archive = keras.export.ExportArchive()
    # Variables are found in the signatures, and those of a tracked layer would be saved once more;
    # tables are found in what is tracked. So it is something that is no layer, and has the model.
    owner = tf.Module()
    owner.model = model
    archive.track(owner)
    (first, _), *_ = endpoints.values()
    for name, (function, specs) in endpoints.items():
        # Keras adds the first one under this name, too, without tracing and saving it twice.
        if name != "serving_default" or function is not first:
            archive.add_endpoint(name, function, input_signature=specs)
    archive.write_out(str(folder), verbose=False)


def _try_saved(folder, endpoints):
    """Runs every signature as a server would and returns name → inputs and outputs."""
    session = SavedModelSession(folder)
    try:
        answers = {name: _answers(session, name, specs) for name, (_, specs) in endpoints.items()}
    finally:
        session.close()
    return {
        name: {
            "inputs": {s.name: _description(s.dtype.name, s.shape) for s in endpoints[name][1]},
            "outputs": {
                key: _description(value.dtype.name, (None, *value.shape[1:]))
                for key, value in sorted(outputs.items())
            },
        }
        for name, outputs in answers.items()
    }


def _answers(session, signature, specs):
    for batch in (1, 2):
        try:
            outputs = session.run(signature, _examples(specs, batch))
        except tf.errors.OpError as error:
            raise InvalidInput(
                f"the exported {signature} fails for a batch of {batch}: {error.message}"
            ) from error
        shapes = {key: np.shape(value) for key, value in outputs.items()}
        if any(shape[:1] != (batch,) for shape in shapes.values()):
            raise InvalidInput(f"{signature} must answer a batch of {batch}; received {shapes}")
    return outputs


def _description(dtype, shape):
    return {"dtype": dtype, "shape": [size and int(size) for size in shape]}


def _write_extras(folder, endpoints, document):
    # Imported here: training exports rarely, and the stubs are needed for nothing else in rrl_tf.
    from tensorflow_serving.apis import prediction_log_pb2

    extras = folder / "assets.extra"
    extras.mkdir()
    (extras / "policy.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    with tf.io.TFRecordWriter(str(extras / "tf_serving_warmup_requests")) as writer:
        for name, (_, specs) in endpoints.items():
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            for key, value in _examples(specs, 1).items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
            writer.write(log.SerializeToString(deterministic=True))
