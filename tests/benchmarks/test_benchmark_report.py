"""Times are taken in turns, and tables are written."""

import json

import numpy as np
import pytest

from benchmarks import acting, environments
from benchmarks.measure import alternate, timed
from benchmarks.report import Report
from train_scripts import train_doorkey


def test_timed_does_not_count_the_first_call():
    calls = iter([100.0, 1.0, 2.0])  # seconds each call takes
    now = [0.0]

    def work():
        now[0] += next(calls)

    assert timed(work, 2, clock=lambda: now[0]) == [1.0, 2.0]


def test_contestants_take_turns():
    order = []

    def contestant(name, seconds):
        return lambda: order.append(name) or [seconds, seconds]

    seconds = alternate({"a": contestant("a", 1.0), "b": contestant("b", 2.0)}, rounds=3)
    assert order == ["a", "b"] * 3
    np.testing.assert_array_equal(seconds["a"], [1.0] * 6)
    np.testing.assert_array_equal(seconds["b"], [2.0] * 6)


def test_a_report_is_a_table_and_its_numbers(tmp_path, capsys):
    rows = [{"what": "a", "ms": 0.12345}, {"what": "b", "ms": None}]
    Report("name", "A title", ("what", "ms"), rows, ("A note.",), {"rounds": 3}).write(tmp_path)
    table = (tmp_path / "name.md").read_text()
    assert table in capsys.readouterr().out
    assert "| a | 0.123 |\n| b |  |\n\n- A note.\n" in table
    document = json.loads((tmp_path / "name.json").read_text())
    assert document["rows"] == rows
    assert document["settings"] == {"rounds": 3}
    assert document["machine"]["cores"] >= 1


@pytest.mark.tf_only
def test_every_way_to_act_gives_the_same_action(tmp_path):
    contestants = acting.ways(train_doorkey.PRESETS["fast"], tmp_path)
    acting.check_equal(contestants)
    with pytest.raises(ValueError, match="the actions differ"):
        acting.check_equal({**contestants, "other": lambda: -1})


def test_environments_are_measured():
    rows = environments.environment_rows(5, environments.Config(rounds=1, steps=32))
    assert rows[0]["what"] == environments.STOCK
    assert rows[0]["times stock"] == 1
    assert all(row["per second"] * row["µs each"] == pytest.approx(1e6) for row in rows)
