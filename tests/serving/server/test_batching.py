"""Which requests merge into a batch, and how long they wait."""

import asyncio
import contextlib
import threading
import time

import numpy as np
import pytest

from serving.errors import ServingError
from serving.server.batching import BatchingParameters, Scheduler
from serving.server.metrics import Metrics
from serving.server.model import Signature, TensorSpec
from serving.server.telemetry import RequestRecord, current_request

pytestmark = pytest.mark.tf_only
FLOAT = 1


class FakeServable:
    """Doubles its input, records its batches, and refuses negative numbers."""

    name, version, has_branches = "fake", 1, False

    def __init__(self, batching, gate=None):
        self.batching, self.batches, self.gate, self.users = batching, [], gate, 0

    def run(self, signature, inputs, outputs):
        self.batches.append(len(inputs["x"]))
        if self.gate is not None:
            assert self.gate.wait(5)
        if (inputs["x"] < 0).any():
            raise ServingError("INVALID_ARGUMENT", "negative")
        return {"y": inputs["x"] * 2}


def signature(shape=(None,)):
    x, y = (TensorSpec(name, FLOAT, shape) for name in "xy")
    return Signature("s", {"x": x}, {"y": y}, {})


async def ask(scheduler, servable, values, shape=(None,)):
    array = np.array(values, "float32")
    return (await scheduler.run(servable, signature(shape), {"x": array}, ("y",)))["y"].tolist()


def run(parameters, scenario, gate=None):
    async def main():
        scheduler = Scheduler(num_threads=1)
        servable = FakeServable(parameters, gate)
        try:
            return servable, await asyncio.wait_for(scenario(scheduler, servable), 20)
        finally:
            scheduler.close()

    return asyncio.run(main())


def one_thread(**changes):
    return BatchingParameters(**({"num_batch_threads": 1} | changes))


def test_concurrent_requests_run_in_one_batch():
    async def scenario(scheduler, servable):
        return await asyncio.gather(*(ask(scheduler, servable, [i, i]) for i in range(10)))

    servable, answers = run(one_thread(), scenario)
    assert answers == [[2.0 * i, 2.0 * i] for i in range(10)] and servable.batches == [20]
    servable, answers = run(one_thread(max_batch_size=8), scenario)
    assert answers == [[2.0 * i, 2.0 * i] for i in range(10)] and servable.batches == [8, 8, 4]
    servable, answers = run(None, scenario)
    assert answers == [[2.0 * i, 2.0 * i] for i in range(10)] and servable.batches == [2] * 10


def test_only_batches_of_a_kind_that_was_fast_run_in_the_event_loop():
    class Timed(FakeServable):
        seconds = 0.0

        def run(self, signature, inputs, outputs):
            self.threads.append(threading.get_ident() == self.loop_thread)
            time.sleep(self.seconds)
            return super().run(signature, inputs, outputs)

    async def main():
        scheduler, servable = Scheduler(num_threads=1), Timed(one_thread())
        servable.threads, servable.loop_thread = [], threading.get_ident()

        async def runs_in_loop(values, seconds=0.0, **changes):
            servable.seconds = seconds
            for name, value in changes.items():
                setattr(servable, name, value)
            with contextlib.suppress(ServingError):
                await ask(scheduler, servable, values)
            return servable.threads[-1]

        try:
            for _ in range(100):  # on a busy machine, a run may be slow
                if await runs_in_loop([1, 2]):
                    break
            assert servable.threads[-1] and not servable.threads[0]
            assert not await runs_in_loop([1, 2, 3])  # a new size
            assert not await runs_in_loop([1, 2], has_branches=True)
            await runs_in_loop([1, -2], has_branches=False)
            assert not await runs_in_loop([1, 2])  # the last run of this kind failed
            await runs_in_loop([1, 2], seconds=0.01)
            assert not await runs_in_loop([1, 2])  # the last run was slow
            for _ in range(100):
                await runs_in_loop([1, 2], seconds=0.01 * servable.threads[-1])
            servable.threads.clear()
            for _ in range(10):
                await runs_in_loop([1, 2])
            assert not any(servable.threads)  # three runs in the loop were slow
        finally:
            scheduler.close()

    asyncio.run(main())


def test_requests_during_a_run_form_the_next_batch():
    gate = threading.Event()

    async def scenario(scheduler, servable):
        first = asyncio.create_task(ask(scheduler, servable, [0]))
        while not servable.batches:
            await asyncio.sleep(0.001)
        rest = [asyncio.create_task(ask(scheduler, servable, [i])) for i in range(1, 6)]
        await asyncio.sleep(0.01)
        gate.set()
        return await asyncio.gather(first, *rest)

    servable, answers = run(one_thread(), scenario, gate)
    assert servable.batches == [1, 5] and answers == [[2.0 * i] for i in range(6)]


def test_bad_request_does_not_fail_its_batch():
    async def scenario(scheduler, servable):
        calls = (ask(scheduler, servable, [value]) for value in (1, -1, 3))
        return await asyncio.gather(*calls, return_exceptions=True)

    _, answers = run(one_thread(), scenario)
    assert answers[0] == [2.0] and answers[2] == [6.0]
    assert isinstance(answers[1], ServingError) and answers[1].code == "INVALID_ARGUMENT"


def test_other_inner_shapes_run_separately():
    async def scenario(scheduler, servable):
        shape = (None, None)
        wide, narrow = [[1, 2, 3]], [[4, 5]]
        values = (wide, narrow, wide)
        return await asyncio.gather(*(ask(scheduler, servable, v, shape) for v in values))

    servable, answers = run(one_thread(), scenario)
    assert answers == [[[2, 4, 6]], [[8, 10]], [[2, 4, 6]]] and sorted(servable.batches) == [1, 2]


def test_pad_variable_length_inputs_merges_inner_shapes():
    """Padding is appended and repeats the first value, as in tensorflow_model_server."""

    async def scenario(scheduler, servable):
        shape = (None, None, None)
        values = ([[[1, 2, 3]]], [[[4], [5]]], [[[6, 7], [8, 9]]])
        return await asyncio.gather(*(ask(scheduler, servable, v, shape) for v in values))

    servable, answers = run(one_thread(pad_variable_length_inputs=True), scenario)
    assert servable.batches == [3]
    assert answers == [
        [[[2, 4, 6], [2, 2, 2]]],
        [[[8, 8, 8], [10, 8, 8]]],
        [[[12, 14, 12], [16, 18, 12]]],
    ]


def test_each_servable_has_its_own_parameters():
    async def main():
        scheduler = Scheduler(num_threads=1)
        servables = [FakeServable(p) for p in (None, one_thread(), one_thread(max_batch_size=2))]
        asked = (ask(scheduler, s, [i]) for s in servables for i in range(4))
        await asyncio.gather(*asked)
        scheduler.close()
        return [servable.batches for servable in servables]

    assert asyncio.run(main()) == [[1, 1, 1, 1], [4], [2, 2]]


def test_queue_depth_counts_waiting_requests():
    metrics, gate = Metrics(), threading.Event()

    def depth():
        name = ":tensorflow:serving:batching_session:queue_depth"
        return metrics.collect()[name]["samples"][f"{name}{{}}"]

    async def main():
        scheduler = Scheduler(num_threads=1, metrics=metrics)
        servable = FakeServable(None, gate)
        asked = [asyncio.create_task(ask(scheduler, servable, [i])) for i in range(4)]
        while not servable.batches:
            await asyncio.sleep(0.001)
        waiting = depth()
        gate.set()
        await asyncio.gather(*asked)
        scheduler.close()
        return waiting, depth()

    assert asyncio.run(main()) == (3, 0)


def test_times_are_noted_for_the_requests_of_a_batch_that_have_a_record():
    record = RequestRecord("id", None, {})

    async def scenario(scheduler, servable):
        other = asyncio.create_task(ask(scheduler, servable, [1]))
        token = current_request.set(record)
        mine = asyncio.create_task(ask(scheduler, servable, [2]))
        current_request.reset(token)
        return await asyncio.gather(other, mine)

    servable, answers = run(one_thread(), scenario)
    assert answers == [[2], [4]] and servable.batches == [2]
    assert [part[0] for part in record.parts] == ["queue", "batch", "model"]
    (_, _, queue_end, _, _), (_, batch_start, batch_end, attributes, _), model = record.parts
    assert queue_end == batch_start <= model[1] <= model[2] <= batch_end
    assert attributes["batch.requests"] == attributes["batch.rows"] == 2
    assert model[4] == [record]


def test_signature_with_fixed_batch_size_is_not_merged():
    async def scenario(scheduler, servable):
        return await asyncio.gather(*(ask(scheduler, servable, [i], (1,)) for i in range(3)))

    servable, answers = run(one_thread(), scenario)
    assert servable.batches == [1, 1, 1] and answers == [[0], [2], [4]]


def test_batch_is_padded_to_an_allowed_size():
    async def scenario(scheduler, servable):
        return await asyncio.gather(*(ask(scheduler, servable, [i]) for i in range(3)))

    parameters = one_thread(max_batch_size=16, allowed_batch_sizes=(2, 4, 16))
    servable, answers = run(parameters, scenario)
    assert servable.batches == [4] and answers == [[0], [2], [4]]


MANY = [1.0] * 8192  # larger than a small request


def test_large_and_small_requests_take_turns():
    gate = threading.Event()

    async def scenario(scheduler, servable):
        first = asyncio.create_task(ask(scheduler, servable, [0]))
        while not servable.batches:
            await asyncio.sleep(0.001)
        waiting = [asyncio.create_task(ask(scheduler, servable, MANY)) for _ in range(4)]
        await asyncio.sleep(0.01)
        waiting += [asyncio.create_task(ask(scheduler, servable, [1]))]
        await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(first, *waiting)

    servable, _ = run(one_thread(max_batch_size=len(MANY)), scenario, gate)
    assert servable.batches == [1, len(MANY), 1] + [len(MANY)] * 3


def test_large_requests_leave_a_thread_to_small_ones():
    gate = threading.Event()

    class Slow(FakeServable):
        def run(self, signature, inputs, outputs):
            if len(inputs["x"]) > 1:
                assert gate.wait(5)
            return super().run(signature, inputs, outputs)

    async def main():
        scheduler = Scheduler(num_threads=2)
        servable = Slow(BatchingParameters(max_batch_size=len(MANY)))
        try:
            await ask(scheduler, servable, [0])
            large = [asyncio.create_task(ask(scheduler, servable, MANY)) for _ in range(3)]
            for value in range(5):  # each gets a reply before the large ones
                await asyncio.wait_for(ask(scheduler, servable, [value]), 2)
            assert not any(task.done() for task in large)
            gate.set()
            await asyncio.gather(*large)
        finally:
            gate.set()
            scheduler.close()

    asyncio.run(main())


def test_request_larger_than_a_batch_is_refused_or_split():
    async def scenario(scheduler, servable):
        return await ask(scheduler, servable, list(range(10)))

    with pytest.raises(ServingError, match="10 rows is larger") as refusal:
        run(one_thread(max_batch_size=4), scenario)
    assert refusal.value.code == "INVALID_ARGUMENT"
    splitting = {"enable_large_batch_splitting": True, "max_execution_batch_size": 3}
    servable, answer = run(one_thread(max_batch_size=4, **splitting), scenario)
    assert answer == [2.0 * i for i in range(10)] and servable.batches == [3, 3, 3, 1]


def test_full_queue_is_unavailable():
    gate = threading.Event()

    async def scenario(scheduler, servable):
        first = asyncio.create_task(ask(scheduler, servable, [0]))
        while not servable.batches:
            await asyncio.sleep(0.001)
        rest = [asyncio.create_task(ask(scheduler, servable, [1])) for _ in range(7)]
        await asyncio.sleep(0.01)
        gate.set()
        return await asyncio.gather(first, *rest, return_exceptions=True)

    servable, answers = run(one_thread(max_batch_size=2, max_enqueued_batches=2), scenario, gate)
    refused = [a.code for a in answers if isinstance(a, ServingError)]
    assert refused == ["UNAVAILABLE"] * 3 and servable.batches == [1, 2, 2]
    assert servable.users == 0


def test_lone_client_does_not_wait():
    patience = 0.5

    async def scenario(scheduler, servable):
        start = time.monotonic()
        for value in range(5):
            await ask(scheduler, servable, [value])
        return time.monotonic() - start

    _, seconds = run(one_thread(batch_timeout_micros=int(patience * 1e6)), scenario)
    assert seconds < patience


def test_batch_waits_for_the_usual_number_of_requests():
    async def scenario(scheduler, servable):
        await asyncio.gather(*(ask(scheduler, servable, [i]) for i in range(3)))
        tasks = []
        for value in range(3):  # the same three clients, one after another
            tasks.append(asyncio.create_task(ask(scheduler, servable, [value])))
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)

    servable, _ = run(one_thread(batch_timeout_micros=2_000_000), scenario)
    assert servable.batches == [3, 3]


def test_batch_stops_waiting_when_no_request_arrives():
    async def scenario(scheduler, servable):
        await asyncio.gather(*(ask(scheduler, servable, [i]) for i in range(3)))
        start = time.monotonic()
        await ask(scheduler, servable, [3])  # the other clients send nothing
        waited = time.monotonic() - start
        await ask(scheduler, servable, [4])
        return waited, time.monotonic() - start - waited

    servable, (first, second) = run(one_thread(batch_timeout_micros=3_000_000), scenario)
    assert servable.batches == [3, 1, 1]
    assert 0.5 < first < 2.5 and second < 0.5


def test_cancelled_request_does_not_run():
    gate = threading.Event()

    async def scenario(scheduler, servable):
        first = asyncio.create_task(ask(scheduler, servable, [0]))
        while not servable.batches:
            await asyncio.sleep(0.001)
        gone = asyncio.create_task(ask(scheduler, servable, [1]))
        stays = asyncio.create_task(ask(scheduler, servable, [2]))
        await asyncio.sleep(0.01)
        gone.cancel()
        first.cancel()
        gate.set()
        return await stays

    servable, answer = run(one_thread(), scenario, gate)
    assert answer == [4.0] and servable.batches == [1, 1] and servable.users == 0


def test_event_loop_is_free_while_a_model_runs():
    gate = threading.Event()

    async def scenario(scheduler, servable):
        task = asyncio.create_task(ask(scheduler, servable, [1]))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not task.done()
        gate.set()
        return await task

    run(one_thread(), scenario, gate)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_batch_size": 0},
        {"num_batch_threads": 0},
        {"max_enqueued_batches": -1},
        {"batch_timeout_micros": -1},
        {"max_execution_batch_size": -1},
        {"allowed_batch_sizes": (1, 2)},
        {"allowed_batch_sizes": (2, 1, 1000)},
    ],
)
def test_invalid_parameters_are_refused(changes):
    with pytest.raises(ValueError, match="received"):
        BatchingParameters(**changes)
