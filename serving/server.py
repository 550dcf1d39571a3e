"""Serves exported policies: `python -m serving.server --model_base_path=... --rest_api_port=8501`.

Speaks the TensorFlow Serving protocol on one machine, without Docker; a client moves between this
and tensorflow_model_server without a change. `--help` lists the flags, which are theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rrl_tf._tf_logging import load_tensorflow

load_tensorflow()  # before anything else imports it, with its greeting on stderr

import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
import resource
import signal
import sys
import threading
from typing import Any

import grpc
import tensorflow as tf

try:
    import orjson  # noqa: F401
    import prometheus_client  # noqa: F401
    import simdjson  # noqa: F401
    from aiohttp import web
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc
except ModuleNotFoundError as error:
    sys.exit(
        f"serving.server needs {error.name}: pip install '.[serving]'; received a Python without it"
    )

from serving import config_files, logs, tls
from serving import flags as flags_module
from serving.addresses import refuse_if_taken, why_not, written
from serving.batching import BatchingParameters, Scheduler
from serving.errors import ServingError
from serving.flags import Flags
from serving.grpc_service import add_services
from serving.http_connections import Connections
from serving.inference import Inference
from serving.metrics import Metrics
from serving.options import StartError, limits, load_options, read_models
from serving.peers import Family, mark_serving, reserved, wait_for_parent_to_end
from serving.playground.page import ROOT, Page
from serving.repository import Repository
from serving.rest import RestApi
from serving.workers import Workers

_log = logging.getLogger("serving")
_SWITCH_SECONDS = 0.001
_FAREWELL_SECONDS = 0.2
# For the models to be freed; what is still at work then would keep the process for ever.
_FREEING_SECONDS = 3.0


class Server:
    """The server in an event loop: `start`, then `stop`.

    Args:
        flags: `serving.flags.Flags`.
        place: Where this process is among those that share the ports: folder, number, count.

    Example:

    >>> async def names(flags):
    ...     server = Server(flags)
    ...     await server.start()  # it answers on server.grpc_port now
    ...     found = list(server.repository.models)
    ...     await server.stop()
    ...     return found
    >>> asyncio.run(names(Flags(preset="doorkey-5x5", port=0)))
    ['doorkey-5x5']
    """

    def __init__(self, flags: Flags, place: tuple = (None, 0, 1)) -> None:
        self._flags = flags
        self._place = place
        self.grpc_port = self.rest_port = None
        ssl_file = flags.ssl_config_file
        self._credentials = tls.server_credentials(ssl_file) if ssl_file else None
        metrics = Metrics()
        options = load_options(flags)
        threads = options.batching or BatchingParameters()
        self._scheduler = Scheduler(threads.num_batch_threads, threads.thread_pool_name, metrics)
        labels = flags.allow_version_labels_for_unavailable_models
        self.repository = Repository(options, metrics, labels)
        self._inference = Inference(self.repository, self._scheduler, metrics, place, limits(flags))
        self._workers = Workers(flags.rest_api_num_readers)
        self._grpc = self._rest = self._health = None
        self._watchers: list[Any] = []

    async def start(self) -> None:
        """Loads the models, then opens the ports.

        Raises:
            StartError: If a model cannot be loaded or a port not be opened.
        """
        # Begun before others can ask, so that no list of theirs is overruled by the one at start.
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

    async def _watch_config_file(self):
        while True:
            await asyncio.sleep(self._flags.model_config_file_poll_wait_seconds)
            try:
                await self.repository.configure(read_models(self._flags))
            except Exception as error:  # whatever it is, the next look may find it mended
                _log.error("the model list stays as it was: %s", error)

    async def _start_grpc(self):
        limit = self._flags.max_request_bytes
        options = {
            "grpc.max_receive_message_length": limit if 0 < limit < 1 << 31 else -1,
            "grpc.max_send_message_length": -1,
            # A second server on the port is an error, not a share, unless it is meant.
            "grpc.so_reuseport": int(self._shares_ports),
            # Idle ones would take all descriptors, of which REST may have half.
            "grpc.max_allowed_incoming_connections": _most_descriptors() // 4,
            **self._flags.channel_arguments,
        }
        self._grpc = grpc.aio.server(options=tuple(options.items()))
        add_services(
            self._grpc,
            self._inference,
            self._flags.enable_serialization_as_tensor_content,
            4 * (limit or sys.maxsize),
        )
        if self._flags.enable_grpc_healthcheck_service:
            self._health = await _add_health(self._grpc)
        if self._flags.grpc_socket_path and self._place[1] == 0:
            refuse_if_taken(self._flags.grpc_socket_path)
            self._listen_grpc(f"unix:{self._flags.grpc_socket_path}")
        if self._flags.port or not self._flags.grpc_socket_path:
            self.grpc_port = self._listen_grpc(written(self._flags.host, self._flags.port))
        await self._grpc.start()

    def _listen_grpc(self, address):
        try:
            if self._credentials is None:
                return self._grpc.add_insecure_port(address)
            return self._grpc.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            reason = why_not(address)
            raise StartError(f"cannot listen on {address} for gRPC: {reason}") from error

    @property
    def _shares_ports(self):
        return self._place[2] > 1

    async def _start_rest(self):
        flags, monitoring = self._flags, self._flags.monitoring_config_file
        self._workers.start()
        patience = flags.rest_api_header_timeout_in_ms / 1000
        api = RestApi(
            self._inference,
            self._workers,
            flags.rest_api_timeout_in_ms / 1000,
            flags.rest_api_enable_cors_support,
            config_files.read_monitoring(monitoring) if monitoring else None,
            flags.rest_api_max_request_bytes or flags.max_request_bytes or sys.maxsize,
            patience,
            Page(self.repository) if flags.playground else None,
        )
        most = min(flags.rest_api_max_connections, _most_descriptors() // 2)
        server = Connections(api, most, patience)
        self._rest = web.ServerRunner(server, shutdown_timeout=_FAREWELL_SECONDS)
        await self._rest.setup()
        host, port = self._flags.host, self._flags.rest_api_port
        try:
            await web.TCPSite(self._rest, host, port, reuse_port=self._shares_ports).start()
        except OSError as error:
            address = written(host, port)
            raise StartError(f"cannot listen on {address} for REST: {error.strerror}") from error
        self.rest_port = port

    async def stop(self) -> bool:
        """Takes no new requests, lets those in flight finish, and frees the models.

        Returns:
            Whether all has ended. A computation that nobody waits for any more, or the loading of
            a model, cannot be ended but with the process.
        """
        for watcher in self._watchers:
            watcher.cancel()
        if self._health is not None:
            await self._health.enter_graceful_shutdown()
        # gRPC's core answers CANCELLED to what arrives just as it stops. Until clients have heard
        # UNAVAILABLE, which they know to try elsewhere, it goes on listening.
        farewell = asyncio.sleep(_FAREWELL_SECONDS if self._grpc is not None else 0)
        await asyncio.gather(self._inference.drain(self._flags.drain_seconds), farewell)
        stopping: list[Any] = []
        if self._grpc is not None:
            stopping.append(self._grpc.stop(_FAREWELL_SECONDS))
        if self._rest is not None:
            stopping.append(self._rest.cleanup())
        await asyncio.gather(*stopping)
        self._workers.close()
        await self._inference.peers.stop()
        ended = await self.repository.close(_FREEING_SECONDS)
        self._scheduler.close()
        if not ended:
            _log.warning("a computation or the loading of a model has not ended")
        return ended


def _most_descriptors():
    """Returns how many files this process may have open, after asking for as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


async def _add_health(server):
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for name in ("", "ModelService", "PredictionService"):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    return servicer


@contextlib.contextmanager
def running(flags: Flags) -> Iterator[Server]:
    """Runs a server in a thread of this process, for notebooks and tests; yields the `Server`."""
    ready = threading.Event()
    outcome: dict[str, Any] = {}

    async def serve():
        server = None
        stop = asyncio.Event()
        try:
            server = Server(flags)
            await server.start()
            outcome.update(server=server, stop=stop, loop=asyncio.get_running_loop())
            ready.set()
            await stop.wait()
        except Exception as error:
            outcome["error"] = error
        finally:
            if server is not None:
                await server.stop()
            ready.set()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="serving")
    thread.start()
    ready.wait()
    try:
        if "error" in outcome:
            raise outcome["error"]
        yield outcome["server"]
    finally:
        if "stop" in outcome:
            outcome["loop"].call_soon_threadsafe(outcome["stop"].set)
        thread.join()


async def _serve(flags, arguments):
    """Serves until SIGTERM or SIGINT, or until one of the processes has ended.

    Returns:
        (exit code, whether all threads have ended).
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    if flags.process_of:
        directory, _, index = flags.process_of.rpartition(":")
        place = (directory, int(index), flags.num_processes)
        return 0, await _serve_one(flags, place, (stop.wait, wait_for_parent_to_end))
    if flags.num_processes == 1:
        return 0, await _serve_one(flags, (None, 0, 1), (stop.wait,))
    return await _serve_together(flags, arguments, stop)


async def _serve_together(flags, arguments, stop):
    """Starts the other processes, and is one of them."""
    with contextlib.ExitStack() as ports:
        chosen = {}
        for name in ("port", "rest_api_port"):
            number = getattr(flags, name)
            if number or (name == "port" and not flags.grpc_socket_path):
                chosen[name] = _reserve(ports, flags.host, number)
        flags = dataclasses.replace(flags, **chosen)
        family = Family(arguments, flags.num_processes)
        try:
            await family.start(flags.port)
            place = (family.directory, 0, flags.num_processes)
            ended = await _serve_one(flags, place, (stop.wait, family.wait_for_one), family)
        finally:
            await family.stop()
    if not stop.is_set():
        _log.error("one of the processes has ended, and so do the others")
        return 1, ended
    return 0, ended


def _reserve(ports, host, port):
    """Enters `peers.reserved`; a failure is one that is told to a user."""
    try:
        return ports.enter_context(reserved(host, port))
    except OSError as error:
        raise StartError(f"cannot listen on {written(host, port)}: {error.strerror}") from error


async def _serve_one(flags, place, ends, family=None):
    """Serves in this process until one of `ends()` is done; returns whether all has ended."""
    server = Server(flags, place)
    start = asyncio.create_task(server.start())
    ending = [asyncio.ensure_future(end()) for end in ends]
    try:
        await asyncio.wait((start, *ending), return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
            # TensorFlow's modules are a million objects; to look through them again, as each swap
            # of versions makes the collector do, would stop every request for a third of a second.
            gc.collect()
            gc.freeze()
            if family is not None:
                await family.wait_until_serving()
            if flags.process_of:
                mark_serving(*place[:2])
            else:
                ports = (server.grpc_port or flags.grpc_socket_path, server.rest_port)
                _log.info("serving gRPC on %s, REST on %s", *ports)
                if flags.playground:
                    _log.info("playground at http://localhost:%s%s", server.rest_port, ROOT)
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            _log.info("stopping")
    finally:
        for task in (start, *ending):
            task.cancel()
        if family is not None:
            family.end()
        ended = await server.stop()
    return ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the server until SIGTERM or SIGINT; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    flags, ignored = flags_module.parse(arguments)
    logs.set_up()
    # A thread that comes back with an answer waits for the event loop at most so long.
    sys.setswitchinterval(_SWITCH_SECONDS)
    tf.get_logger().setLevel("ERROR")
    for name in ignored:
        _log.warning("--%s has no effect here", name)
    try:
        code, ended = asyncio.run(_serve(flags, arguments))
    except (StartError, config_files.ConfigError) as error:
        print(f"serving.server: {error}", file=sys.stderr)
        return 1
    if not ended:  # Python would wait for its threads
        logging.shutdown()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
