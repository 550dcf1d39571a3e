"""Requests with and without sequences are measured over both protocols."""

import pytest

from benchmarks.speed import sequences

pytestmark = pytest.mark.tf_only


@pytest.mark.slow  # it starts a server
def test_all_methods_are_measured():
    rows = sequences.main(sequences.Config(clients=2, rounds=1, seconds=0.3)).rows
    assert [row["protocol"] for row in rows] == ["gRPC", "gRPC", "REST", "REST"]
    assert all(row["requests/s"] > 0 and row["p99 ms"] >= row["p50 ms"] for row in rows)
    before, after = rows[2:]
    assert after["bytes sent"] < before["bytes sent"] / 2
    assert after["bytes received"] < before["bytes received"] / 10
