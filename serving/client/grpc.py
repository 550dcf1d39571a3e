"""Write requests and read replies of the gRPC API, and send them over gRPC channels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from serving.client.address import ModelAddress
from serving.client.arrays import as_arrays
from serving.errors import ServingError


class GrpcMessages:
    """Build gRPC requests, which are (method, metadata, message), and read the reply messages."""

    def __init__(self, address: ModelAddress) -> None:
        # Imported here, because the stubs load TensorFlow, which the REST client does not need.
        from rrl_tf._tf_logging import load_tensorflow

        load_tensorflow()
        import grpc
        from tensorflow_serving.apis import (
            get_model_metadata_pb2,
            model_pb2,
            predict_pb2,
            prediction_service_pb2_grpc,
        )

        from serving import tensors

        self._grpc, self._tensors = grpc, tensors
        self._predict_pb2, self._metadata_pb2 = predict_pb2, get_model_metadata_pb2
        self._make_stub = prediction_service_pb2_grpc.PredictionServiceStub
        self._target = address.server.netloc
        self._model = model_pb2.ModelSpec(name=address.model, version_label=address.label)
        if address.version is not None:
            self._model.version.value = address.version
        self._credentials = None
        if address.secure:
            certificate, key = address.identity or (None, None)
            files = [address.certificates, key, certificate]
            contents = [Path(file).read_bytes() if file else None for file in files]
            self._credentials = grpc.ssl_channel_credentials(*contents)

    def make_channel(self, module: Any) -> Any:
        """Return a new channel; `module` is `grpc` or `grpc.aio`."""
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.lb_policy_name", "round_robin"),  # if a host name has several servers
        ]
        if self._credentials is None:
            return module.insecure_channel(self._target, options=options)
        return module.secure_channel(self._target, self._credentials, options=options)

    def predict_request(
        self,
        inputs: Mapping[str, Any],
        name: str,
        signature: Mapping[str, Any],
        parameters: Mapping[str, Any],
    ) -> tuple[str, Any, Any]:
        request = self._predict_pb2.PredictRequest(model_spec=self._model)
        request.model_spec.signature_name = name
        for key, array in as_arrays(inputs, signature).items():
            request.inputs[key].CopyFrom(self._tensors.pack(array))
        metadata = [
            (key, str(value).lower() if isinstance(value, bool) else str(value))
            for key, value in parameters.items()
        ]
        return "Predict", metadata, request

    def read_outputs(self, reply: Any, signature: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {name: self._tensors.from_proto(proto) for name, proto in reply.outputs.items()}

    def metadata_request(self) -> tuple[str, Any, Any]:
        request = self._metadata_pb2.GetModelMetadataRequest(
            model_spec=self._model, metadata_field=["signature_def"]
        )
        return "GetModelMetadata", (), request

    def read_signatures(self, reply: Any) -> dict[str, Any]:
        definitions = self._metadata_pb2.SignatureDefMap()
        reply.metadata["signature_def"].Unpack(definitions)
        return {
            name: {
                side: {key: self._read_spec(info) for key, info in infos.items()}
                for side, infos in (("inputs", definition.inputs), ("outputs", definition.outputs))
            }
            for name, definition in definitions.signature_def.items()
            if name != "__saved_model_init_op"
        }

    def _read_spec(self, info):
        shape = info.tensor_shape
        sizes = None if shape.unknown_rank else [max(dim.size, -1) for dim in shape.dim]
        return self._tensors.numpy_dtype(info.dtype), sizes

    def error_of(self, error: Any) -> ServingError:
        """Return the `ServingError` for a `grpc.RpcError`."""
        code = error.code().name
        # This client never cancels a request. CANCELLED means that the server is shutting down.
        return ServingError("UNAVAILABLE" if code == "CANCELLED" else code, error.details())


class GrpcTransport(GrpcMessages):
    """Send requests over one channel, from any thread.

    The coroutines block the calling thread and never await anything, so that `Client` can run them
    without an event loop.
    """

    def __init__(self, address: ModelAddress) -> None:
        super().__init__(address)
        self._channel = self.make_channel(self._grpc)
        self._stub = self._make_stub(self._channel)

    async def send(self, request: tuple[str, Any, Any], timeout: float) -> Any:
        method, metadata, message = request
        try:
            return getattr(self._stub, method)(message, timeout=timeout, metadata=metadata)
        except self._grpc.RpcError as error:
            raise self.error_of(error) from error

    async def close(self) -> None:
        self._channel.close()


class AsyncGrpcTransport(GrpcMessages):
    """Send requests over one channel, from any task of an event loop."""

    def __init__(self, address: ModelAddress) -> None:
        super().__init__(address)
        self._channel: Any = None
        self._stub: Any = None

    async def send(self, request: tuple[str, Any, Any], timeout: float) -> Any:
        if self._channel is None:  # created here, because a channel belongs to the running loop
            self._channel = self.make_channel(self._grpc.aio)
            self._stub = self._make_stub(self._channel)
        method, metadata, message = request
        try:
            return await getattr(self._stub, method)(message, timeout=timeout, metadata=metadata)
        except self._grpc.RpcError as error:
            raise self.error_of(error) from error

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
