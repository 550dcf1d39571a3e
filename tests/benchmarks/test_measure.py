"""Functions are timed in turns; reports are printed and written."""

import json

import numpy as np
import pytest

from benchmarks.measure import Report, Rounds, middle, take_turns, timed


def test_timed_does_not_measure_the_first_call():
    calls, now = iter([100.0, 1.0, 2.0]), [0.0]

    def work():
        now[0] += next(calls)

    assert timed(work, 2, clock=lambda: now[0]) == [1.0, 2.0]


def test_functions_take_turns():
    order, now = [], [0.0]

    def timed_work(name, seconds):
        def work():
            order.append(name)
            now[0] += seconds

        return work

    functions = {"a": timed_work("a", 1.0), "b": timed_work("b", 2.0)}
    seconds = take_turns(functions, Rounds(rounds=3, calls=2), clock=lambda: now[0])
    assert order == ["a", "a", "a", "b", "b", "b"] * 3
    np.testing.assert_array_equal(seconds["b"], [2.0] * 6)


def test_middle_is_the_range_of_80_percent():
    assert middle(np.arange(101.0)) == "10 to 90"


def test_report_is_printed_and_written_with_settings_and_machine(tmp_path, capsys):
    rows = [{"what": "a", "ms": 0.12345}, {"what": "b", "ms": None}]
    Report("A title", rows, ("A note.",)).write("speed/name", Rounds(rounds=3), tmp_path)
    assert "| a | 0.123 |\n| b |  |\n\nA note.\n" in capsys.readouterr().out
    document = json.loads((tmp_path / "name.json").read_text())
    assert document["rows"] == rows and document["name"] == "speed/name"
    assert document["settings"] == {"rounds": 3, "calls": 10}
    assert document["machine"]["cores"] >= 1


@pytest.mark.tf_only
def test_all_methods_return_the_same_action(tmp_path):
    from benchmarks.speed import acting
    from train_scripts import train_doorkey

    methods = acting.make_methods(train_doorkey.PRESETS["fast"], tmp_path)
    acting.check_equal(methods)
    with pytest.raises(ValueError, match="all methods must return the same action"):
        acting.check_equal({**methods, "other": lambda: -1})
    rows = acting.latencies(methods, acting.Config(rounds=1, calls=1))
    assert [row["how"] for row in rows] == list(methods)
    assert rows[0][f"of {acting.SERVED}"] == 1
