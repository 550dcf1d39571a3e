"""gRPC server reflection, which tools such as grpcurl use."""

import grpc
import pytest

pytestmark = pytest.mark.tf_only
pytest.importorskip("grpc_reflection")


@pytest.fixture
def database(exported, tools):
    """The descriptors that a client receives from a server."""
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase,
    )

    with (
        tools.serve(exported, enable_grpc_healthcheck_service=True) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        yield ProtoReflectionDescriptorDatabase(channel)


def test_reflection_lists_the_services_and_describes_their_messages(database):
    from google.protobuf import descriptor_pool

    assert sorted(database.get_services()) == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "inference.GRPCInferenceService",
        "tensorflow.serving.ModelService",
        "tensorflow.serving.PredictionService",
    ]
    pool = descriptor_pool.DescriptorPool(database)
    service = pool.FindServiceByName("tensorflow.serving.PredictionService")
    assert "Predict" in service.methods_by_name
    request = service.methods_by_name["Predict"].input_type
    assert request.fields_by_name["model_spec"].message_type.fields_by_name["name"].number == 1
    assert pool.FindMessageTypeByName("tensorflow.TensorProto").fields_by_name["dtype"]
    service = pool.FindServiceByName("inference.GRPCInferenceService")
    request = service.methods_by_name["ModelInfer"].input_type
    assert request.fields_by_name["parameters"].message_type.GetOptions().map_entry
    with pytest.raises(KeyError):
        pool.FindServiceByName("inference.Other")
