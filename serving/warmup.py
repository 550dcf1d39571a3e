"""Replays a version's warm-up file, so that its first client meets a warm model."""

from pathlib import Path

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from serving import tensors
from serving.errors import ServingError

FILE = Path("assets.extra") / "tf_serving_warmup_requests"
_MOST_RECORDS = 1000


def warm_up(servable, iterations=1):
    """Runs the requests in `assets.extra/tf_serving_warmup_requests`; returns how many there are.

    Raises:
        ServingError: If the file is broken, holds more than 1000 records, or a request fails.
    """
    path = servable.directory / FILE
    if not path.exists():
        return 0
    count = 0
    try:
        for record in tf.compat.v1.io.tf_record_iterator(str(path)):
            count += 1
            if count > _MOST_RECORDS:
                raise ServingError(
                    "INVALID_ARGUMENT", f"{FILE} holds more than {_MOST_RECORDS} requests"
                )
            log = prediction_log_pb2.PredictionLog.FromString(record)
            for _ in range(iterations):
                _replay(servable, log)
    except tf.errors.OpError as error:
        raise ServingError("DATA_LOSS", f"{FILE} is broken: {error.message}") from error
    except ValueError as error:  # protobuf's DecodeError
        raise ServingError("DATA_LOSS", f"{FILE} is broken: {error}") from error
    return count


def _replay(servable, log):
    kind = log.WhichOneof("log_type")
    if kind != "predict_log":
        raise ServingError("UNIMPLEMENTED", f"{FILE} holds a {kind}")
    request = log.predict_log.request
    signature = servable.signature(request.model_spec.signature_name)
    inputs = {name: tensors.from_proto(proto) for name, proto in request.inputs.items()}
    servable.run(
        signature, signature.check(inputs), signature.choose_outputs(request.output_filter)
    )
