"""Worker processes."""

import asyncio
import gc
import os
import signal
import weakref
from pathlib import Path

import numpy as np
import pytest

from serving.errors import ServingError
from serving.server import json_codec
from serving.server.workers import Workers

DTYPES = {"": {"x": np.dtype("float32")}}


def run(scenario):
    """Run a scenario with two workers."""

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
        name, arrays, rows, _ = await workers.call(json_codec.read_predict, body, "", 99, DTYPES)
        assert (name, rows) == ("", True)
        np.testing.assert_array_equal(arrays["x"], np.float32([[1, 2], [3, 4.5]]))
        reply = await workers.call(json_codec.predict_reply, arrays, True)
        assert reply == b'{"predictions":[[1.0,2.0],[3.0,4.5]]}'
        with pytest.raises(ServingError, match="JSON Parse error") as refusal:
            await workers.call(json_codec.read_predict, b"{", "", 99, DTYPES)
        assert refusal.value.code == "INVALID_ARGUMENT"
        with pytest.raises(ServingError, match="larger than 3 bytes"):
            packed = __import__("gzip").compress(body)
            await workers.call(json_codec.read_predict, packed, "gzip", 3, DTYPES)

    run(scenario)


def test_ended_worker_is_replaced():
    async def scenario(workers):
        for worker in workers._idle:
            os.kill(worker.process.pid, signal.SIGKILL)
            worker.process.wait()
        for _ in range(2):
            with pytest.raises(ServingError) as refusal:
                await workers.call(json_codec.predict_reply, {}, False)
            assert refusal.value.code == "UNAVAILABLE"
        ones = {"x": np.ones(3, np.int64)}
        answers = [workers.call(json_codec.predict_reply, ones, True) for _ in range(8)]
        assert set(await asyncio.gather(*answers)) == {b'{"predictions":[1,1,1]}'}

    run(scenario)


def test_workers_start_in_any_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def scenario(workers):
        folders = {os.readlink(f"/proc/{worker.process.pid}/cwd") for worker in workers._idle}
        assert folders == {str(Path(json_codec.__file__).parents[2])}
        assert await workers.call(json_codec.predict_reply, {"x": np.ones(1)}, True)

    run(scenario)


def test_refused_body_is_not_kept_in_memory():

    class Body:
        def __reduce__(self):
            return bytes, (b"{" * 1000,)

    async def scenario(workers):
        body = Body()
        held = weakref.ref(body)
        with pytest.raises(ServingError):
            await workers.call(json_codec.read_predict, body, "", 9999, DTYPES)
        del body
        await asyncio.sleep(0.1)  # until the thread drops the call's arguments
        assert held() is None

    gc.disable()
    try:
        run(scenario)
    finally:
        gc.enable()
