"""The server and all methods in the comparison answer requests."""

import pytest

from benchmarks.speed import serving

pytestmark = pytest.mark.tf_only


@pytest.mark.slow  # it starts servers
def test_all_sides_are_measured():
    config = serving.Config(clients=2, rounds=1, seconds=0.3, processes=(1,), policies=("dense",))
    rows = serving.main(config).rows
    assert {(row["method"], row["clients"]) for row in rows} == {
        *((method, 1) for method in (serving.SIGNATURE, serving.SESSION)),
        *((method, n) for method in ("gRPC", "REST", serving.ECHO) for n in (1, 2)),
    }
    assert all(row["requests/s"] > 0 and row["p99 ms"] >= row["p50 ms"] for row in rows)
    assert rows[0]["relative to signature"] == 1
