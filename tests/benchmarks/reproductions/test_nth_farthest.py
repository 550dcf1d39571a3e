"""The Nth farthest tables, from results made up here."""

import json

import pytest

pytestmark = pytest.mark.tf_only

ROWS = "step,train/accuracy,eval/accuracy\n200,0.4,\n400,0.5,{0}\n600,0.6,\n800,0.7,{1}\n"


@pytest.fixture
def benchmark(tmp_path, monkeypatch):
    from benchmarks.reproductions import nth_farthest

    monkeypatch.setattr(nth_farthest, "RESULTS", tmp_path)
    for name in [*nth_farthest.PRESETS, *(f"study-{variant}" for variant in nth_farthest.STUDY)]:
        count = 5 if name.startswith("five") else 4
        for seed, accuracy in ((2, 0.75), (10, 0.55)):
            (tmp_path / f"{name}-seed{seed}.csv").write_text(ROWS.format(0.5, accuracy))
            summary = {
                "step": 800,
                "parameters": 12_345,
                "eval/accuracy": accuracy,
                "eval/accuracy_of_n": [accuracy] * count,
                "floors": {"chance": 1 / count, "norms only": 0.6},
                "training_minutes": 1.5,
            }
            (tmp_path / f"{name}-seed{seed}.json").write_text(json.dumps(summary))
    return nth_farthest


def test_tables_say_what_the_files_say(benchmark):
    lines = benchmark.table(benchmark.RESULTS).splitlines()
    assert (
        "| 4 vectors of 4 numbers | LSTM | 12,345 | 2 | 800 | 65.0 % (55.0 to 75.0) | 2 |" in lines
    )
    assert "| 5 vectors of 4 numbers | *chance* (simulated) |  |  |  | 20.0 % |  |" in lines
    assert len(lines) == 2 + 2 * (3 + 2)
    cells = benchmark.ranks(benchmark.RESULTS).splitlines()[2].split(" | ")
    assert cells[2:6] == ["65.0 %"] * 4 and cells[6].strip(" |") == ""


def test_the_plateau_ends_at_the_first_evaluation_above_it(benchmark):
    (muon,) = [
        line
        for line in benchmark.plateau(benchmark.RESULTS).splitlines()
        if line.startswith("| Muon |")
    ]
    assert muon == "| Muon | 2 | 65.0 % (55.0 to 75.0) | 800, never | 2 |"


def test_curves_hold_every_seed(benchmark):
    figure = benchmark.curves(benchmark.RESULTS, "five")
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert "LSTM (mean of 2)" in labels


def test_missing_results_are_named(benchmark):
    for path in benchmark.RESULTS.glob("five-lstm-*"):
        path.unlink()
    with pytest.raises(ValueError, match="no results of five-lstm"):
        benchmark.table(benchmark.RESULTS)
