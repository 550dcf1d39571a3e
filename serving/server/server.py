"""Define `Server`, which runs in an event loop, and `running` for notebooks and tests."""

from __future__ import annotations

from collections.abc import Iterator

from rrl_tf._tf_logging import load_tensorflow

load_tensorflow()  # first, because it suppresses TensorFlow's output during the import

import asyncio
import concurrent.futures
import contextlib
import logging
import resource
import sys
import threading

import grpc

try:
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc

    from serving.server.rest import RestServer
except ModuleNotFoundError as error:
    sys.exit(
        f"serving.server needs the package {error.name}, which is not installed. "
        "Use `pip install '.[serving]'`."
    )
try:
    from grpc_reflection.v1alpha import reflection
except ModuleNotFoundError:  # a server without reflection answers all other requests
    reflection = None

from serving.errors import ServingError
from serving.playground.page import Page
from serving.server.batching import BatchingParameters, Scheduler
from serving.server.config_files import StartError, read_credentials
from serving.server.flags import Flags
from serving.server.grpc_service import add_services
from serving.server.inference import Inference
from serving.server.metrics import Metrics
from serving.server.open_inference_messages import ReflectionPool
from serving.server.process_group import check_port
from serving.server.repository import Repository
from serving.server.telemetry import Telemetry
from serving.server.versions import read_models

_log = logging.getLogger("serving")
_FAREWELL_SECONDS = 0.2  # after the last reply, while new requests are answered UNAVAILABLE
_FREE_SECONDS = 3.0  # to free the models; computations that take longer are abandoned


class Server:
    """A server in an event loop, with the methods `start` and `stop`.

    Args:
        flags: The flags of the command line.
        place: With several processes that share the ports: (directory of their sockets, number of
            this process, number of processes).

    Example:

    >>> async def models_of(flags):
    ...     server = Server(flags)
    ...     await server.start()  # from here on, the server answers on server.grpc_port
    ...     found = list(server.repository.models)
    ...     await server.stop()
    ...     return found
    >>> asyncio.run(models_of(Flags(preset="doorkey-5x5", port=0)))
    ['doorkey-5x5']
    """

    def __init__(self, flags: Flags, place: tuple = (None, 0, 1)) -> None:
        self._flags, self._place = flags, place
        self.grpc_port = self.rest_port = None
        ssl_file = flags.ssl_config_file
        self._credentials = read_credentials(ssl_file) if ssl_file else None
        has_telemetry = flags.enable_tracing or flags.log_format == "json"
        try:
            self._telemetry = Telemetry(flags) if has_telemetry else None
        except ImportError as error:
            raise StartError(
                f"--enable_tracing needs the package {error.name}, which is not installed. "
                "Use `pip install '.[otel]'`."
            ) from error
        except Exception as error:  # OpenTelemetry does not define an exception class
            raise StartError(f"--enable_tracing: an OTEL_* variable is wrong: {error!r}") from error
        metrics = Metrics()
        self.repository = Repository(flags, metrics)
        threads = self.repository.loader.batching or BatchingParameters()
        self._scheduler = Scheduler(threads.num_batch_threads, threads.thread_pool_name, metrics)
        self._inference = Inference(self.repository, self._scheduler, metrics, flags, place)
        self._grpc = self._rest = self._health = None
        self._watchers: list[asyncio.Task] = []

    async def start(self) -> None:
        """Load the models, then open the ports.

        Raises:
            StartError: If a model cannot be loaded or a port cannot be opened.
        """
        self._check_ports()
        # The list is read and applied before the other processes can call this one. Otherwise it
        # could overwrite the newer list of a reload request that another process received.
        models = read_models(self._flags)
        loading = asyncio.ensure_future(self.repository.configure(models, waits=True))
        try:
            await self._inference.peers.start()
            await loading
        except ServingError as error:
            raise StartError(error.message) from error
        finally:
            loading.cancel()
        await self._start_grpc()
        if self._flags.rest_api_port:
            await self._start_rest()
        interval = self._flags.file_system_poll_wait_seconds
        self._watchers.append(asyncio.create_task(self.repository.watch(interval)))
        if self._flags.model_config_file and self._flags.model_config_file_poll_wait_seconds:
            self._watchers.append(asyncio.create_task(self._watch_config_file()))

    def _check_ports(self):
        """Raise `StartError` for a port in use before the models are loaded."""
        ports = {"gRPC": self._flags.port, "REST": self._flags.rest_api_port}
        for protocol, port in ports.items() if not self._shares_ports else ():
            try:
                check_port(self._flags.host, port)
            except OSError as error:
                address = format_address(self._flags.host, port)
                raise StartError(
                    f"cannot listen on {address} for {protocol}: {error.strerror}"
                ) from error

    async def _watch_config_file(self):
        while True:
            await asyncio.sleep(self._flags.model_config_file_poll_wait_seconds)
            try:
                await self.repository.configure(read_models(self._flags))
            except Exception as error:  # keep watching, because the file may be corrected
                _log.error("cannot apply --model_config_file: %s", error)

    @property
    def _shares_ports(self):
        return self._place[2] > 1

    async def _start_grpc(self):
        flags = self._flags
        limit = flags.max_request_bytes
        options = {
            "grpc.max_receive_message_length": limit if 0 < limit < 1 << 31 else -1,
            "grpc.max_send_message_length": -1,
            "grpc.so_reuseport": int(self._shares_ports),
            # Without a limit, idle connections could use up all file descriptors. REST gets half
            # of them, gRPC a quarter.
            "grpc.max_allowed_incoming_connections": _max_descriptors() // 4,
            **flags.channel_arguments,
        }
        interceptors = [self._telemetry] if self._telemetry is not None else None
        self._grpc = grpc.aio.server(interceptors=interceptors, options=tuple(options.items()))
        as_content = flags.enable_serialization_as_tensor_content
        names = add_services(self._grpc, self._inference, as_content, 4 * (limit or sys.maxsize))
        if flags.enable_grpc_healthcheck_service:
            self._health = health.aio.HealthServicer()
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
            for name in ("", "ModelService", "PredictionService"):
                await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
            names.append(health.SERVICE_NAME)
        if reflection is not None:
            names.append(reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._grpc, ReflectionPool())
        if flags.grpc_socket_path and self._place[1] == 0:
            self._listen_grpc(f"unix:{flags.grpc_socket_path}")
        if flags.port or not flags.grpc_socket_path:
            self.grpc_port = self._listen_grpc(format_address(flags.host, flags.port))
        await self._grpc.start()

    def _listen_grpc(self, address):
        try:
            if self._credentials is None:
                return self._grpc.add_insecure_port(address)
            return self._grpc.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise StartError(f"cannot listen on {address} for gRPC: {error}") from error

    async def _start_rest(self):
        flags = self._flags
        page = Page(self.repository) if flags.playground else None
        self._rest = RestServer(self._inference, flags, page, self._telemetry)
        try:
            await self._rest.start(_max_descriptors() // 2, self._shares_ports)
        except OSError as error:
            address = format_address(flags.host, flags.rest_api_port)
            raise StartError(f"cannot listen on {address} for REST: {error.strerror}") from error
        self.rest_port = flags.rest_api_port

    async def stop(self) -> bool:
        """Accept no new requests, finish those in progress, and free the models.

        Returns:
            Whether all threads have ended. If not, a computation or the loading of a model is still
            running, and only the end of the process stops it.
        """
        for watcher in self._watchers:
            watcher.cancel()
        if self._health is not None:
            await self._health.enter_graceful_shutdown()
        # gRPC answers CANCELLED to requests that arrive while it stops. Before that, the server
        # answers UNAVAILABLE for a moment, so that clients retry on another server.
        farewell = asyncio.sleep(_FAREWELL_SECONDS if self._grpc is not None else 0)
        await asyncio.gather(self._inference.drain(self._flags.drain_seconds), farewell)
        for transport in (self._grpc, self._rest):
            if transport is not None:
                await transport.stop(_FAREWELL_SECONDS)
        await self._inference.peers.stop()
        has_ended = await self.repository.close(_FREE_SECONDS)
        self._scheduler.close()
        if not has_ended:
            _log.warning("a computation or the loading of a model has not ended; stopping anyway")
        return has_ended


def format_address(host: str, port: int) -> str:
    """Return `host:port` as gRPC expects it, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _max_descriptors():
    """Raise this process's limit of open files to the maximum, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


@contextlib.contextmanager
def running(flags: Flags) -> Iterator[Server]:
    """Run a server in a thread of this process until the `with` block ends; yield the `Server`.

    This is meant for notebooks and tests. The command `python -m serving.server` runs the server in
    a separate process.
    """
    started: concurrent.futures.Future = concurrent.futures.Future()

    async def serve():
        server, stop = None, asyncio.Event()
        try:
            server = Server(flags)
            await server.start()
            loop = asyncio.get_running_loop()
            started.set_result((server, lambda: loop.call_soon_threadsafe(stop.set)))
            await stop.wait()
        except Exception as error:
            started.set_exception(error)
        finally:
            if server is not None:
                await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="serving")
    thread.start()
    try:
        server, stop = started.result()
        try:
            yield server
        finally:
            stop()
    finally:
        thread.join()
