"""Serves exported policies: `python -m serving.server --model_base_path=... --rest_api_port=8501`.

Speaks the TensorFlow Serving protocol on one machine, without Docker; a client moves between this
and tensorflow_model_server without a change. `--help` lists the flags, which are theirs.
"""

from rrl_tf.quiet import load_tensorflow

load_tensorflow()  # before anything else imports it, with its greeting on stderr

import asyncio
import contextlib
import gc
import logging
import signal
import sys
import threading
from pathlib import Path

import grpc
import tensorflow as tf
from aiohttp import web
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tensorflow_serving.config import model_server_config_pb2

from serving import config_files
from serving import flags as flags_module
from serving.batching import BatchingParameters, Scheduler
from serving.errors import ServingError
from serving.grpc_service import add_services
from serving.inference import Inference
from serving.metrics import Metrics
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
        self._ssl = config_files.read_ssl(flags.ssl_config_file) if flags.ssl_config_file else None
        metrics = Metrics()
        self._scheduler = Scheduler(_batching(flags), metrics=metrics)
        labels = flags.allow_version_labels_for_unavailable_models
        self.repository = Repository(_load_options(flags), metrics, labels)
        self._inference = Inference(self.repository, self._scheduler, metrics)
        self._grpc = self._rest = self._rest_api = None
        self._watchers = []

    async def start(self):
        """Loads the models, then opens the ports.

        Raises:
            StartError: If a model cannot be loaded or a port not be opened.
        """
        try:
            await self.repository.configure(read_models(self._flags))
        except ServingError as error:
            raise StartError(error.message) from error
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
            except (ServingError, config_files.ConfigError) as error:
                _log.error("the model list stays as it was: %s", error)

    async def _start_grpc(self):
        limit = self._flags.max_request_bytes or -1
        self._grpc = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # a second server on the port is an error, not a share
            ]
        )
        add_services(
            self._grpc, self._inference, self._flags.enable_serialization_as_tensor_content
        )
        if self._flags.enable_grpc_healthcheck_service:
            await _add_health(self._grpc)
        address = _address(self._flags.host, self._flags.port)
        try:
            if self._ssl is None:
                self.grpc_port = self._grpc.add_insecure_port(address)
            else:
                self.grpc_port = self._grpc.add_secure_port(address, _credentials(self._ssl))
        except RuntimeError as error:
            raise StartError(f"cannot listen on {address} for gRPC: is the port in use?") from error
        await self._grpc.start()

    async def _start_rest(self):
        monitoring = self._flags.monitoring_config_file
        api = self._rest_api = RestApi(
            self._inference,
            self._flags.rest_api_timeout_in_ms / 1000,
            self._flags.rest_api_enable_cors_support,
            config_files.read_monitoring(monitoring) if monitoring else None,
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
        for watcher in self._watchers:
            watcher.cancel()
        if self._rest_api is not None:
            self._rest_api.draining = True
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


async def _add_health(server):
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for name in ("", "ModelService", "PredictionService"):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)


def _credentials(config):
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )


def _batching(flags):
    """Returns the BatchingParameters that the flags ask for, None without batching."""
    if not flags.enable_batching:
        return None
    path = flags.batching_parameters_file
    return config_files.read_batching(path) if path else BatchingParameters()


def _load_options(flags):
    both = flags.tensorflow_session_parallelism
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=flags.tensorflow_intra_op_parallelism or both or 1,
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
        ConfigError: If the file cannot be read.
        StartError: If the model's folder cannot be read.
    """
    if flags.model_config_file:
        return config_files.read_models(flags.model_config_file)
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


@contextlib.contextmanager
def running(flags):
    """Runs a server in a thread of this process, for notebooks and tests; yields the `Server`."""
    ready = threading.Event()
    outcome = {}

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
            # TensorFlow's modules are a million objects; to look through them again, as each swap
            # of versions makes the collector do, would stop every request for a third of a second.
            gc.collect()
            gc.freeze()
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
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # a traceback a bad request
    for name in ignored:
        _log.warning("--%s has no effect here", name)
    try:
        asyncio.run(_serve(flags))
    except (StartError, config_files.ConfigError) as error:
        print(f"serving.server: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
