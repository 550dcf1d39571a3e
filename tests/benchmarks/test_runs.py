"""Training runs in processes of their own, and the files the tables are made of."""

import importlib
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import psutil
import pytest

from benchmarks import runs
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only

ROOT = pathlib.Path(__file__).parents[2]
TRAINED = ("doorkey", "exploration", "faithfulness", "mnist", "nth_farthest", "offline", "text")


def reproduction(name):
    return importlib.import_module(f"benchmarks.reproductions.{name}")


def write_logs(folder):
    for name in ("fast-seed10", "fast-seed9", "fast-6x6-seed0", "slow-fast-seed1"):
        (folder / f"{name}.csv").write_text("step,eval/success\n100,\n200,0.5\n")


def test_files_come_in_the_order_of_the_seeds(tmp_path):
    write_logs(tmp_path)
    paths = runs.files(tmp_path, "fast", "csv")
    assert [path.stem for path in paths] == ["fast-seed9", "fast-seed10"]
    assert [runs.seed_of(path) for path in paths] == [9, 10]
    assert runs.metrics(paths[0]) == [{"step": 100}, {"step": 200, "eval/success": 0.5}]


def test_a_curve_has_the_steps_that_all_seeds_have(tmp_path):
    write_logs(tmp_path)
    more = "step,eval/success\n100,0.25\n200,0.75\n"
    (tmp_path / "fast-seed11.csv").write_text(more)
    steps, values = runs.curve(tmp_path, "fast", "eval/success")
    assert steps.tolist() == [200] and values.tolist() == [[0.5], [0.5], [0.75]]
    assert runs.curves(tmp_path, {"none": "nobody"}, "eval/success", "y") is None
    [axes] = runs.curves(tmp_path, {"fast": "ours", "none": "x"}, "eval/success", "y").axes
    assert axes.get_legend_handles_labels()[1] == ["ours (mean of 3)"]


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "fast-seed0.json").write_text('{"eval/success": 0.')
    with pytest.raises(InvalidInput, match=r"fast-seed0\.json is damaged, not JSON: .*column"):
        runs.summaries(tmp_path, "fast")
    for row in ("1,x\n", "1,2,3\n", "1\n"):
        (tmp_path / "fast-seed0.csv").write_text(f"step,eval/success\n{row}")
        with pytest.raises(InvalidInput, match=r"fast-seed0\.csv is damaged, not a table"):
            runs.curve(tmp_path, "fast", "eval/success")


def test_spread_leaves_out_a_range_of_nothing():
    assert runs.spread([50.0, 60.0], unit=" %") == "55.0 % (50.0 to 60.0)"
    assert runs.spread([1.23456], ".3f") == "1.235"
    assert runs.spread([2.0, 2.0]) == "2.0"
    assert runs.spread([97.98, 98.02]) == "98.0"
    assert runs.spread([1234.5, 2000.0], ",.4g") == "1,617 (1,234 to 2,000)"
    assert runs.percent([{"a": 0.5}, {"a": 0.75}], "a") == "62.5 % (50.0 to 75.0)"
    assert runs.in_words([None, 1500]) == "never, 1,500"


def test_a_run_that_fails_says_why(tmp_path):
    with pytest.raises(ValueError, match=r"train_doorkey --preset=none.* failed: .*'none'"):
        runs.train(runs.Config(runs=str(tmp_path)), "train_doorkey", "none", 0)


def test_a_run_is_told_its_name_if_it_is_not_the_scripts_own(tmp_path, monkeypatch):
    told = []
    done = runs.subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(runs.subprocess, "run", lambda command, **_: told.append(command) or done)
    config = runs.Config(runs=str(tmp_path))
    own = runs.train(config, "train_mnist", "fast", 1, "--x", name="fast-seed1")
    other = runs.train(config, "train_mnist", "fast", 1, name="study-seed1")
    assert (own.name, other.name) == ("fast-seed1", "study-seed1")
    assert told[0][-1] == "--x" and told[1][-1] == "--name=study-seed1"


SLEEPER = """
import psutil, subprocess, sys, time
from benchmarks import runs

def sleep(config, number):
    # Where nothing is buffered, print writes the line in two pieces, between which others write.
    script = "import os, time; os.write(1, b'begun\\\\n'); time.sleep(60)"
    subprocess.run([sys.executable, "-c", script])

def slowly(process, terminate=psutil.Process.terminate):
    # Time enough for the next to begin in the place of the first that is ended.
    terminate(process)
    time.sleep(1)

psutil.Process.terminate = slowly
runs.train_all(runs.Config(jobs=2), sleep, [(number,) for number in range(4)])
"""


def test_who_is_ended_ends_its_trainings():
    """They went on once, and a second command trained in the same folders."""
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True)
    with process:
        assert [process.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
        trainings = psutil.Process(process.pid).children()
        process.terminate()
        assert process.wait(20) == 143
        assert process.stdout.read() == ""  # none of the others was begun
    assert len(trainings) == 2 and not any(each.is_running() for each in trainings)


def test_what_is_kept_is_the_log_and_the_evaluation(tmp_path):
    run = tmp_path / "fast-seed0"
    run.mkdir()
    (run / "metrics.csv").write_text("step\n1\n")
    (run / "evaluation.json").write_text('{"step": 1}')
    runs.keep(run, tmp_path / "results", more=[2])
    assert (tmp_path / "results" / "fast-seed0.csv").read_text() == "step\n1\n"
    assert runs.summaries(tmp_path / "results", "fast") == [{"step": 1, "more": [2]}]


@pytest.mark.parametrize("jobs", [1, 3])
def test_all_that_is_wanted_is_trained_unless_nothing_is(jobs):
    done = []
    wanted = [("a", 1), ("b", 2), ("c", 3)]
    runs.train_all(runs.Config(jobs=jobs), lambda _, *run: done.append(run), wanted)
    assert sorted(done) == wanted
    runs.train_all(runs.Config(train=False), lambda *_: pytest.fail("trained"), wanted)


@pytest.mark.parametrize("name", TRAINED)
def test_the_tables_are_made_of_the_committed_runs(name):
    module = reproduction(name)
    results = ROOT / module.RESULTS
    for table, make in module.TABLES.items():
        assert (results / f"{table}.md").read_text() == make(results), table


@pytest.mark.parametrize("name", [name for name in TRAINED if name != "text"])
def test_the_figures_are_made_of_the_committed_runs_and_show_all_of_every_curve(name):
    module = reproduction(name)
    for figure, make in module.FIGURES.items():
        assert (ROOT / module.RESULTS / f"{figure}.png").exists()
        for axes in make(ROOT / module.RESULTS).axes:
            low, high = axes.get_ylim()
            for line in axes.get_lines():
                heights = np.asarray(line.get_ydata(), float)
                assert low <= heights.min() and heights.max() <= high, (figure, line)


def test_results_are_published_in_the_folder_they_are_made_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = reproduction("text")
    results = tmp_path / module.RESULTS
    shutil.copytree(ROOT / module.RESULTS, results)
    table = (results / "table.md").read_text()
    (results / "table.md").unlink()
    pathlib.Path("README.md").write_text(
        f"<!-- table: {module.RESULTS}/table.md -->\n<!-- end -->\n"
    )
    module.main(module.Config(train=False))
    assert (results / "table.md").read_text() == table
    assert table in pathlib.Path("README.md").read_text()


def test_equivariance_is_redrawn_from_its_numbers(tmp_path):
    from benchmarks.reproductions import equivariance

    assert equivariance.figure(tmp_path) is None
    errors = {"rolled": {"layer": [[0.0, 0.25]]}}
    (tmp_path / "equivariance.json").write_text(json.dumps(errors))
    panel, _ = equivariance.figure(tmp_path).axes
    assert panel.images[0].get_array().tolist() == [[0.0, 0.25]]
