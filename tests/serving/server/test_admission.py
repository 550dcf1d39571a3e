"""Peers take turns, and the peer that holds the most bytes loses a request if memory is short."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import ServingError
from serving.server.admission import SMALL, ByteBudget
from serving.server.workers import FairQueue


def test_peers_take_turns():
    order = []

    async def scenario():
        queue = FairQueue(1)

        async def use(peer, number):
            async with queue.slot(peer):
                order.append((peer, number))
                await asyncio.sleep(0)

        requests = [("a", n) for n in range(4)] + [("b", 0), ("c", 0), ("b", 1)]
        tasks = [asyncio.create_task(use(*each)) for each in requests]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.wait(tasks)

    asyncio.run(scenario())
    assert order == [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("a", 3), ("b", 1)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20), st.integers(1, 3))
def test_no_slot_is_lost_or_given_twice(requests, count):
    async def scenario():
        queue, inside, done = FairQueue(count), 0, 0

        async def use(peer):
            nonlocal inside, done
            async with queue.slot(peer):
                inside += 1
                assert inside <= count
                try:
                    await asyncio.sleep(0)
                finally:
                    inside -= 1
                done += 1

        tasks = [asyncio.create_task(use(peer)) for peer, _ in requests]
        await asyncio.sleep(0)
        for task, (_, stays) in zip(tasks, requests):
            if not stays:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert done == outcomes.count(None) >= sum(stays for _, stays in requests)
        async with asyncio.timeout(5):
            await asyncio.gather(*(use("a") for _ in range(count)))

    asyncio.run(scenario())


def outcomes_of(scenario, limit=100 * SMALL, **options):
    """Return name -> "held" or an error code, after requests (peer, name, size) in this order."""

    async def run():
        budget, outcomes = ByteBudget(limit, **options), {}

        async def hold(peer, name, size, released):
            try:
                async with budget.lease(peer) as lease:
                    lease.grow(size * SMALL)
                    lease.complete()
                    outcomes[name] = "held"
                    await released.wait()
            except ServingError as error:
                outcomes[name] = error.code

        released, tasks = asyncio.Event(), []
        for peer, name, size in scenario:
            tasks.append(asyncio.create_task(hold(peer, name, size, released)))
            for _ in range(5):
                await asyncio.sleep(0)
            large = [lease.size for lease in budget._leases if lease.size > SMALL]
            assert sum(large) <= limit
        released.set()
        await asyncio.gather(*tasks)
        assert not budget.held and not budget._leases
        return outcomes

    return asyncio.run(run())


def test_the_peer_that_holds_the_most_makes_room():
    greedy = [("a", f"a{n}", 25) for n in range(4)]
    outcomes = outcomes_of([*greedy, ("b", "b", 25), ("a", "a4", 2)], code="RESOURCE_EXHAUSTED")
    assert outcomes == {
        "a0": "held",
        "a1": "held",
        "a2": "held",
        "a3": "RESOURCE_EXHAUSTED",  # the newest request of the peer with the most bytes
        "b": "held",
        "a4": "RESOURCE_EXHAUSTED",
    }
    assert outcomes_of([*greedy, ("a", "small", 1)])["small"] == "held"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=12))
def test_the_limit_always_holds(sizes):
    outcomes = outcomes_of([(peer, number, size) for number, (peer, size) in enumerate(sizes)])
    assert len(outcomes) == len(sizes)


def test_an_evicted_request_counts_no_more_bytes():
    async def scenario():
        budget, leases, released = ByteBudget(10 * SMALL), [], asyncio.Event()

        async def hold():
            async with budget.lease("a") as lease:
                leases.append(lease)
                lease.grow(5 * SMALL)
                await released.wait()

        first, second = asyncio.create_task(hold()), asyncio.create_task(hold())
        await asyncio.sleep(0)
        async with budget.lease("b") as lease:
            lease.grow(4 * SMALL)
            with pytest.raises(ServingError, match="too many large requests"):
                leases[1].grow(SMALL)  # before its own task runs again
            with pytest.raises(ServingError):
                await second
            assert budget.held == 9 * SMALL
        released.set()
        await first
        assert budget.held == 0

    asyncio.run(scenario())
