"""Define `Inference`, which runs the requests of both transports and enforces their limits."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import grpc
import numpy as np
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
)

from serving.errors import ServingError, invalid, too_large
from serving.server.batching import Scheduler
from serving.server.examples import Head, as_inputs
from serving.server.flags import Flags
from serving.server.metrics import Metrics, render
from serving.server.model import Servable, Signature
from serving.server.process_group import Peers
from serving.server.repository import Repository
from serving.server.sequences import SequenceParameters, SequenceStore

#: The model that a request names: (name, version or None, label or None)
ModelChoice = tuple[str, int | None, str | None]
#: A predict request: (signature name, input name -> array, parameters or None)
PredictRequest = tuple[str, dict[str, np.ndarray], SequenceParameters | None]


def fill_spec(spec: Any, servable: Any, signature_name: str = "") -> None:
    """Write the model, version and signature of a reply into its ModelSpec."""
    spec.name = servable.name
    spec.version.value = servable.version
    spec.signature_name = signature_name


def num_bytes(array: np.ndarray) -> int:
    """Return the number of bytes in an array, including the contents of its strings."""
    if array.dtype.kind != "O":
        return array.nbytes
    return array.nbytes + sum(map(len, array.ravel().tolist()))


def _count_rows(inputs):
    return max(map(len, map(np.atleast_1d, inputs.values())), default=1)


class Inference:
    """The operations behind the gRPC and REST APIs, with the limits that the flags set.

    Args:
        repository: The `Repository` of the loaded models.
        scheduler: The `Scheduler` that runs the models.
        metrics: The `Metrics` of the server.
        flags: The server's flags, which contain the limits.
        place: With several processes that share the ports, the arguments `directory`, `index` and
            `count` of `Peers`.
    """

    def __init__(
        self,
        repository: Repository,
        scheduler: Scheduler,
        metrics: Metrics,
        flags: Flags,
        place: tuple = (),
    ) -> None:
        self.repository = repository
        self.metrics = metrics
        self._flags, self._scheduler = flags, scheduler
        self._sequences = SequenceStore(flags, metrics)
        methods = {
            "status": self._own_status,
            "metrics": self._own_metrics,
            "reload": self._reload_all,
            "configure": self._configure,
        }
        self.peers = Peers(methods, *place)
        self._reloading = asyncio.Lock()
        #: Whether the server is shutting down and accepts no new requests.
        self.is_draining = False
        self._num_accepted = 0

    def count_request(
        self, model: str, code: str, api: str | None, entrypoint: str, start: float
    ) -> None:
        """Count a request in `request_count` and, if it succeeded, in `request_latency`.

        As in tensorflow_model_server, these metrics include inference requests over gRPC and all
        requests below `/v1/` over REST, even those that are rejected. They also include inference
        requests below `/v2/`.

        Args:
            model: The name of the model in the request; an unknown one is counted as "".
            code: The canonical code of the reply.
            api: The inference method, such as "Predict" for gRPC and "predict" for REST; None for
                requests without inference, which do not count in `request_latency`.
            entrypoint: "GRPC" or "REST".
            start: `time.perf_counter()` when the request arrived.
        """
        name = model if model in self.repository.models else ""
        labeled = self.metrics.labeled
        labeled(self.metrics.request_count, name, code).inc()
        if code == "OK" and api:
            latency = labeled(self.metrics.request_latency, name, api, entrypoint)
            latency.observe((time.perf_counter() - start) * 1e6)

    @contextlib.contextmanager
    def accepted(self) -> Iterator[None]:
        """Count a request as in progress for as long as the `with` block runs.

        `drain` waits for these requests.

        Raises:
            ServingError: UNAVAILABLE if the server is shutting down.
        """
        if self.is_draining:
            raise ServingError("UNAVAILABLE", "the server is shutting down")
        self._num_accepted += 1
        try:
            yield
        finally:
            self._num_accepted -= 1

    @property
    def is_ready(self) -> bool:
        """Whether every configured model has an available version, and requests are accepted."""
        return self.repository.ready and not self.is_draining

    async def drain(self, seconds: float) -> None:
        """Accept no new requests, and wait up to `seconds` for those in progress."""
        self.is_draining = True
        end = time.monotonic() + seconds
        while self._num_accepted and time.monotonic() < end:
            await asyncio.sleep(0.01)

    async def predict(
        self,
        model: ModelChoice,
        read: Callable[[Servable], Awaitable[PredictRequest]],
        output_filter: Sequence[str] = (),
    ) -> tuple[Servable, Signature, dict[str, np.ndarray]]:
        """Run a predict request and return (servable, signature, output name -> array).

        Args:
            model: The model and version.
            read: A function that reads the request. It takes the servable and returns (signature
                name, input name -> array, parameters of its sequence or None).
            output_filter: The names of the outputs to compute; empty for all.
        """
        with self.repository.use(*model) as servable:
            name, inputs, parameters = await read(servable)
            run = functools.partial(self._predict, servable)
            if parameters is not None:
                self.check_rows(_count_rows(inputs))  # before it makes a state for them
                signature, outputs = await self._sequences.request(
                    servable, name, inputs, parameters, output_filter, run
                )
            else:
                signature = servable.signature(name)
                outputs = await run(signature, inputs, output_filter)
            return servable, signature, outputs

    async def _predict(self, servable, signature, inputs, output_filter=()):
        names = signature.choose_outputs(output_filter)
        inputs = signature.check(inputs)
        if signature.has_rows:
            rows = _count_rows(inputs)
            self.check_rows(rows)
            if signature.can_merge(inputs):
                self._check_reply(rows * signature.reply_row_bytes)
        return await self._run("Predict", servable, signature, inputs, names)

    async def run_heads(
        self,
        api: str,
        model: ModelChoice,
        heads: Sequence[tuple[str, str]],
        examples: list[bytes],
    ) -> tuple[Servable, list[tuple[Head, tuple[np.ndarray, ...]]]]:
        """Run a request that contains tf.Examples and return (servable, [(head, arrays)]).

        Args:
            api: "Classify", "Regress" or "MultiInference".
            model: The model and version.
            heads: The (method, signature name) of each requested result.
            examples: Serialized tf.Examples.
        """
        count = len(examples)
        with self.repository.use(*model) as servable:
            self.check_rows(max(count, len(heads)))
            found = [Head.find(servable, *head) for head in heads]
            inputs = as_inputs(examples)
            for _ in found:
                self.metrics.example_counts.labels(servable.name).observe(count)
                self.metrics.example_count_total.labels(servable.name).inc(count)
            runs = (
                self._run(api, servable, head.signature, inputs, head.outputs) for head in found
            )
            results = zip(found, await asyncio.gather(*runs))
            return servable, [(head, head.read(outputs, count)) for head, outputs in results]

    def check_rows(self, rows: int) -> None:
        """Raise RESOURCE_EXHAUSTED if a request has more rows than --max_request_rows."""
        limit = self._flags.max_request_rows
        if limit and rows > limit:
            raise too_large(f"a request may have at most {limit} rows; received {rows}")

    def _check_reply(self, size):
        limit = self._flags.max_reply_bytes
        if limit and size > limit:
            raise too_large(f"a reply may have at most {limit} bytes; this one would have {size}")

    async def _run(self, api, servable, signature, inputs, outputs):
        start = time.perf_counter()
        results = await self._scheduler.run(servable, signature, inputs, outputs)
        self._check_reply(sum(map(num_bytes, results.values())))
        metrics = self.metrics
        latency = metrics.labeled(metrics.runtime_latency, servable.name, api, "TF1")
        latency.observe((time.perf_counter() - start) * 1e6)
        return results

    def metadata(self, model: ModelChoice) -> Any:
        """Return the GetModelMetadataResponse of a model."""
        with self.repository.use(*model) as servable:
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            fill_spec(response.model_spec, servable)
            signatures = get_model_metadata_pb2.SignatureDefMap()
            for name, definition in servable.signature_defs.items():
                signatures.signature_def[name].CopyFrom(definition)
            response.metadata["signature_def"].Pack(signatures)
            return response

    async def status(self, model: ModelChoice) -> Any:
        """Return the GetModelStatusResponse of a model.

        If the processes report different states of a version, the response contains a state with an
        error or, if there is none, the earliest state. As in tensorflow_model_server, a label is
        ignored.
        """
        answers = await self.peers.call_all("status", json.dumps(model[:2]).encode())
        whole = get_model_status_pb2.GetModelStatusResponse()
        seen: dict[int, list[Any]] = {}
        for answer in answers:
            for entry in whole.FromString(answer).model_version_status:
                seen.setdefault(entry.version, []).append(entry)
        for number in sorted(seen, reverse=True):
            entries = sorted(seen[number], key=lambda e: (not e.status.error_code, e.state))
            chosen = whole.model_version_status.add()
            chosen.CopyFrom(entries[0])
            if len(entries) < len(answers):  # a process has not found this version yet
                chosen.state = get_model_status_pb2.ModelVersionStatus.START
        return whole

    async def _own_status(self, data):
        response = get_model_status_pb2.GetModelStatusResponse()
        for seen in self.repository.status(*json.loads(data)):
            entry = response.model_version_status.add(version=seen.number, state=int(seen.state))
            entry.status.SetInParent()  # so that the JSON contains the status even if it is OK
            if seen.error is not None:
                entry.status.error_code = grpc.StatusCode[seen.error.code].value[0]
                entry.status.error_message = seen.error.message
        return response.SerializeToString()

    async def metrics_page(self) -> bytes:
        """Return the page that Prometheus scrapes, with the metrics of all processes."""
        return render([json.loads(page) for page in await self.peers.call_all("metrics")])

    async def _own_metrics(self, _):
        return json.dumps(self.metrics.collect()).encode()

    async def reload(self, request: Any) -> Any:
        """Answer a ReloadConfigRequest after every process has applied the new list of models."""
        if not self._flags.allow_reload_requests:
            raise ServingError(
                "PERMISSION_DENIED", "the server runs with --allow_reload_requests=false"
            )
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid("ReloadConfigRequest has no model_config_list")
        if request.metric_names:
            raise ServingError("UNIMPLEMENTED", "ReloadConfigRequest.metric_names is not supported")
        # Process 0 applies concurrent requests one by one, so that all processes end up with the
        # same list.
        await self.peers.call(0, "reload", request.SerializeToString())
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        return response

    async def _reload_all(self, data):
        async with self._reloading:
            await self.peers.call_all("configure", data)
        return b""

    async def _configure(self, data):
        request = model_management_pb2.ReloadConfigRequest.FromString(data)
        await self.repository.configure(request.config.model_config_list.config)
        return b""
