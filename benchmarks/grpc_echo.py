"""A gRPC server that answers every request with the same bytes: the limit for `speed/serving`.

    python -m benchmarks.grpc_echo grpc://localhost:8500 8600

Sends one request to the server at the address, and repeats its answer on the port, on the same
gRPC stack.
"""

import asyncio
import sys

import grpc

from serving.bench import make_body

METHOD = "Predict"
SERVICE = "tensorflow.serving.PredictionService"


async def main(address, port):
    """Serve until the process is killed."""
    body = make_body(address, "policy", "act", batch=1)
    async with grpc.aio.insecure_channel(address.removeprefix("grpc://")) as channel:
        answer = await channel.unary_unary(f"/{SERVICE}/{METHOD}")(body)

    async def echo(data, context):
        return answer

    server = grpc.aio.server()
    handlers = {METHOD: grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
