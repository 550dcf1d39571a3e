"""The client for event loops: the same answers, and many at a time."""

import asyncio
import time

import numpy as np
import pytest

from rrl_tf.export import load_policy
from serving.client import ServingError, connect_async

pytestmark = pytest.mark.tf_only


@pytest.fixture(params=["grpc", "http"])
def address(request, server):
    port = server.grpc_port if request.param == "grpc" else server.rest_port
    return f"{request.param}://127.0.0.1:{port}"


def test_many_requests_at_once_are_answered_as_in_process(address, exported, tools):
    policy, raw = load_policy(exported / "1"), tools.observations(40)
    expected, scores = policy.act(raw, return_attention_scores=True)

    async def scenario():
        async with connect_async(address, "tiny") as client:
            actions = await asyncio.gather(*(client.act(observation) for observation in raw))
            whole, attention = await client.act(raw, return_attention_scores=True)
            outputs = await client.predict({"observation": raw[:3]})
            assert set(await client.signatures()) == set(policy.signatures)
        return actions, whole, attention, outputs

    actions, whole, attention, outputs = asyncio.run(scenario())
    assert actions == expected.tolist() == whole.tolist()
    np.testing.assert_allclose(attention["round_1"], scores["round_1"], rtol=1e-5)
    assert outputs["q_values"].shape == (3, tools.ACTIONS)


def test_failures_have_their_codes(address, tools):
    raw = tools.observations(1)

    async def scenario():
        codes = []
        async with connect_async(address, "tiny") as client, connect_async(address, "x") as other:
            calls = [client.act(raw[:, 1:]), client.predict({}, "none"), other.act(raw)]
            for call in calls:
                with pytest.raises(ServingError) as refusal:
                    await call
                codes.append(refusal.value.code)
        return codes

    assert asyncio.run(scenario()) == [
        "INVALID_ARGUMENT",
        "FAILED_PRECONDITION",
        "NOT_FOUND",
    ]


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_it_waits_for_a_server_that_is_not_there_yet(scheme, exported, tools):
    """UNAVAILABLE is asked again, with pauses in which the loop goes on."""
    port = tools.free_port()
    ticks = []

    async def scenario():
        async with connect_async(f"{scheme}://127.0.0.1:{port}", "tiny", retries=3) as client:
            asking = asyncio.create_task(client.act(tools.observations(1)))
            while not asking.done():
                ticks.append(None)
                await asyncio.sleep(0.005)
            await asking

    with pytest.raises(ServingError) as refusal:
        asyncio.run(scenario())
    assert refusal.value.code == "UNAVAILABLE" and len(ticks) > 5


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_the_time_of_a_call_is_for_all_that_it_asks(scheme, tools):
    """What signatures there are was asked for with the client's time."""

    async def scenario():
        address = f"{scheme}://127.0.0.1:{tools.free_port()}"
        async with connect_async(address, "tiny", timeout=3) as client:
            raw = tools.observations(1)
            for call in (client.act(raw, timeout=0.2), client.predict({"x": raw}, timeout=0.2)):
                with pytest.raises(ServingError):
                    await call

    begun = time.monotonic()
    asyncio.run(scenario())
    assert time.monotonic() - begun < 1.5


def test_addresses_have_one_form():
    with pytest.raises(ValueError, match="received 'ftp"):
        connect_async("ftp://h:1", "tiny")
