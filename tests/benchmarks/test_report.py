"""Times are taken in turns, and tables are written."""

import json
import sys

import numpy as np
import pytest

from benchmarks import report, untrained
from benchmarks.__main__ import main, names
from benchmarks.measure import Rounds, latencies, take_turns, timed
from benchmarks.report import Report
from benchmarks.speed import acting, acting_decision_transformer, environments
from benchmarks.speed.offline_data import made_up_data
from train_scripts import train_doorkey


def test_timed_does_not_count_the_first_call():
    calls = iter([100.0, 1.0, 2.0])  # seconds each call takes
    now = [0.0]

    def work():
        now[0] += next(calls)

    assert timed(work, 2, clock=lambda: now[0]) == [1.0, 2.0]


def test_contestants_take_turns():
    order = []
    now = [0.0]

    def contestant(name, seconds):
        def work():
            order.append(name)
            now[0] += seconds

        return work

    contestants = {"a": contestant("a", 1.0), "b": contestant("b", 2.0)}
    seconds = take_turns(contestants, Rounds(rounds=3, calls=2), clock=lambda: now[0])
    assert order == ["a", "a", "a", "b", "b", "b"] * 3
    np.testing.assert_array_equal(seconds["a"], [1.0] * 6)
    np.testing.assert_array_equal(seconds["b"], [2.0] * 6)


def test_latencies_are_compared_with_the_reference():
    contestants = {"a": lambda: sum(range(20_000)), "b": lambda: None}
    cells = latencies(contestants, Rounds(rounds=2, calls=5), "a", wall="µs of a step")
    assert list(cells["b"]) == ["µs of a step", "10 to 90 %", "µs of CPU time", "of a"]
    assert cells["a"]["of a"] == 1 and cells["b"]["of a"] < 0.5
    ratio = cells["b"]["µs of a step"] / cells["a"]["µs of a step"]
    assert cells["b"]["of a"] == pytest.approx(ratio)


def test_a_report_is_a_table_and_its_numbers(tmp_path, capsys):
    rows = [{"what": "a", "ms": 0.12345}, {"what": "b", "ms": None}]
    Report("A title", rows, ("A note.",)).write("speed/name", Rounds(rounds=3), tmp_path)
    page = (tmp_path / "name.md").read_text()
    assert page in capsys.readouterr().out
    assert "`python -m benchmarks speed/name` on " in page
    assert "| a | 0.123 |\n| b |  |\n\n- A note.\n" in page
    document = json.loads((tmp_path / "name.json").read_text())
    assert document["rows"] == rows
    assert document["settings"] == {"rounds": 3, "calls": 10}
    assert document["machine"]["cores"] >= 1
    (tmp_path / "name.md").unlink()
    report.draw_up(tmp_path)
    assert (tmp_path / "name.md").read_text() == page


@pytest.mark.parametrize("file", sorted(report.RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_pages_are_made_of_the_committed_numbers(file):
    document = json.loads(file.read_text())
    assert file.with_suffix(".md").read_text() == report.markdown(document)
    assert document["name"] in names()


def test_every_benchmark_is_named_and_runs_by_its_name(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks"])
    main()
    listed = capsys.readouterr().out
    assert all(f"\n{name}: " in listed for name in names())
    assert {"speed/update", "reproductions/doorkey"} <= set(names())
    monkeypatch.setattr(sys, "argv", ["benchmarks", "speed/nothing"])
    with pytest.raises(SystemExit):
        main()
    assert "unknown benchmark 'speed/nothing'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "benchmarks.speed.relational_memory", raising=False)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "speed/relational_memory"])
    with pytest.raises(SystemExit):
        main()
    assert "pip install torch" in capsys.readouterr().err


@pytest.mark.tf_only
def test_what_a_benchmark_returns_is_written_under_its_name(tmp_path, monkeypatch):
    write = Report.write
    monkeypatch.setattr(Report, "write", lambda *arguments: write(*arguments, folder=tmp_path))
    options = ["--batch=2", "--steps=2", "--features=3", "--mem-slots=2", "--num-heads=1"]
    monkeypatch.setattr(sys, "argv", ["benchmarks", "reproductions/rmc_differences", *options])
    main()
    document = json.loads((tmp_path / "rmc_differences.json").read_text())
    assert document["name"] == "reproductions/rmc_differences"
    assert document["settings"]["mem_slots"] == 2
    assert len(document["rows"]) > 5


@pytest.mark.tf_only
def test_every_way_to_act_gives_the_same_action(tmp_path):
    contestants = acting.ways(train_doorkey.PRESETS["fast"], tmp_path)
    acting.check_equal(contestants)
    with pytest.raises(ValueError, match="the actions differ"):
        acting.check_equal({**contestants, "other": lambda: -1})


@pytest.mark.tf_only
@pytest.mark.parametrize("preset", ["fast", "transformer"])
def test_a_decision_transformer_acts_alike_in_every_way(preset, tmp_path):
    """Once, what makes an untrained one called a function that had another name by then."""
    data = made_up_data(episodes=1, steps=5)
    changes = {"width": 8, "num_blocks": 1, "context_length": 3}
    model, scaling = untrained.decision_transformer(data, preset, **changes)
    contestants = acting_decision_transformer.ways(model, scaling, 2, tmp_path)
    assert list(contestants) == ["TrajectoryPolicy", "export, WindowSession"]
    with pytest.raises(ValueError, match="other acts differently in step 0"):
        acting_decision_transformer.check_equal({**contestants, "other": lambda: 9.0}, 1)


def test_environments_are_measured():
    rows = environments.environment_rows(5, environments.Config(rounds=1, calls=1, steps=32))
    assert rows[0]["what"] == environments.STOCK
    assert rows[0]["times stock"] == 1
    assert all(row["per second"] * row["µs each"] == pytest.approx(1e6) for row in rows)
