"""Load a version of a model and replay its warm-up requests."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from serving import tensors
from serving.errors import ServingError, invalid
from serving.server import config_files
from serving.server.batching import BatchingParameters
from serving.server.examples import CLASSIFY, REGRESS, Head, as_inputs, serialize_examples
from serving.server.flags import Flags
from serving.server.model import Servable, from_tensorflow
from serving.server.versions import check_root

WARMUP_FILE = Path("assets.extra") / "tf_serving_warmup_requests"
_MAX_RECORDS = 1000
_THREADS = {"num_batch_threads", "thread_pool_name"}  # which all models share
_BATCHING_FILE = "batching_params.pbtxt"  # read with --enable_per_model_batching_parameters


class Loader:
    """A loader of versions, with the session, batching and warm-up settings of the flags.

    Args:
        flags: The server's flags.
        metrics: The `Metrics` that record warm-ups; `None` to record nothing.

    Raises:
        StartError: If a configuration file cannot be read or is invalid.
    """

    def __init__(self, flags: Flags, metrics: Any = None) -> None:
        self._flags, self._metrics = flags, metrics
        path = flags.batching_parameters_file
        #: The `BatchingParameters` of all models; None without --enable_batching.
        self.batching: BatchingParameters | None = None
        if flags.enable_batching:
            fields = {field.name for field in dataclasses.fields(BatchingParameters)}
            ignored = fields - _THREADS if flags.enable_per_model_batching_parameters else ()
            self.batching = (
                config_files.read_batching(path, ignored) if path else BatchingParameters()
            )
        self._session_config = _session_config(flags)

    def load(self, name: str, number: int, directory: Path) -> Servable:
        """Load a version, replay its warm-up requests, and return it; block until that is done.

        Args:
            name: The name of the model.
            number: The number of the version.
            directory: The version directory.

        Raises:
            ServingError: If the version cannot be loaded or a warm-up request fails. No other error
                is raised.
        """
        flags, servable = self._flags, None
        try:
            for path in (directory, *directory.rglob("*")) if flags.model_root else ():
                check_root(path, flags.model_root)
            servable = Servable(
                name,
                number,
                directory,
                flags.saved_model_tags.split(","),
                self._session_config,
                self._batching_of(directory),
                flags.enable_signature_method_name_check,
            )
            if flags.enable_model_warmup:
                # tensorflow_model_server, too, uses the number only if it is positive.
                iterations = max(flags.num_request_iterations_for_warmup, 1)
                warm_up(servable, iterations, self._metrics)
            return servable
        except Exception as error:
            if servable is not None:
                servable.close()
            if isinstance(error, ServingError):
                raise
            if isinstance(error, tf.errors.OpError):
                raise ServingError(from_tensorflow(error).code, _cause(error)) from error
            if isinstance(error, config_files.StartError):
                raise invalid(str(error)) from error
            code = "NOT_FOUND" if isinstance(error, OSError) else "UNKNOWN"
            raise ServingError(code, f"{directory}: {error}") from error

    def _batching_of(self, directory):
        if self.batching is None or not self._flags.enable_per_model_batching_parameters:
            return self.batching
        path = directory / _BATCHING_FILE
        return config_files.read_batching(path, _THREADS) if path.exists() else None


def _cause(error):
    """Return the message of a `tf.errors.OpError` without the text that surrounds its cause.

    For any failure during a restore, TensorFlow reports that the checkpoint does not fit the graph.
    """
    text = error.message.rpartition("Original error:\n")[2]
    around = ("Graph execution error:", "Detected at node", "Node:", " ", "\t")
    lines = [line for line in text.splitlines() if line and not line.startswith(around)]
    cause = "\n".join(lines) or error.message
    if "assign a device" in cause or "device specification" in cause:
        cause += (
            " (the graph names a device that is not available; a --tensorflow_session_config_file "
            "with allow_soft_placement: true replaces it)"
        )
    return cause


def _session_config(flags):
    path = flags.tensorflow_session_config_file
    config = config_files.read_session(path) if path else tf.compat.v1.ConfigProto()
    both = flags.tensorflow_session_parallelism
    intra, inter = flags.tensorflow_intra_op_parallelism, flags.tensorflow_inter_op_parallelism
    config.intra_op_parallelism_threads = intra or both or config.intra_op_parallelism_threads or 1
    config.inter_op_parallelism_threads = inter or both or config.inter_op_parallelism_threads
    return config


def warm_up(servable: Servable, iterations: int = 1, metrics: Any = None) -> int:
    """Run the requests in the warm-up file of a version, and return how many there are.

    Args:
        servable: The version.
        iterations: How often to run each request.
        metrics: The `Metrics` that record the warm-up; `None` to record nothing.

    Raises:
        ServingError: If the file is damaged or contains more than 1000 requests, or a request
            fails.
    """
    path = servable.directory / WARMUP_FILE
    if not path.exists():
        return 0
    start, status, count = time.perf_counter(), "OK", 0
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            count += 1
            if count > _MAX_RECORDS:
                raise invalid(f"{WARMUP_FILE} contains more than {_MAX_RECORDS} requests")
            log = prediction_log_pb2.PredictionLog.FromString(record)
            for _ in range(iterations):
                _replay(servable, log)
    except ServingError as error:
        status = error.code
        raise
    except (tf.errors.OpError, DecodeError) as error:
        status = "DATA_LOSS"
        raise ServingError(status, f"{WARMUP_FILE} is damaged: {error}") from error
    finally:
        if metrics is not None:
            seconds = time.perf_counter() - start
            metrics.warmed_up(str(servable.directory), status, seconds, count)
    return count


def _replay(servable, log):
    kind = log.WhichOneof("log_type")
    if kind not in ("predict_log", "classify_log", "regress_log", "multi_inference_log"):
        raise ServingError(
            "UNIMPLEMENTED", f"{WARMUP_FILE} contains an unsupported kind of request: {kind}"
        )
    request = getattr(log, kind).request
    if kind == "predict_log":
        signature = servable.signature(request.model_spec.signature_name)
        inputs = {name: tensors.from_proto(proto) for name, proto in request.inputs.items()}
        outputs = signature.choose_outputs(request.output_filter)
        servable.run(signature, signature.check(inputs), outputs)
        return
    if kind == "multi_inference_log":
        heads = [(task.method_name, task.model_spec.signature_name) for task in request.tasks]
    else:
        method = CLASSIFY if kind == "classify_log" else REGRESS
        heads = [(method, request.model_spec.signature_name)]
    examples = serialize_examples(request.input)
    for method, name in heads:
        head = Head.find(servable, method, name)
        outputs = servable.run(head.signature, as_inputs(examples), head.outputs)
        head.read(outputs, len(examples))
