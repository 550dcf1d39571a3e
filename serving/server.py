"""Serves exported policies: `python -m serving.server --model_base_path=... --rest_api_port=8501`.

Speaks the TensorFlow Serving protocol on one machine, without Docker; a client moves between this
and tensorflow_model_server without a change. `--help` lists the flags, which are theirs.
"""

import os

# Both libraries greet their user on stderr; errors still come, as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import asyncio
import contextlib
import logging
import signal
import sys
import threading
from pathlib import Path

import grpc
import tensorflow as tf
from aiohttp import web
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from serving import flags as flags_module
from serving.batching import BatchingParameters, Scheduler
from serving.errors import ServingError
from serving.grpc_service import add_services
from serving.repository import LoadOptions, Repository
from serving.rest import RestApi

_log = logging.getLogger("serving")


class StartError(Exception):
    """Why the server could not start, in one line."""


class Server:
    """The server in an event loop: `start`, then `stop`.

    Args:
        flags: `serving.flags.Flags`.

    Example:

    >>> server = Server(Flags(model_base_path="/models/doorkey", rest_api_port=8501))
    >>> await server.start()
    >>> server.grpc_port
    8500
    """

    def __init__(self, flags):
        self._flags = flags
        self.grpc_port = self.rest_port = None
        batching = BatchingParameters() if flags.enable_batching else None
        self._scheduler = Scheduler(batching)
        self.repository = Repository(_load_options(flags))
        self._grpc = self._rest = self._watcher = None

    async def start(self):
        """Loads the models, then opens the ports.

        Raises:
            StartError: If a model cannot be loaded or a port not be opened.
        """
        try:
            await self.repository.configure(read_models(self._flags))
        except ServingError as error:
            raise StartError(error.message) from error
        interval = self._flags.file_system_poll_wait_seconds
        self._watcher = asyncio.create_task(self.repository.watch(interval))
        await self._start_grpc()
        if self._flags.rest_api_port:
            await self._start_rest()

    async def _start_grpc(self):
        limit = self._flags.max_request_bytes or -1
        self._grpc = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # a second server on the port is an error, not a share
            ]
        )
        as_content = self._flags.enable_serialization_as_tensor_content
        add_services(self._grpc, self.repository, self._scheduler, as_content)
        address = _address(self._flags.host, self._flags.port)
        try:
            self.grpc_port = self._grpc.add_insecure_port(address)
        except RuntimeError as error:
            raise StartError(f"cannot listen on {address} for gRPC: is the port in use?") from error
        await self._grpc.start()

    async def _start_rest(self):
        api = RestApi(
            self.repository,
            self._scheduler,
            self._flags.rest_api_timeout_in_ms / 1000,
            self._flags.rest_api_enable_cors_support,
        )
        limit = self._flags.max_request_bytes or sys.maxsize

        def make_request(message, payload, protocol, writer, task):
            return web.BaseRequest(
                message, payload, protocol, writer, task, protocol._loop, client_max_size=limit
            )

        server = web.Server(api, request_factory=make_request, access_log=None)
        self._rest = web.ServerRunner(server, shutdown_timeout=self._flags.drain_seconds)
        await self._rest.setup()
        host, port = self._flags.host, self._flags.rest_api_port
        try:
            await web.TCPSite(self._rest, host, port).start()
        except OSError as error:
            address = _address(host, port)
            raise StartError(f"cannot listen on {address} for REST: {error.strerror}") from error
        self.rest_port = port

    async def stop(self):
        """Takes no new requests, lets those in flight finish, and frees the models."""
        if self._watcher is not None:
            self._watcher.cancel()
        stopping = []
        if self._grpc is not None:
            stopping.append(self._grpc.stop(self._flags.drain_seconds))
        if self._rest is not None:
            stopping.append(self._rest.cleanup())
        await asyncio.gather(*stopping)
        await self.repository.close()
        self._scheduler.close()


def _address(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _load_options(flags):
    both = flags.tensorflow_session_parallelism
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=flags.tensorflow_intra_op_parallelism or both,
        inter_op_parallelism_threads=flags.tensorflow_inter_op_parallelism or both,
    )
    return LoadOptions(
        saved_model_tags=tuple(flags.saved_model_tags.split(",")),
        session_config=config,
        enable_model_warmup=flags.enable_model_warmup,
        num_request_iterations_for_warmup=flags.num_request_iterations_for_warmup,
        max_num_load_retries=flags.max_num_load_retries,
        load_retry_interval_micros=flags.load_retry_interval_micros,
    )


def read_models(flags):
    """Returns the ModelConfig messages that the flags name, by file or as one model.

    Raises:
        StartError: If the file or the model's folder cannot be read.
    """
    if flags.model_config_file:
        return _read_config_file(flags.model_config_file)
    base = Path(flags.model_base_path).absolute()
    try:
        next(base.iterdir(), None)
    except OSError as error:
        raise StartError(f"cannot read --model_base_path {base}: {error.strerror}") from error
    return [
        model_server_config_pb2.ModelConfig(
            name=flags.model_name, base_path=str(base), model_platform="tensorflow"
        )
    ]


def _read_config_file(path):
    config = model_server_config_pb2.ModelServerConfig()
    try:
        text_format.Parse(Path(path).read_text(encoding="utf-8"), config)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise StartError(f"cannot read --model_config_file {path}: {error}") from error
    if config.WhichOneof("config") != "model_config_list":
        raise StartError(f"--model_config_file {path} holds no model_config_list")
    return list(config.model_config_list.config)


@contextlib.contextmanager
def running(flags):
    """Runs a server in a thread of this process, for notebooks and tests; yields the `Server`."""
    ready = threading.Event()
    outcome = {}

    async def serve():
        server = Server(flags)
        outcome["loop"], outcome["stop"] = asyncio.get_running_loop(), asyncio.Event()
        try:
            await server.start()
            outcome["server"] = server
            ready.set()
            await outcome["stop"].wait()
        except StartError as error:
            outcome["error"] = error
        finally:
            await server.stop()
            ready.set()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="serving")
    thread.start()
    try:
        ready.wait()
        if "error" in outcome:
            raise outcome["error"]
        yield outcome["server"]
    finally:
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            outcome["loop"].call_soon_threadsafe(outcome["stop"].set)
        thread.join()


async def _serve(flags):
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    server = Server(flags)
    start = asyncio.create_task(server.start())
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((start, stopped), return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
            _log.info("serving gRPC on port %s, REST on %s", server.grpc_port, server.rest_port)
            await stopped
            _log.info("stopping")
    finally:
        start.cancel()
        stopped.cancel()
        await server.stop()


def main(arguments=None):
    """Runs the server until SIGTERM or SIGINT; returns the exit code."""
    flags, ignored = flags_module.parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    tf.get_logger().setLevel("ERROR")
    for name in ignored:
        _log.warning("--%s has no effect here", name)
    try:
        asyncio.run(_serve(flags))
    except StartError as error:
        print(f"serving.server: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
