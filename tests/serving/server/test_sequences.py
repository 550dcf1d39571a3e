"""Sequences, whose state the server stores: every rule, limit and error, over both protocols."""

import asyncio
import contextlib
import dataclasses
import json
import shutil
import subprocess
import sys
import threading
import time
import types
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rrl_tf.envs import SeededVectorEnv, doorkey_task
from rrl_tf.export import load_policy
from rrl_tf.pretrained import pretrained_folder
from serving import windows
from serving.client import ServingError, connect
from serving.errors import invalid
from serving.local import served
from serving.server import Flags, running
from serving.server.metrics import Metrics
from serving.server.model import Signature, TensorSpec
from serving.server.sequences import (
    SequenceParameters,
    SequenceStore,
    read_metadata,
    read_parameters,
)
from serving.sessions import MemorySession, WindowSession

pytestmark = pytest.mark.tf_only


def at(server, scheme="http", model="tiny"):
    port = server.grpc_port if scheme == "grpc" else server.rest_port
    return connect(f"{scheme}://127.0.0.1:{port}", model)


def refused(call, *arguments, **keywords):
    """Return (code, message) of a call that must fail."""
    with pytest.raises(ServingError) as error:
        call(*arguments, **keywords)
    return error.value.code, error.value.message


def store_of(server):
    return server._inference._sequences


def gauges(metrics):
    """Return (number of sequences, bytes of their states)."""
    families = metrics.collect()
    names = (":tensorflow:serving:sequences", ":tensorflow:serving:sequence_bytes")
    return tuple(families[name]["samples"][f"{name}{{}}"] for name in names)


def num_sequences(server):
    return gauges(server._inference.metrics)[0]


@pytest.fixture(scope="module", params=["grpc", "http"])
def remembering(request, recurrent, tools):
    """A server of a recurrent policy that merges requests, and a client."""
    with (
        tools.serve(recurrent, enable_batching=True) as server,
        at(server, request.param) as client,
    ):
        yield types.SimpleNamespace(server=server, client=client, scheme=request.param)


@pytest.fixture
def step(remembering, tools):
    """Function that sends a step of a sequence and returns its outputs."""

    def step(name, seed=0, rows=1, signature="act", more=(), **flags):
        parameters = {f"sequence_{flag}": True for flag in flags}
        inputs = {"observation": tools.observations(rows, seed), **dict(more)}
        return remembering.client.predict(
            inputs, signature, sequence={"sequence_id": name, **parameters}
        )

    yield step
    assert not store_of(remembering.server)._busy


def expected_steps(recurrent, tools, seeds):
    """Return the outputs of an episode in this process."""
    policy, outputs = load_policy(recurrent / "1"), []
    memory = policy.predict({"batch_size": np.int32(1)}, "initial_memory")["memory"]
    for seed in seeds:
        inputs = {"observation": tools.observations(1, seed), "memory": memory}
        outputs.append(policy.predict(inputs, "act"))
        memory = outputs[-1]["next_memory"]
    policy.close()
    return outputs


def test_a_sequence_equals_an_episode_in_process(remembering, step, recurrent, tools):
    before = num_sequences(remembering.server)
    expected = expected_steps(recurrent, tools, range(5))
    for seed, outputs in enumerate(expected):
        flags = {0: {"start": 1}, 4: {"end": 1}}.get(seed, {})
        found = step("episode", seed, **flags)
        assert found.keys() == {"action", "q_values"}
        np.testing.assert_allclose(found["q_values"], outputs["q_values"], rtol=1e-4, atol=1e-5)
        assert num_sequences(remembering.server) == before + (seed < 4)
    assert refused(step, "episode", 5)[0] == "NOT_FOUND"


def test_a_sequence_of_one_step_leaves_nothing(remembering, step):
    before = num_sequences(remembering.server)
    step("single", start=1, end=1)
    assert num_sequences(remembering.server) == before
    step("single", start=1, end=1)


def test_numbers_and_strings_name_the_same_sequence(step):
    first = step(70, start=1)
    step("70", end=1)
    np.testing.assert_array_equal(first["q_values"], step(70, start=1, end=1)["q_values"])


def test_attention_has_the_same_state(step, recurrent, tools):
    expected = expected_steps(recurrent, tools, range(3))
    step("attention", 0, start=1)
    assert "attention_block_1" in step("attention", 1, signature="act_with_attention")
    found = step("attention", 2, end=1)
    np.testing.assert_allclose(found["q_values"], expected[2]["q_values"], rtol=1e-4, atol=1e-5)


def test_a_state_moves_to_another_sequence(remembering, step, recurrent, tools):
    expected = expected_steps(recurrent, tools, range(4))
    step("old", 0, start=1)
    step("old", 1)
    state = remembering.client.predict({}, "sequence_state", sequence={"sequence_id": "old"})
    np.testing.assert_allclose(state["memory"], expected[1]["next_memory"], rtol=1e-4, atol=1e-5)
    step("new", 2, start=1, more=state)
    for name in ("new", "old"):  # the export has not changed the old one
        if name == "old":
            step("old", 2)
        found = step(name, 3, end=1)
        np.testing.assert_allclose(found["q_values"], expected[3]["q_values"], rtol=1e-4, atol=1e-5)


def test_refused_steps_change_nothing(remembering, step, recurrent, tools):
    expected = expected_steps(recurrent, tools, range(2))
    before = num_sequences(remembering.server)
    code, message = refused(step, "unknown")
    assert code == "NOT_FOUND" and "'unknown'" in message and "sequence_start" in message
    step("mine", 0, start=1)
    memory = {"memory": np.zeros_like(expected[0]["next_memory"])}
    for name, changes, code, words in (
        ("mine", {"start": 1}, "ALREADY_EXISTS", "has already started"),
        ("mine", {"rows": 2}, "INVALID_ARGUMENT", "rows of the first one"),
        ("mine", {"more": memory}, "INVALID_ARGUMENT", "only the first step"),
        ("mine", {"more": {"observation": np.zeros((1, 2), np.uint8)}}, "INVALID_ARGUMENT", ""),
        ("mine", {"more": {"observation": np.zeros((1, 3, 3, 2))}}, "INVALID_ARGUMENT", ""),
        ("new", {"start": 1, "more": {"memory": np.zeros((1, 3), np.float32)}}, *INVALID_SHAPE),
        ("new", {"start": 1, "more": {"memory": np.full_like(memory["memory"], np.nan)}}, *NAN),
        ("new", {"start": 1, "rows": 4097}, "RESOURCE_EXHAUSTED", "at most 4096 rows"),
        ("", {"start": 1}, "INVALID_ARGUMENT", "sequence_id must be"),
        ("a\tb", {"start": 1}, "INVALID_ARGUMENT", "sequence_id must be"),
        ("a" * 129, {"start": 1}, "INVALID_ARGUMENT", "sequence_id must be"),
    ):
        if name == "a\tb" and remembering.scheme == "grpc":
            continue  # gRPC itself refuses such metadata
        found, message = refused(step, name, 1, **changes)
        assert found == code and words in message
    for signature in ("initial_memory", "no_such"):
        code, _ = refused(step, "mine", 1, signature=signature)
        assert code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION")
    assert num_sequences(remembering.server) == before + 1
    found = step("mine", 1, end=1)
    np.testing.assert_allclose(found["q_values"], expected[1]["q_values"], rtol=1e-4, atol=1e-5)


INVALID_SHAPE = "INVALID_ARGUMENT", "input 'memory' has shape"
NAN = "INVALID_ARGUMENT", "not finite"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"other": 1}, None),
        ({"sequence_id": 7}, ("7", False, False)),
        ({"sequence_id": "x", "sequence_start": True}, ("x", True, False)),
        ({"sequence_id": "x", "sequence_end": "true", "sequence_start": "false"}, ("x", False, 1)),
    ],
)
def test_parameters(given, expected):
    assert read_parameters(given) == expected
    assert read_metadata(given.items()) == expected


@pytest.mark.parametrize(
    "given",
    [
        *({"sequence_id": wrong} for wrong in ("", None, 1.5, True, [1], {"a": 1}, "é", "a\n")),
        *({"sequence_id": 1, "sequence_start": wrong} for wrong in ("yes", None, 2, [True])),
        {"sequence_start": True},
        {"sequence_end": False},
    ],
)
def test_invalid_parameters(given):
    assert refused(read_parameters, given)[0] == "INVALID_ARGUMENT"


def test_repeated_metadata_is_refused():
    assert "repeats" in refused(read_metadata, [("sequence_id", "a"), ("sequence_id", "a")])[1]


def post(server, document):
    address = f"http://127.0.0.1:{server.rest_port}/v1/models/tiny:predict"
    try:
        with urllib.request.urlopen(address, json.dumps(document).encode(), timeout=30) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["error"]


def test_rows_and_columns_over_rest(remembering, tools):
    rows = tools.observations(2).tolist()
    first = {"sequence_id": "rest", "sequence_start": True}
    named = {"instances": [{"observation": row} for row in rows]}
    status, reply = post(remembering.server, {**named, **first})
    assert status == 200 and reply["predictions"][0].keys() == {"action", "q_values"}
    status, _ = post(remembering.server, {"inputs": {"observation": rows}, "sequence_id": "rest"})
    assert status == 200
    for body, words in (
        ({"instances": [{"observation": rows[0], "x": 1}]}, "received ['observation', 'x']"),
        ({"instances": rows}, "must be objects"),
        ({"inputs": {"x": rows}}, "missing but required: ['observation']"),
        ({"inputs": {}, "signature_name": 3}, "signature_name"),
    ):
        status, message = post(remembering.server, {**body, "sequence_id": "rest"})
        assert status == 400 and words in message
    end = {"sequence_id": "rest", "sequence_end": True, "signature_name": "sequence_state"}
    status, reply = post(remembering.server, {"inputs": {}, **end})
    assert status == 200 and np.shape(reply["outputs"])[0] == 2
    status, message = post(remembering.server, {"inputs": {}, **end})
    assert status == 404 and "does not exist" in message


def test_a_policy_without_state_has_no_sequences(server, tools):
    for scheme in ("grpc", "http"):
        with at(server, scheme) as client:
            inputs = {"observation": tools.observations(1)}
            sequence = {"sequence_id": 1, "sequence_start": True}
            code, message = refused(client.predict, inputs, "act", sequence=sequence)
            assert code == "INVALID_ARGUMENT" and "has no state" in message
            client.predict(inputs, "act")
    assert num_sequences(server) == 0


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_bad_step_delays_and_changes_no_other_sequence(recurrent, tools, scheme):
    """Valid and invalid steps of many sequences merge into the same batches."""
    expected = expected_steps(recurrent, tools, range(4))
    errors = []
    with tools.serve(recurrent, enable_batching=True) as server, at(server, scheme) as client:

        def play(index):
            sequence, wrong = {"sequence_id": index}, {"observation": np.zeros((1, 2), np.uint8)}
            for seed in range(4):
                start = {"sequence_start": True} if seed == 0 else {}
                if index % 2:
                    errors.append(refused(client.predict, wrong, "act", sequence=sequence)[0])
                    errors.append(
                        refused(client.predict, {}, "act", sequence={**sequence, **start})[0]
                    )
                    continue
                inputs = {"observation": tools.observations(1, seed)}
                found = client.predict(inputs, "act", sequence={**sequence, **start})
                np.testing.assert_allclose(
                    found["q_values"], expected[seed]["q_values"], rtol=1e-4, atol=1e-5
                )

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(play, range(16)))
        assert num_sequences(server) == 8
    assert set(errors) <= {"INVALID_ARGUMENT", "NOT_FOUND"} and len(errors) == 64


@pytest.fixture
def store():
    """Function that makes a store and a model whose memory counts the steps."""
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        yield lambda **changes: CountingStore(loop, **changes)


class CountingStore:
    """A store with a model that adds 1 to its memory of 8 bytes, and returns the memory as `y`."""

    def __init__(self, loop, **changes):
        self.wait, self._metrics = loop.run_until_complete, Metrics()
        flags = Flags(model_base_path="/m", **changes)
        self.store = SequenceStore(flags, self._metrics)
        memory, row = TensorSpec("memory", 1, (None, 2)), TensorSpec("x", 1, (None,))
        act = Signature("act", {"x": row, "memory": memory}, {"next_memory": memory, "y": row}, {})
        self.signatures = {
            "act": act,
            "initial_memory": Signature("initial_memory", {}, {"memory": memory}, {}),
        }
        self.name, self.version = "m", 1
        self.delay, self.error, self.growth = 0.0, None, 0

    def signature(self, name, in_sequence=False):
        found = self.signatures[name]
        return found.step if in_sequence else found

    async def run(self, signature, inputs):
        if signature.name == "initial_memory":
            return {"memory": np.zeros((int(inputs["batch_size"]), 2), np.float32)}
        await asyncio.sleep(self.delay)
        if self.error is not None:
            raise self.error
        memory = inputs["memory"]
        longer = np.pad(memory + 1, ((0, 0), (0, self.growth)))
        return {"next_memory": longer, "y": memory[:, 0]}

    async def request(self, name, *flags, signature="act", output_filter=(), **more):
        parameters = SequenceParameters(name, "start" in flags, "end" in flags)
        x = {} if "observation" in more else {"x": np.zeros(1, np.float32)}
        inputs = {**x, **more} if signature == "act" else {}
        arguments = (self, signature, inputs, parameters, output_filter, self.run)
        _, outputs = await self.store.request(*arguments)
        return outputs

    def step(self, *arguments, **keywords):
        """Return the number of earlier steps."""
        return int(self.wait(self.request(*arguments, **keywords))["y"][0])

    @property
    def gauges(self):
        return gauges(self._metrics)


def wider(act, size):
    """Return a signature with a memory of another size."""
    spec = TensorSpec("memory", 1, (None, size))
    inputs, outputs = {**act.inputs, "memory": spec}, {**act.outputs, "next_memory": spec}
    return dataclasses.replace(act, inputs=inputs, outputs=outputs)


def test_full_store_refuses_new_sequences(store):
    full = store(max_sequences=2)
    full.step("a", "start"), full.step("b", "start")
    code, message = refused(full.step, "c", "start")
    assert code == "RESOURCE_EXHAUSTED" and "at most 2 sequences" in message
    assert [full.step(name) for name in "abab"] == [1, 1, 2, 2]
    assert full.step("c", "start", "end") == 0  # ends at once, so it is not stored
    full.step("a", "end")
    assert full.step("c", "start") == 0 and full.gauges == (2, 16)


def test_full_store_evicts_the_sequence_that_was_used_longest_ago(store):
    full = store(max_sequences=2, sequence_overflow="evict_oldest")
    full.step("a", "start"), full.step("b", "start"), full.step("a")
    assert full.step("c", "start") == 0
    assert refused(full.step, "b")[0] == "NOT_FOUND"
    assert (full.step("a"), full.step("c"), full.gauges) == (2, 1, (2, 16))


@pytest.mark.parametrize("policy", ["refuse", "evict_oldest"])
def test_a_server_without_sequences_refuses_each(store, policy):
    off = store(max_sequences=0, sequence_overflow=policy)
    assert refused(off.step, "a", "start")[0] == "RESOURCE_EXHAUSTED"
    assert off.gauges == (0, 0)


def test_bytes_of_states_are_limited(store):
    full = store(max_sequence_bytes=20)
    full.step("a", "start"), full.step("b", "start")
    assert refused(full.step, "c", "start")[0] == "RESOURCE_EXHAUSTED"
    assert full.gauges == (2, 16)
    evicting = store(max_sequence_bytes=20, sequence_overflow="evict_oldest")
    for name in "abcd":
        evicting.step(name, "start")
    assert evicting.gauges == (2, 16) and evicting.step("d") == 1
    large = np.zeros((1, 9), np.float32)
    evicting.signatures["act"] = wider(evicting.signatures["act"], 9)
    assert refused(evicting.step, "e", "start", memory=large)[0] == "RESOURCE_EXHAUSTED"
    assert evicting.gauges == (2, 16)  # a state beyond the limit evicts no other
    unlimited = store(max_sequence_bytes=0)
    for name in "abcd":
        unlimited.step(name, "start")
    assert unlimited.gauges == (4, 32)


def test_a_state_that_grows_is_limited(store):
    growing = store(max_sequence_bytes=20)
    growing.step("a", "start")
    growing.growth = 2
    assert growing.step("a") == 1 and growing.gauges == (1, 16)
    assert refused(growing.step, "a")[0] == "RESOURCE_EXHAUSTED"
    assert growing.gauges == (1, 16)
    growing.growth = 0
    assert growing.step("a") == 2


def test_idle_sequences_end(store):
    short = store(sequence_idle_seconds=0.2)
    short.step("a", "start"), short.step("b", "start")
    for _ in range(3):  # a stays in use
        short.wait(asyncio.sleep(0.1))
        short.step("a")
    assert short.gauges == (1, 8)
    assert refused(short.step, "b")[0] == "NOT_FOUND"
    short.wait(asyncio.sleep(0.3))  # without any request
    assert short.gauges == (0, 0)
    short.step("b", "start")
    short.wait(asyncio.sleep(0.3))
    assert short.gauges == (0, 0)


def test_a_step_longer_than_the_time_out_keeps_its_sequence(store):
    slow = store(sequence_idle_seconds=0.1)
    slow.step("a", "start")
    slow.delay = 0.3
    assert slow.step("a") == 1
    assert slow.gauges == (1, 8)


def test_two_steps_at_once(store):
    slow = store()
    slow.step("a", "start")
    slow.delay = 0.1

    async def both():
        return await asyncio.gather(
            slow.request("a"), slow.request("a"), slow.request("b", "start"),
            slow.request("b", "start"), return_exceptions=True,
        )  # fmt: skip

    first, second, third, fourth = slow.wait(both())
    assert first["y"] == 1 and third["y"] == 0
    assert [error.code for error in (second, fourth)] == ["ABORTED", "ABORTED"]
    assert slow.step("a") == 2 and slow.step("b") == 1


def test_starts_at_once_leave_no_more_than_the_limit(store):
    slow = store(max_sequences=3)
    slow.delay = 0.05

    async def start_all():
        requests = (slow.request(str(index), "start") for index in range(8))
        return await asyncio.gather(*requests, return_exceptions=True)

    results = slow.wait(start_all())
    assert sum(isinstance(result, dict) for result in results) == 3 == slow.gauges[0]


def test_a_failed_or_cancelled_step_can_be_repeated(store):
    failing = store()
    failing.step("a", "start")
    failing.error = invalid("no")
    assert refused(failing.step, "a", "end")[0] == "INVALID_ARGUMENT"
    assert refused(failing.step, "b", "start")[0] == "INVALID_ARGUMENT"
    failing.error, failing.delay = None, 5.0

    async def cancelled():
        for request in (failing.request("a"), failing.request("b", "start")):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(request, 0.05)

    failing.wait(cancelled())
    failing.delay = 0.0
    assert failing.gauges == (1, 8)
    assert failing.step("a") == 1 and failing.step("b", "start") == 0


def test_an_export_can_end_a_sequence(store):
    one = store()
    one.step("a", "start")
    kept = one.wait(one.request("a", signature="sequence_state"))
    assert kept["memory"].tolist() == [[1, 1]] and one.step("a") == 1
    ended = one.wait(one.request("a", "end", signature="sequence_state"))
    assert ended["memory"].tolist() == [[2, 2]] and one.gauges == (0, 0)
    assert one.step("b", "start", **ended) == 2
    for flags in ((), ("start",)):
        code, _ = refused(one.wait, one.request("no", *flags, signature="sequence_state"))
        assert code == "NOT_FOUND"


def test_an_output_filter_is_checked_before_the_step(store):
    one = store()
    one.step("a", "start")
    assert refused(one.step, "a", output_filter=["next_memory"])[0] == "INVALID_ARGUMENT"
    assert one.step("a", output_filter=["y"]) == 1


def test_a_version_with_the_same_state_continues(store):
    one = store()
    one.step("a", "start")
    one.version = 2
    assert one.step("a") == 1
    one.version = 1
    assert one.step("a") == 2


def test_a_version_with_another_state_ends_the_sequence(store):
    one = store()
    one.step("a", "start"), one.step("b", "start")
    one.signatures["act"] = wider(one.signatures["act"], 3)
    code, message = refused(one.step, "a")  # another signature of the same version
    assert code == "INVALID_ARGUMENT" and "different state" in message
    one.version = 2
    code, message = refused(one.step, "a")
    assert code == "NOT_FOUND" and "version 2 of model 'm' cannot continue it after" in message
    assert "does not exist" in refused(one.step, "a")[1]
    assert one.gauges == (1, 8)


def test_a_version_that_rejects_the_state_ends_the_sequence(store):
    one = store()
    one.step("a", "start")
    one.error = invalid("memory of another policy")
    assert refused(one.step, "a") == ("INVALID_ARGUMENT", "memory of another policy")
    one.version = 2
    code, message = refused(one.step, "a")
    assert code == "NOT_FOUND" and "memory of another policy" in message
    assert one.gauges == (0, 0)


def test_several_processes_have_no_sequences(store):
    assert refused(store(num_processes=2).step, "a", "start")[0] == "UNIMPLEMENTED"


def test_models_have_their_own_sequences(store):
    one = store()
    one.step("a", "start")
    one.name = "other"
    assert refused(one.step, "a")[0] == "NOT_FOUND"
    assert one.step("a", "start") == 0 and one.gauges == (2, 16)


@pytest.mark.parametrize("reloads", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_reloads_during_play_lose_no_sequence(recurrent, tools, tmp_path, reloads):
    shutil.copytree(recurrent / "1", tmp_path / "1")
    with tools.serve(tmp_path, enable_batching=True) as server:
        versions = server.repository.models["tiny"]
        with at(server, "grpc") as client, ThreadPoolExecutor(8) as pool:
            over = threading.Event()

            def play(index):
                session, steps = MemorySession(client, state="server"), 0
                mirror = MemorySession(client)
                while not over.is_set() or steps < 5:
                    raw = tools.observations(1, index + steps)[0]
                    assert session.act(raw) == mirror.act(raw)
                    steps += 1
                return steps

            playing = [pool.submit(play, index) for index in range(8)]
            for number in range(2, 2 + reloads):
                shutil.copytree(recurrent / "1", tmp_path / ".whole")
                (tmp_path / ".whole").rename(tmp_path / str(number))
                end = time.monotonic() + 60
                while versions.available != [number]:
                    assert time.monotonic() < end
                    time.sleep(0.02)
            over.set()
            assert min(future.result() for future in playing) >= 5
        assert num_sequences(server) == 8


def test_metrics_page_has_the_gauges(recurrent, tools, tmp_path):
    config = tmp_path / "monitoring.config"
    config.write_text("prometheus_config { enable: true }")
    with (
        tools.serve(recurrent, monitoring_config_file=str(config)) as server,
        at(server) as client,
    ):
        MemorySession(client, state="server").act(tools.observations(1)[0])
        path = "monitoring/prometheus/metrics"
        with urllib.request.urlopen(f"http://127.0.0.1:{server.rest_port}/{path}") as reply:
            page = reply.read().decode()
    assert "# TYPE :tensorflow:serving:sequences gauge\n:tensorflow:serving:sequences{} 1.0" in page
    assert ":tensorflow:serving:sequence_bytes{} " in page


def test_a_window_is_kept(tools):
    """The packaged Decision Transformer, with and without a target return."""
    flags = Flags(preset="dt-doorkey", port=0, rest_api_port=tools.free_port())
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 3, (40, 7, 7, 4)).astype("uint8")
    rewards = rng.normal(size=40)
    with running(flags) as server:
        for scheme, target in (("grpc", None), ("http", 0.9)):
            with at(server, scheme, "dt-doorkey") as client:
                here, there = (
                    WindowSession(client, target, state=state) for state in ("client", "server")
                )
                for index, (observation, reward) in enumerate(zip(raw, rewards)):
                    actions = {s.act(observation, reward) for s in (here, there)}
                    assert len(actions) == 1
                    if index == 25:
                        here.reset()
                        there.reset()
                exported = there._take_state()
                for name, values in here._state.items():
                    np.testing.assert_array_equal(exported[name], values)
                inputs = {"observation": raw[:1], "reward": np.zeros(1, np.float32)}
                some = {"mask": exported["mask"]}
                for more, words in ((some, "a state has"), ({"reward": raw[0]}, "reward")):
                    sequence = {"sequence_id": "w", "sequence_start": True}
                    code, message = refused(
                        client.predict, {**inputs, **more}, "act", sequence=sequence
                    )
                    assert code == "INVALID_ARGUMENT" and words in message
        assert num_sequences(server) == 0


@pytest.mark.parametrize(("rows", "is_large"), [(1, False), (2000, True)])
def test_large_windows_are_copied_and_checked_in_another_thread(store, monkeypatch, rows, is_large):
    axes = {"states": (2,), "actions": (1,), "returns_to_go": (1,), "timesteps": (), "mask": ()}
    specs = {name: TensorSpec(name, 1, (None, 3, *more)) for name, more in axes.items()}
    many, threads = store(), []
    action = TensorSpec("action", 1, (None, 1))
    many.signatures = {"act": Signature("act", specs, {"action": action}, {})}

    async def run(signature, inputs):
        return {"action": inputs["states"][:, -1, :1]}

    many.run = run
    for name in ("append_step", "set_action"):
        function = getattr(windows, name)

        def noted(*arguments, function=function):
            threads.append(threading.current_thread() is not threading.main_thread())
            return function(*arguments)

        monkeypatch.setattr(windows, name, noted)
    numbers = np.zeros(rows, np.float32)
    inputs = {"observation": np.ones((rows, 2), np.float32), "reward": numbers}
    many.wait(many.request("w", "start", **inputs, target_return=numbers))
    assert threads == [is_large, is_large]


@pytest.mark.slow  # it plays 100,000 steps
def test_100_000_actions_equal_those_in_process():
    """Ten clients play ten environments each, in batches that the server merges."""
    folder, clients, size, steps = pretrained_folder("doorkey-8x8") / "policy", 10, 10, 1000
    policy = load_policy(folder)
    with served(folder, "tiny", "--enable_batching") as addresses:

        def play(index):
            with connect(addresses[index % 2], "tiny", timeout=120.0) as client:
                there, here = (
                    MemorySession(client, size, state="server"),
                    MemorySession(policy, size),
                )
                envs = SeededVectorEnv(doorkey_task((8,)).make_env, num_envs=size, seed=index)
                observations, _ = envs.reset()
                rewards, new = np.zeros(size), np.zeros(size, bool)
                for _ in range(steps):
                    here.reset(new)
                    there.reset(new)
                    actions = here.act(observations, rewards)
                    np.testing.assert_array_equal(there.act(observations, rewards), actions)
                    observations, rewards, terminated, truncated, _ = envs.step(actions)
                    new = terminated | truncated
                envs.close()
                there.reset()
                return steps * size

        with ThreadPoolExecutor(clients) as pool:
            assert sum(pool.map(play, range(clients))) == 100_000
    policy.close()


CLIENT = """
import sys
import numpy as np
from serving.client import connect
from serving.sessions import MemorySession

client = connect(sys.argv[1], "tiny")
sessions = [MemorySession(client, state="server") for _ in range(20)]
while True:
    for session in sessions:
        session.act(np.zeros((3, 3, 2), np.uint8))
    print("played", flush=True)
"""


@pytest.mark.slow  # it starts processes
def test_a_killed_client_leaves_nothing_after_the_time_out(recurrent, tools):
    with tools.serve(recurrent, sequence_idle_seconds=2.0) as server:
        address = f"http://127.0.0.1:{server.rest_port}"
        for _ in range(2):  # the client restarts
            command = [sys.executable, "-c", CLIENT, address]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
                client.stdout.readline()
                client.kill()
            assert num_sequences(server) == 20
            time.sleep(3.0)
            assert gauges(server._inference.metrics) == (0, 0)
