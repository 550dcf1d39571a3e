"""Processes that read and write beside the server."""

import asyncio
import gc
import os
import pickle
import signal
import weakref
from pathlib import Path

import numpy as np
import pytest

from serving.errors import ServingError, TooLarge
from serving.server import bodies, json_replies
from serving.server.workers import Workers

DTYPES = {"": {"x": np.dtype("float32")}}


def run(scenario):
    """Runs a scenario with two workers."""

    async def whole():
        workers = Workers(2)
        try:
            return await scenario(workers)
        finally:
            workers.close()

    return asyncio.run(whole())


def test_arrays_and_errors_come_back():
    async def scenario(workers):
        body = b'{"instances": [[1, 2], [3, 4.5]]}'
        name, arrays, rows = await workers.call(bodies.read_predict, body, "", 99, None, DTYPES)
        assert (name, rows) == ("", True)
        np.testing.assert_array_equal(arrays["x"], np.float32([[1, 2], [3, 4.5]]))
        reply = await workers.call(json_replies.predictions, arrays, True)
        assert bytes(reply) == b'{"predictions": [[1.0,2.0],[3.0,4.5]]}'
        with pytest.raises(ServingError, match="JSON Parse error") as refusal:
            await workers.call(bodies.read_predict, b"{", "", 99, None, DTYPES)
        assert refusal.value.code == "INVALID_ARGUMENT"
        with pytest.raises(TooLarge, match="larger than 3 bytes"):
            packed = __import__("gzip").compress(body)
            await workers.call(bodies.read_predict, packed, "gzip", 3, None, DTYPES)

    run(scenario)


def test_one_that_ends_is_replaced():
    async def scenario(workers):
        workers.start()
        for worker in workers._idle:
            os.kill(worker.process.pid, signal.SIGKILL)
            worker.process.wait()
        for _ in range(2):
            with pytest.raises(ServingError) as refusal:
                await workers.call(json_replies.predictions, {}, False)
            assert refusal.value.code == "UNAVAILABLE"
        ones = {"x": np.ones(3, np.int64)}
        answers = [workers.call(json_replies.predictions, ones, True) for _ in range(8)]
        assert {bytes(each) for each in await asyncio.gather(*answers)} == {
            b'{"predictions": [1,1,1]}'
        }

    run(scenario)


def test_readers_are_found_from_any_folder(tmp_path, monkeypatch):
    """With the package in the working directory only, they were dead in another one."""
    monkeypatch.chdir(tmp_path)

    async def scenario(workers):
        workers.start()
        folders = {os.readlink(f"/proc/{worker.process.pid}/cwd") for worker in workers._idle}
        assert folders == {str(Path(bodies.__file__).parents[2])}
        assert await workers.call(json_replies.predictions, {"x": np.ones(1)}, True)

    run(scenario)


def test_a_refused_body_is_not_kept():
    """The traceback of an error held the body it was about, until the collector came by."""

    class Body(bytearray):
        pass

    async def scenario(workers):
        body = Body(b"{" * 1000)
        held = weakref.ref(body)
        with pytest.raises(ServingError):
            packed = pickle.PickleBuffer(body)
            await workers.call(bodies.read_predict, packed, "", 9999, None, DTYPES)
        del body, packed
        assert held() is None

    gc.disable()
    try:
        run(scenario)
    finally:
        gc.enable()
