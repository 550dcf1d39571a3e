"""What both transports ask of the loaded models."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    regression_pb2,
)

from serving.errors import ServingError, TooLarge, invalid
from serving.server.metrics import Metrics, render
from serving.server.model import DEFAULT_SIGNATURE, Servable, Signature
from serving.server.process_group import Peers
from serving.server.tf_examples import CLASSIFY, REGRESS, Task, count_examples
from serving.tensors import num_bytes

if TYPE_CHECKING:
    import numpy as np

    from serving.server.batching import Scheduler
    from serving.server.repository import Repository


_MOST_COPIED = 1 << 26  # bytes of a context that goes into each example
_EACH = 16  # bytes that are written as fast as one class or value
#: Bytes that take longer to read or to write than the hand-over to a thread.
LARGE = 1 << 16


async def aside(size: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what a function does, called in a thread if it has many bytes to work on."""
    if size <= LARGE:
        return function(*arguments)
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def asked_model(request: Any) -> tuple[str, int | None, str | None]:
    """Returns (name, version or None, label or None) of a request's ModelSpec."""
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    choice = spec.WhichOneof("version_choice")
    version = spec.version.value if choice == "version" else None
    return spec.name, version, spec.version_label if choice == "version_label" else None


def fill_spec(spec: Any, servable: Any, signature_name: str = "") -> None:
    """Writes into a reply's ModelSpec who answered."""
    spec.name = servable.name
    spec.version.value = servable.version
    spec.signature_name = signature_name


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a request may ask for; 0 for any amount. Names and defaults are those of the flags."""

    max_request_rows: int = 4096
    max_reply_bytes: int = 1 << 26
    allow_reload_requests: bool = True


class Inference:
    """Runs requests on the loaded models and counts them.

    Args:
        repository: `Repository` of the loaded models.
        scheduler: `Scheduler` that runs them.
        metrics: `Metrics` that count.
        place: Where this process is among several, the further arguments of `Peers`.
        limits: `Limits` of a request.
    """

    def __init__(
        self,
        repository: Repository,
        scheduler: Scheduler,
        metrics: Metrics,
        place: tuple = (),
        limits: Limits = Limits(),
    ) -> None:
        self.repository = repository
        self.metrics = metrics
        self.limits = limits
        self._scheduler = scheduler
        methods = {
            "status": self._own_status,
            "metrics": self._own_metrics,
            "reload": self._reload_all,
            "configure": self._configure,
        }
        self.peers = Peers(methods, *place)
        self._reloading = asyncio.Lock()
        #: Whether the server is about to stop, and takes no new requests.
        self.draining = False
        self._accepted = 0

    @contextlib.contextmanager
    def accepted(self) -> Iterator[None]:
        """Counts a request as begun, so that the server does not stop before it is answered.

        Raises:
            ServingError: UNAVAILABLE if the server is about to stop.
        """
        if self.draining:
            raise ServingError("UNAVAILABLE", "the server is shutting down")
        self._accepted += 1
        try:
            yield
        finally:
            self._accepted -= 1

    async def drain(self, seconds: float) -> None:
        """Takes no new requests and returns when all that have begun are answered, or in time."""
        self.draining = True
        end = time.monotonic() + seconds
        while self._accepted and time.monotonic() < end:
            await asyncio.sleep(0.01)

    async def predict(
        self,
        model: tuple[str, int | None, str | None],
        read: Callable[[Servable], Awaitable[tuple[str, dict[str, np.ndarray] | None]]],
        output_filter: Sequence[str] = (),
    ) -> tuple[Servable, Signature, dict[str, np.ndarray]]:
        """Returns (servable, signature, name -> array): one prediction, of either transport.

        Args:
            model: (name, version or None, label or None).
            read: Function of the servable that returns (name of the signature, its inputs); there
                need not be inputs where there is no such signature.
            output_filter: Names of the outputs to compute; all, if it is empty.
        """
        with self.repository.lease(*model) as servable:
            name, inputs = await read(servable)
            signature = servable.signature(name)
            names = signature.choose_outputs(output_filter)
            inputs = signature.check(inputs or {})
            self._check_size(signature, inputs)
            outputs = await self.run("Predict", servable, signature, inputs, names)
            return servable, signature, outputs

    def check_rows(self, rows: int) -> None:
        """Raises RESOURCE_EXHAUSTED if a request has more rows than one may."""
        most = self.limits.max_request_rows
        if most and rows > most:
            raise TooLarge(f"a request may have {most} rows; received {rows}")

    def _check_size(self, signature, inputs):
        """Refuses before anything is computed what would take too much."""
        if not signature.in_rows:
            return
        rows = max(len(array) for array in inputs.values())
        self.check_rows(rows)
        if signature.bytes_a_row is not None:
            self._check_reply(rows * signature.bytes_a_row)

    def _check_reply(self, size):
        most = self.limits.max_reply_bytes
        if most and size > most:
            raise TooLarge(f"a reply may have {most} bytes; this one would have {size}")

    async def run(
        self, api: str, servable: Any, signature: Any, inputs: dict[str, Any], outputs: Any
    ) -> dict[str, np.ndarray]:
        """Returns name -> array, of a servable under lease."""
        start = time.perf_counter()
        results = await self._scheduler.run(servable, signature, inputs, outputs)
        self._check_reply(sum(map(num_bytes, results.values())))
        latency = self.metrics.runtime_latency.labels(servable.name, api, "TF1")
        latency.observe((time.perf_counter() - start) * 1e6)
        return results

    async def classify(self, request: Any, size: int) -> Any:
        """Answers a ClassificationRequest of so many bytes."""
        response = classification_pb2.ClassificationResponse()
        await self._examples("Classify", CLASSIFY, request, response, size)
        return response

    async def regress(self, request: Any, size: int) -> Any:
        """Answers a RegressionRequest of so many bytes."""
        response = regression_pb2.RegressionResponse()
        await self._examples("Regress", REGRESS, request, response, size)
        return response

    async def _examples(self, api, method, request, response, size):
        with self.repository.lease(*asked_model(request)) as servable:
            size = self._check_examples(request.input, size)
            name = request.model_spec.signature_name
            task = await aside(size, Task, servable, method, name, request.input)
            response.result.CopyFrom(await self._run_task(api, servable, task))
            fill_spec(response.model_spec, servable, task.signature.name)

    def _check_examples(self, input, size):
        """Refuses too many examples; returns how many bytes they take in a request of `size`."""
        count = count_examples(input)
        self.check_rows(count)
        copies = count * input.example_list_with_context.context.ByteSize()
        if copies > _MOST_COPIED:
            raise TooLarge(
                f"the examples may hold {_MOST_COPIED} bytes of copies of the context; "
                f"received {count} examples, {copies} bytes"
            )
        return size + copies

    async def _run_task(self, api, servable, task):
        self.metrics.example_counts.labels(servable.name).observe(task.num_examples)
        self.metrics.example_count_total.labels(servable.name).inc(task.num_examples)
        run = self.run(api, servable, task.signature, task.inputs, task.outputs)
        outputs = await run
        return await aside(_EACH * sum(a.size for a in outputs.values()), task.result, outputs)

    async def multi(self, request: Any, size: int) -> Any:
        """Answers a MultiInferenceRequest of so many bytes: several heads of one model."""
        if not request.tasks:
            raise invalid("Inference request needs at least one task")
        self.check_rows(len(request.tasks))
        if len({task.model_spec.name for task in request.tasks}) > 1:
            raise invalid("All ModelSpecs of a MultiInferenceRequest must name the same model")
        asked = [task.model_spec.signature_name or DEFAULT_SIGNATURE for task in request.tasks]
        ((name, times),) = collections.Counter(asked).most_common(1)
        if times > 1:
            raise invalid(f"Duplicate evaluation of signature: {name}")
        response = inference_pb2.MultiInferenceResponse()
        with self.repository.lease(*asked_model(request.tasks[0])) as servable:
            size = self._check_examples(request.input, size)
            tasks = [
                await aside(size, multi_task, servable, task, request.input)
                for task in request.tasks
            ]
            runs = (self._run_task("MultiInference", servable, task) for task in tasks)
            for task, result in zip(tasks, await asyncio.gather(*runs)):
                entry = response.results.add()
                fill_spec(entry.model_spec, servable, task.signature.name)
                field = "classification_result" if task.method == CLASSIFY else "regression_result"
                getattr(entry, field).CopyFrom(result)
        return response

    def metadata(self, request: Any) -> Any:
        """Answers a GetModelMetadataRequest."""
        if not request.metadata_field or set(request.metadata_field) != {"signature_def"}:
            received = list(request.metadata_field[:8])
            raise invalid(f'metadata_field must be ["signature_def"]; received {received}')
        with self.repository.lease(*asked_model(request)) as servable:
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            fill_spec(response.model_spec, servable)
            signatures = get_model_metadata_pb2.SignatureDefMap()
            for name, definition in servable.signature_defs.items():
                signatures.signature_def[name].CopyFrom(definition)
            response.metadata["signature_def"].Pack(signatures)
            return response

    async def status(self, request: Any) -> Any:
        """Answers a GetModelStatusRequest; of several processes, the one furthest behind counts."""
        # A process that has only been started has seen no version: they all are behind in it.
        answers = await self.peers.ask_all("status", request.SerializeToString(), absent=b"")
        whole = get_model_status_pb2.GetModelStatusResponse()
        seen: dict[int, list[Any]] = {}
        for answer in answers:
            for entry in whole.FromString(answer).model_version_status:
                seen.setdefault(entry.version, []).append(entry)
        for number in sorted(seen, reverse=True):
            entries = sorted(seen[number], key=lambda e: (not e.status.error_code, e.state))
            chosen = whole.model_version_status.add()
            chosen.CopyFrom(entries[0])
            if len(entries) < len(answers):
                chosen.state = get_model_status_pb2.ModelVersionStatus.START
        return whole

    async def _own_status(self, data):
        request = get_model_status_pb2.GetModelStatusRequest.FromString(data)
        name, version, _ = asked_model(request)  # the stock server does not look at a label either
        response = get_model_status_pb2.GetModelStatusResponse()
        for seen in self.repository.status(name, version):
            entry = response.model_version_status.add(version=seen.number, state=int(seen.state))
            entry.status.SetInParent()  # JSON shows it for OK too
            if seen.error is not None:
                entry.status.error_code = grpc.StatusCode[seen.error.code].value[0]
                entry.status.error_message = seen.error.message
        return response.SerializeToString()

    async def metrics_page(self) -> bytes:
        """Returns the page that Prometheus reads, of all processes."""
        pages = await self.peers.ask_all("metrics", absent=b"")
        return render([json.loads(page) for page in pages if page])

    async def _own_metrics(self, _):
        return json.dumps(self.metrics.collect()).encode()

    async def reload(self, request: Any) -> Any:
        """Answers a ReloadConfigRequest, when every process has the new list of models."""
        if not self.limits.allow_reload_requests:
            raise ServingError("PERMISSION_DENIED", "--allow_reload_requests=false")
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid("ReloadConfigRequest holds no model_config_list")
        # By way of one process, so that two lists at once end in the same one everywhere.
        await self.peers.ask(0, "reload", request.SerializeToString())
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        return response

    async def _reload_all(self, data):
        async with self._reloading:
            await self.peers.ask_all("configure", data)
        return b""

    async def _configure(self, data):
        request = model_management_pb2.ReloadConfigRequest.FromString(data)
        await self.repository.configure(request.config.model_config_list.config)
        return b""


def multi_task(servable: Any, task: Any, input: Any) -> Task:
    """Returns the `Task` of one InferenceTask."""
    if task.method_name not in (CLASSIFY, REGRESS):
        raise ServingError("UNIMPLEMENTED", f"Unsupported signature method: {task.method_name}")
    return Task(servable, task.method_name, task.model_spec.signature_name, input)
