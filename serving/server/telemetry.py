"""Trace requests with OpenTelemetry, and log each of them; both are off by default.

While a request runs, the server only notes times. When it is complete, spans with these times are
made. OpenTelemetry is imported only with --enable_tracing.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import logging
import os
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import grpc

_log = logging.getLogger("serving")
_API = re.compile(r"/v1/|/v2(?!/health/)(/|$)")  # neither metrics nor health checks
_PROBES = re.compile(r"grpc\.|inference\.GRPCInferenceService/Server(Live|Ready)$")  # over gRPC
_VARIABLES = re.compile(r"/(models|versions|labels)/[^/:]+")
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
# The codes that are errors of the server according to OpenTelemetry's conventions for gRPC.
_SERVER_ERRORS = {
    *("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
}


@dataclasses.dataclass(eq=False)
class RequestRecord:
    """One request in progress.

    Attributes:
        id: The ID of the request.
        span: Its span of OpenTelemetry, or None.
        attributes: The attributes of the span, which are also fields of the log line.
        parts: (name, start, end), attributes and linked records of each part of the request. The
            times are in seconds of `time.monotonic`.
    """

    id: str
    span: Any
    attributes: dict[str, Any]
    parts: list[tuple] = dataclasses.field(default_factory=list)


#: The record of the request on which the current task or thread works; None without telemetry.
current_request: contextvars.ContextVar[RequestRecord | None] = contextvars.ContextVar(
    "current_request", default=None
)


class Telemetry(grpc.aio.ServerInterceptor):
    """Traces and logs the requests of both transports, and returns the ID of each.

    Args:
        flags: The server's flags.

    Raises:
        ImportError: If a package that --enable_tracing needs is not installed.
    """

    def __init__(self, flags: Any) -> None:
        self._tracer = _start_tracing() if flags.enable_tracing else None
        self._logs_requests = flags.log_format == "json"

    async def http(self, request: Any, handle: Callable[[Any], Awaitable[Any]]) -> Any:
        """Return the response of `handle` to an HTTP request, with its ID in a header."""
        if not _API.match(request.path):
            return await handle(request)
        attributes = {"http.request.method": request.method, "url.path": request.path}
        name = f"{request.method} " + _VARIABLES.sub(r"/\1/*", request.path)
        with self._recorded(name, request.headers, attributes) as record:
            response = await handle(request)
            attributes["http.response.status_code"] = response.status
            response.headers["x-request-id"] = record.id
            return response

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Return a handler that adds the ID to the trailing metadata; gRPC calls this."""
        handler, method = await continuation(details), details.method.strip("/")
        if handler is None or _PROBES.match(method):
            return handler

        async def rpc(data, context):
            attributes = {"rpc.system.name": "grpc", "rpc.method": method}
            metadata = dict(context.invocation_metadata() or ())
            with self._recorded(method, metadata, attributes) as record:
                context.set_trailing_metadata((("x-request-id", record.id),))
                code = grpc.StatusCode.OK
                try:
                    return await handler.unary_unary(data, context)
                except BaseException:  # after an error or, without a code, after a cancellation
                    code = context.code() or grpc.StatusCode.CANCELLED
                    raise
                finally:
                    attributes["rpc.response.status_code"] = code.name

        return grpc.unary_unary_rpc_method_handler(
            rpc, handler.request_deserializer, handler.response_serializer
        )

    @contextlib.contextmanager
    def _recorded(
        self, name: str, headers: Mapping[str, str], attributes: dict[str, Any]
    ) -> Iterator[RequestRecord]:
        """Yield the record of a request; at the end, make its spans and log it."""
        span = None
        if self._tracer is not None:
            from opentelemetry import propagate, trace

            span = self._tracer.start_span(name, propagate.extract(headers), trace.SpanKind.SERVER)
        start, record = (
            time.monotonic(),
            RequestRecord(_request_id(headers, span), span, attributes),
        )
        token = current_request.set(record)
        try:
            yield record
        finally:
            end = time.monotonic()
            if span is not None and span.is_recording():
                self._end_spans(record, start, end)
            if self._logs_requests:
                duration = {"duration_ms": round((end - start) * 1e3, 3)}
                _log.info("%s", name, extra={"fields": attributes | duration})
            current_request.reset(token)

    def _end_spans(self, record, start, end):
        """Make the spans of the parts of a request, and end its span."""
        from opentelemetry import trace

        context, epoch = trace.set_span_in_context(record.span), time.time() - time.monotonic()
        if record.parts:
            arrival = min(part[1] for part in record.parts)
            ready = max(part[2] for part in record.parts)
            record.parts.insert(0, ("decoding", start, arrival, {}, ()))
            record.parts.append(("encoding", ready, end, {}, ()))
        for name, *times, attributes, linked in record.parts:
            first, last = (int((epoch + seconds) * 1e9) for seconds in times)
            links = [trace.Link(each.span.get_span_context()) for each in linked]
            options = {"attributes": attributes, "links": links, "start_time": first}
            self._tracer.start_span(name, context, **options).end(last)
        record.span.set_attributes({"request.id": record.id, **record.attributes})
        if (
            record.attributes.get("http.response.status_code", 0) >= 500
            or record.attributes.get("rpc.response.status_code") in _SERVER_ERRORS
        ):
            record.span.set_status(trace.StatusCode.ERROR)
        record.span.end()


def _start_tracing():
    """Return a tracer; the OTEL_* environment variables say where it sends the spans."""
    from opentelemetry import propagate, trace  # noqa: F401 - the first request needs both
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        os.environ.setdefault("OTEL_SERVICE_NAME", "rrl-serve")
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    return trace.get_tracer("serving.server")


def _request_id(headers, span):
    """Return the ID of a request: the client's, or that of its trace, or a new one."""
    if _REQUEST_ID.fullmatch(given := headers.get("x-request-id", "")):
        return given
    if span is not None:
        return f"{span.get_span_context().trace_id:032x}"
    traceparent = _TRACEPARENT.match(headers.get("traceparent", ""))
    return traceparent[1] if traceparent else uuid.uuid4().hex
