"""Answer every gRPC request with the same bytes: an upper limit for `speed/serving`.

    python -m benchmarks.grpc_echo grpc://localhost:8500 8600

The script sends one request to the server at the address. Then it listens on the port and answers
every request with the reply to that first request. It uses the same gRPC stack as the server.
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
