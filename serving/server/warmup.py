"""Replays a version's warm-up file, so that its first client meets a warm model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from serving import tensors
from serving.errors import ServingError, invalid
from serving.server.inference import multi_task
from serving.server.tf_examples import CLASSIFY, REGRESS, Task

if TYPE_CHECKING:
    from serving.server.metrics import Metrics
    from serving.server.model import Servable

FILE = Path("assets.extra") / "tf_serving_warmup_requests"
_MOST_RECORDS = 1000


def warm_up(servable: Servable, iterations: int = 1, metrics: Metrics | None = None) -> int:
    """Runs the requests in `assets.extra/tf_serving_warmup_requests`; returns how many there are.

    Raises:
        ServingError: If the file is broken, holds more than 1000 records, or a request fails.
    """
    path = servable.directory / FILE
    if not path.exists():
        return 0
    start, status, count = time.perf_counter(), "OK", 0
    try:
        count = _replay_all(servable, path, iterations)
    except ServingError as error:
        status = error.code
        raise
    finally:
        if metrics is not None:
            directory = str(servable.directory)
            metrics.warmed_up(directory, status, time.perf_counter() - start, count)
    return count


def _replay_all(servable, path, iterations):
    count = 0
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            count += 1
            if count > _MOST_RECORDS:
                raise invalid(f"{FILE} holds more than {_MOST_RECORDS} requests")
            log = prediction_log_pb2.PredictionLog.FromString(record)
            for _ in range(iterations):
                _replay(servable, log)
    except tf.errors.OpError as error:
        raise ServingError("DATA_LOSS", f"{FILE} is broken: {error.message}") from error
    except DecodeError as error:
        raise ServingError("DATA_LOSS", f"{FILE} is broken: {error}") from error
    return count


def _replay(servable, log):
    kind = log.WhichOneof("log_type")
    if kind == "predict_log":
        _replay_predict(servable, log.predict_log.request)
    elif kind in ("classify_log", "regress_log"):
        request = getattr(log, kind).request
        method = CLASSIFY if kind == "classify_log" else REGRESS
        _run(servable, Task(servable, method, request.model_spec.signature_name, request.input))
    elif kind == "multi_inference_log":
        request = log.multi_inference_log.request
        for task in request.tasks:
            _run(servable, multi_task(servable, task, request.input))
    else:
        raise ServingError("UNIMPLEMENTED", f"{FILE} holds a {kind}")


def _replay_predict(servable, request):
    signature = servable.signature(request.model_spec.signature_name)
    inputs = {name: tensors.from_proto(proto) for name, proto in request.inputs.items()}
    servable.run(
        signature, signature.check(inputs), signature.choose_outputs(request.output_filter)
    )


def _run(servable, task):
    task.result(servable.run(task.signature, task.inputs, task.outputs))
