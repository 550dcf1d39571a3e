"""A request passes through few files, so that a reader can follow it."""

import json
import pathlib
import threading
import urllib.request

import pytest

import serving
from serving.server import running

pytestmark = pytest.mark.tf_only
SERVING = pathlib.Path(serving.__file__).parent


@pytest.mark.parametrize("rows", [1, 300])
def test_a_predict_request_passes_through_at_most_9_files(exported, tools, rows):
    files, recording = set(), threading.Event()

    def profile(frame, event, argument):
        if recording.is_set() and event == "call":
            path = pathlib.Path(frame.f_code.co_filename)
            if path.is_relative_to(SERVING):
                files.add(path.name)

    flags = tools.make_flags(exported)
    body = json.dumps({"instances": tools.observations(rows).tolist()}).encode()

    def request():
        address = f"http://127.0.0.1:{server.rest_port}/v1/models/tiny:predict"
        with urllib.request.urlopen(address, body, timeout=30) as reply:
            assert len(json.load(reply)["predictions"]) == rows

    threading.setprofile(profile)  # for threads that start later: the server's
    try:
        with running(flags) as server:
            request()
            recording.set()
            request()
            recording.clear()
    finally:
        threading.setprofile(None)
    assert {"rest.py", "inference.py"} <= files
    assert len(files) <= 9, sorted(files)
