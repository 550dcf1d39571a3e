"""Whose turn it is, and who makes room."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import ServingError
from serving.server.admission import SMALL, Budget, Turns


def test_peers_take_turns():
    """They were first come, first served: a client with many bodies held up all others."""
    order = []

    async def scenario():
        turns = Turns(1)

        async def ask(peer, number):
            async with turns.place(peer):
                order.append((peer, number))
                await asyncio.sleep(0)

        asked = [("a", n) for n in range(4)] + [("b", 0), ("c", 0), ("b", 1)]
        tasks = [asyncio.create_task(ask(*each)) for each in asked]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.wait(tasks)
        assert turns._free == 1 and not turns._waiting

    asyncio.run(scenario())
    assert order == [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("a", 3), ("b", 1)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20), st.integers(1, 3))
def test_no_place_is_lost_or_given_twice(asked, count):
    async def scenario():
        turns, inside, done = Turns(count), 0, 0

        async def ask(peer):
            nonlocal inside, done
            async with turns.place(peer):
                inside += 1
                assert inside <= count
                try:
                    await asyncio.sleep(0)
                finally:
                    inside -= 1
                done += 1

        tasks = [asyncio.create_task(ask(peer)) for peer, _ in asked]
        await asyncio.sleep(0)
        for task, (_, stays) in zip(tasks, asked):
            if not stays:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert done == outcomes.count(None) == sum(stays for _, stays in asked)
        assert turns._free == count and not turns._waiting

    asyncio.run(scenario())


def held_by(scenario, most=100 * SMALL, **options):
    async def whole():
        budget = Budget(most, **options)
        outcomes = {}

        async def hold(peer, name, size, released):
            try:
                async with budget.share(peer) as share:
                    share.grow(size * SMALL)
                    share.complete()
                    outcomes[name] = "held"
                    await released.wait()
            except ServingError as error:
                outcomes[name] = error.code

        released, tasks = asyncio.Event(), []
        for peer, name, size in scenario:
            tasks.append(asyncio.create_task(hold(peer, name, size, released)))
            for _ in range(5):
                await asyncio.sleep(0)
            large = [share.size for share in budget._shares if share.size > SMALL]
            assert sum(large) <= most
        released.set()
        await asyncio.gather(*tasks)
        assert not budget.held and not budget._shares
        return outcomes

    return asyncio.run(whole())


def test_who_holds_most_makes_room_for_others():
    greedy = [("a", f"a{n}", 25) for n in range(4)]
    outcomes = held_by([*greedy, ("b", "b", 25), ("a", "a4", 2)], code="RESOURCE_EXHAUSTED")
    assert outcomes == {
        "a0": "held",
        "a1": "held",
        "a2": "held",
        "a3": "RESOURCE_EXHAUSTED",  # the newest of who held everything
        "b": "held",
        "a4": "RESOURCE_EXHAUSTED",
    }
    assert held_by([*greedy, ("a", "small", 1)])["small"] == "held"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=12))
def test_no_more_is_held_than_may_be(sizes):
    outcomes = held_by([(peer, number, size) for number, (peer, size) in enumerate(sizes)])
    assert len(outcomes) == len(sizes)


def test_what_comes_after_room_was_made_is_not_counted():
    async def scenario():
        budget, shares, released = Budget(10 * SMALL), [], asyncio.Event()

        async def hold():
            async with budget.share("a") as share:
                shares.append(share)
                share.grow(5 * SMALL)
                await released.wait()

        first, second = asyncio.create_task(hold()), asyncio.create_task(hold())
        await asyncio.sleep(0)
        async with budget.share("b") as share:
            share.grow(4 * SMALL)
            with pytest.raises(ServingError, match="too many large requests"):
                shares[1].grow(SMALL)  # in the same turn of the loop, before it is told
            with pytest.raises(ServingError):
                await second
            assert budget.held == 9 * SMALL
        released.set()
        await first
        assert budget.held == 0

    asyncio.run(scenario())
