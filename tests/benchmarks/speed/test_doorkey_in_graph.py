"""The speed of DoorKey in the graph is measured, and its differences from MiniGrid are counted."""

import importlib.util

import pytest

from benchmarks.speed import doorkey_in_graph

pytestmark = pytest.mark.tf_only


def test_every_way_is_measured_and_compared():
    config = doorkey_in_graph.Config(
        size=5, num_envs=(2, 4), steps=64, most_in_python=2, compared=60, rounds=1
    )
    report = doorkey_in_graph.main(config)
    measured = [row for row in report.rows if "environments" in row]
    expected = {doorkey_in_graph.IN_GRAPH, doorkey_in_graph.VECTOR}
    if importlib.util.find_spec("envpool"):
        expected |= {doorkey_in_graph.ENVPOOL}
    else:
        assert "pip install envpool" in report.notes[-1]
    for count, names in ((2, expected | {doorkey_in_graph.SEEDED}), (4, expected)):
        assert {row["what"] for row in measured if row["environments"] == count} == names
    assert all(row["observations a second"] > 0 for row in measured)
    compared = [row for row in report.rows if "compared" in row]
    assert [row["size"] for row in compared] == [5, 6, 8, 16]
    assert [row["compared"] for row in compared] == [60, 60, 60, 64]
    assert not any(row["differences"] for row in compared)
