"""The speed of DoorKey in the graph is measured, and its differences from MiniGrid are counted."""

import importlib.util

import pytest

from benchmarks.speed import doorkey_in_graph

pytestmark = pytest.mark.tf_only


def test_every_way_is_measured_and_compared():
    config = doorkey_in_graph.Config(size=5, num_envs=(2,), steps=64, compared=64, rounds=1)
    report = doorkey_in_graph.main(config)
    measured = [row for row in report.rows if "environments" in row]
    expected = [doorkey_in_graph.IN_GRAPH, doorkey_in_graph.VECTOR, doorkey_in_graph.SEEDED]
    if importlib.util.find_spec("envpool"):
        expected.append(doorkey_in_graph.ENVPOOL)
    else:
        assert "pip install envpool" in report.notes[-1]
    assert [row["what"] for row in measured] == expected
    assert all(row["observations a second"] > 0 for row in measured)
    compared = [row for row in report.rows if "compared" in row]
    assert [row["size"] for row in compared] == [5, 6, 8, 16]
    assert [row["compared"] for row in compared] == [64] * 4
    assert not any(row["differences"] for row in compared)
