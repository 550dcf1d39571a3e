"""Writes a Q policy as a servable SavedModel version."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from rrl_tf.errors import InvalidInput
from rrl_tf.export.endpoints import make_endpoints
from rrl_tf.export.session import SavedModelSession

_RESERVED = ("signatures", "version")


def export_policy(
    directory,
    model,
    prepare,
    observation_shape,
    observation_dtype="uint8",
    policy=None,
    version=None,
    initial_memory=None,
):
    """Writes a Q network with its preprocessing as `directory/<version>/`, ready to be served.

    The SavedModel answers for raw observations: `prepare`, the model and the greedy choice are one
    graph. Signatures (batch dimension free, float32 and int32 out, no Python, no forced XLA):

    - `act`, also called `serving_default`: `{"observation" (B, ...)} -> {"action" (B,),
      "q_values" (B, A)}`;
    - `act_with_attention`, where the model can return its attention: the same and one output
      `attention_<name>` (B, H, N, S) for each entry of the model's dict of scores.

    A server keeps no memory between requests: that of a recurrent model comes in beside the
    observation, as `memory` (B, ...), and goes out as `next_memory`. So any server may answer any
    step of an episode, and requests of many episodes merge into one batch. Such a policy has one
    more signature, `initial_memory`: `{"batch_size" ()} -> {"memory" (B, ...)}`.

    The folder holds `assets.extra/policy.json` (signatures, and everything in `policy`) and
    `assets.extra/tf_serving_warmup_requests`. It is written and tried under a hidden name beside
    its place and then renamed, so a server that watches `directory` sees a whole version or none.

    Args:
        directory: The model's base folder, made if missing.
        model: Keras model, `model(x) -> q_values (B, A)` for prepared observations `x`; a recurrent
            one, `model(x, memory) -> (q_values, next_memory)`. Where its `call` takes
            `return_attention_scores`, a dict of scores is one more result, the last.
        prepare: Function over `keras.ops`, raw observations (B, ...) to the model's input.
        observation_shape: Shape of one raw observation, without the batch.
        observation_dtype: Its dtype; a request of another dtype is refused by the server.
        policy: JSON-able dict for `policy.json`: `environment`, `action_names`, `scores`, ...
        version: Positive integer; by default one more than the highest version in `directory`.
        initial_memory: For a recurrent model, function of a batch size (a scalar int32 tensor) to
            the memory before the first step: a tensor (B, ...), alone or in a list, as
            `RelationalMemoryCell.get_initial_state` gives it.

    Returns:
        `pathlib.Path` of the version folder.

    Raises:
        ValueError: If an argument cannot describe a policy; nothing is written.
        FileExistsError: If the version is already there.

    Example:

    >>> export_policy("runs/doorkey/fast/export", q_network, prepare_one_hot, (7, 7, 3))
    PosixPath('runs/doorkey/fast/export/1')
    """
    spec = _observation_spec(observation_shape, observation_dtype)
    details = policy_details(policy)
    endpoints = make_endpoints(model, prepare, spec, initial_memory)
    return write_version(directory, model, endpoints, details, version)


def write_version(directory, model, endpoints, details, version=None):
    """Writes signatures as `directory/<version>/`, which appears whole or not at all.

    Args:
        directory, version: As in `export_policy`.
        model: Keras model whose variables the signatures use.
        endpoints: Signature -> (function of tensors, their TensorSpecs); `serving_default` too.
        details: JSON-able dict for `policy.json`.

    Returns:
        `pathlib.Path` of the version folder.
    """
    if version is not None and (not isinstance(version, int) or version < 1):
        raise InvalidInput(f"version must be a positive integer or None; received {version!r}")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if version is not None and (directory / str(version)).exists():
        raise FileExistsError(f"version {version} is already in {directory}")
    scratch = Path(tempfile.mkdtemp(prefix=".export-", dir=directory))
    try:
        os.chmod(scratch, 0o755)  # mkdtemp's 0700 would hide the version from a server's user
        _write_graph(scratch, model, endpoints)
        signatures = _try_signatures(scratch, endpoints, details.get("action_names"))
        _write_extras(scratch, endpoints, {"signatures": signatures, **details})
        return _move_into_place(scratch, directory, version)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def next_version(directory):
    """Returns one more than the highest version folder of `directory`, 1 where there is none."""
    names = [entry.name for entry in Path(directory).iterdir()] if Path(directory).is_dir() else []
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=0) + 1


def _observation_spec(shape, dtype):
    try:
        shape = tuple(int(size) for size in shape)
        dtype = np.dtype(dtype).name
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            "observation_shape must be a sequence of integers and observation_dtype a NumPy dtype; "
            f"received {shape!r} and {dtype!r}"
        ) from error
    if min(shape, default=1) < 1:
        raise InvalidInput(f"observation_shape must hold positive sizes; received {shape}")
    if np.dtype(dtype).kind not in "iuf":
        raise InvalidInput(f"observation_dtype must be a number's; received {dtype!r}")
    return tf.TensorSpec((None, *shape), dtype, name="observation")


def policy_details(policy):
    """Returns what goes into `policy.json`, or raises a `ValueError` if it cannot."""
    policy = dict(policy or {})
    clashes = sorted(set(policy) & set(_RESERVED))
    if clashes:
        raise InvalidInput(f"policy may not hold {clashes}: the export fills these in itself")
    try:
        return json.loads(json.dumps(policy, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"policy must be a dict that JSON can hold: {error}") from error


def _write_graph(folder, model, endpoints):
    archive = keras.export.ExportArchive()
    archive.track(model)
    for name, (function, specs) in endpoints.items():
        archive.add_endpoint(name, function, input_signature=specs)
    archive.write_out(str(folder), verbose=False)


def _try_signatures(folder, endpoints, action_names):
    """Runs every signature as a server would and returns name -> inputs and outputs."""
    session = SavedModelSession(folder)
    try:
        answers = {
            name: _answer_examples(session, name, specs) for name, (_, specs) in endpoints.items()
        }
    finally:
        session.close()
    if action_names is not None:
        num_actions = answers["act"]["q_values"].shape[1]
        if len(action_names) != num_actions:
            raise InvalidInput(
                f"policy['action_names'] must name the model's {num_actions} actions; "
                f"received {action_names}"
            )
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


def _examples(specs, batch):
    """Returns name -> array: zeros for what comes in batches, the batch for a number."""
    return {
        spec.name: np.zeros((batch, *spec.shape[1:]), spec.dtype.as_numpy_dtype)
        if spec.shape.rank
        else np.array(batch, spec.dtype.as_numpy_dtype)
        for spec in specs
    }


def _answer_examples(session, signature, specs):
    for batch in (1, 2):
        try:
            outputs = session.run(signature, _examples(specs, batch))
        except tf.errors.OpError as error:
            raise InvalidInput(
                f"the exported {signature} fails for a batch of {batch}: {error.message}"
            ) from error
        if any(len(value) != batch for value in outputs.values()):
            shapes = {key: value.shape for key, value in outputs.items()}
            raise InvalidInput(f"{signature} answered a batch of {batch} with shapes {shapes}")
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


def _move_into_place(scratch, directory, version):
    """Renames the finished folder; without a fixed version, past any that appeared meanwhile."""
    while True:
        target = directory / str(version or next_version(directory))
        try:
            os.rename(scratch, target)
        except OSError as error:
            if version is None and target.exists():
                continue
            if target.exists():
                raise FileExistsError(f"version {version} is already in {directory}") from error
            raise
        return target
