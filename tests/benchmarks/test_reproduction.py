"""Results of runs are stored; tables and figures use only the stored results."""

import importlib
import json
import pathlib

import numpy as np
import pytest
import tyro
from code_blocks import ROOT

from benchmarks import __main__ as program
from benchmarks import pages, reproduction, runner
from benchmarks.reproduction import Reproduction, Results, Training
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only

NAMES = [name for name in program.names() if name.startswith("reproductions/")]
LOG = "step,train/loss,eval/success\n100,1.0,\n200,0.5,0.25\n300,0.25,0.75\n"


def reproduction_of(name):
    return importlib.import_module(f"benchmarks.{name.replace('/', '.')}").REPRODUCTION


@pytest.fixture
def stored(tmp_path):
    """Return results of the seeds 9 and 10 of `fast` and of a run with a similar name."""
    results = Results(tmp_path / "results")
    for run, last in (("fast-seed10", 300), ("fast-seed9", 200), ("slow-fast-seed1", 300)):
        log = [{"step": s, "eval/success": s / 400} for s in (100.0, 200.0, 300.0) if s <= last]
        results.keep(run, {"step": last}, [{"step": 50.0}, *log], ("eval/success",))
    return Results(tmp_path / "results")


def test_evaluations_are_in_the_order_of_the_seeds(stored):
    assert stored.of("fast") == [{"step": 200, "seed": 9}, {"step": 300, "seed": 10}]
    assert stored.of("none") == []


def test_curve_ends_with_the_shortest_run(stored):
    steps, values = stored.curve("fast", "eval/success")
    assert steps.tolist() == [100, 200] and values.tolist() == [[0.25, 0.5]] * 2


def test_stored_curve_has_at_most_60_points_and_both_ends(tmp_path):
    log = [{"step": float(step), "loss": 1 / step} for step in range(1, 1000)]
    Results(tmp_path).keep("a-seed0", {}, log, ("loss",))
    steps, _ = Results(tmp_path).curve("a", "loss")
    assert len(steps) == reproduction.POINTS and steps[0] == 1 and steps[-1] == 999


def test_run_that_is_stored_again_replaces_its_results(stored):
    stored.keep("fast-seed9", {"step": 7}, [{"step": 7.0, "eval/success": 1.0}], ("eval/success",))
    again = Results(stored.folder)
    assert again.of("fast")[0] == {"step": 7, "seed": 9}
    assert sum(row["run"] == "fast-seed9" for row in again.log) == 1


def test_damaged_results_are_named(tmp_path):
    (tmp_path / "runs.json").write_text('{"fast-seed0": ')
    with pytest.raises(InvalidInput, match=r"runs\.json must contain JSON"):
        Results(tmp_path).of("fast")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Return a reproduction whose training script only writes a run folder."""
    monkeypatch.chdir(tmp_path)
    commands = []

    def run_script(script, arguments, threads):
        options = dict(each.removeprefix("--").split("=") for each in arguments)
        commands.append((script, options))
        run = pathlib.Path(options["runs"], options["name"])
        run.mkdir(parents=True)
        (run / "metrics.csv").write_text(LOG)
        (run / "evaluation.json").write_text('{"step": 300}')

    monkeypatch.setattr(runner, "run_script", run_script)
    return commands, Reproduction(
        page="small",
        trainings={
            "fast-a": Training("ours", "train_doorkey", "fast", ("--steps=3",)),
            "fast-b": Training("other", "train_doorkey", "fast", seeds=(5,)),
        },
        tables={"table": lambda results: [{"seeds": len(results.of("fast-a"))}]},
        curves=("eval/success",),
        measure=lambda run: {"more": run.name},
    )


def test_reproduction_trains_selected_variants_and_stores_their_results(small):
    commands, page = small
    page.main(runner.Config(variants=("*-a",), seeds=(1, 0)))
    assert [options["seed"] for _, options in commands] == ["0", "1"]
    expected = {"preset": "fast", "runs": "runs/small", "steps": "3", "name": "fast-a-seed0"}
    assert commands[0] == ("train_doorkey", {**expected, "seed": "0"})
    found = page.results.of("fast-a")
    assert found[1] == {"step": 300, "more": "fast-a-seed1", "seed": 1}
    assert page.results.curve("fast-a", "eval/success")[1].tolist() == [[0.25, 0.75]] * 2


def test_reproduction_trains_the_seeds_of_its_tables_by_default(small):
    commands, page = small
    page.main(runner.Config())
    assert sorted(o["name"][5:] for _, o in commands) == [
        f"{n}"
        for n in (
            *("a-seed0", "a-seed1", "a-seed2"),
            "b-seed5",
        )
    ]
    with pytest.raises(InvalidInput, match=r"variants must select some of fast-a, fast-b"):
        page.main(runner.Config(variants=("c",)))


def test_spread_shows_a_range_only_if_it_is_visible():
    assert reproduction.spread([50.0, 60.0], unit=" %") == "55.0 % (50.0 to 60.0)"
    assert reproduction.spread([97.98, 98.02]) == "98.0"
    assert reproduction.spread([1234.5, 2000.0], ",.4g") == "1,617 (1,234 to 2,000)"
    assert reproduction.percent([{"a": 0.5}, {"a": 0.75}], "a") == "62.5 % (50.0 to 75.0)"
    assert reproduction.first_steps([None, 1500]) == "never, 1,500"


@pytest.mark.parametrize("name", NAMES)
def test_figures_show_all_of_every_committed_curve(name):
    page = reproduction_of(name)
    for figure, make in page.figures.items():
        assert (ROOT / page.results.folder / f"{figure}.png").exists()
        for axes in make(Results(ROOT / page.results.folder)).axes:
            low, high = sorted(axes.get_ylim())
            for line in axes.get_lines():
                heights = np.asarray(line.get_ydata(), float)
                assert ((low <= heights) & (heights <= high)).all(), (figure, line)


@pytest.mark.parametrize("name", NAMES)
def test_every_table_of_a_reproduction_is_shown(name):
    text = "".join(page.read_text() for page in sorted((ROOT / "docs").rglob("*.md")))
    for table in reproduction_of(name).tables:
        assert f"<!-- table: {name}/{table} -->" in text


@pytest.mark.parametrize("name", NAMES)
def test_scripts_accept_the_options_of_every_training(name):
    trainings = reproduction_of(name).trainings
    for training in () if callable(trainings) else trainings.values():
        if not isinstance(training, Training):
            continue  # it has no script
        script = importlib.import_module(f"train_scripts.{training.script}")
        presets = getattr(script, "PRESETS", None)
        default = presets[training.preset] if presets else script.Config(env="CartPole-v1")
        config = tyro.cli(type(default), default=default, args=list(training.options))
        assert type(config) is type(default)


@pytest.mark.parametrize("name", NAMES)
def test_every_stored_run_is_declared(name):
    page = reproduction_of(name)
    if page.trainings and not callable(page.trainings):
        stored = {run.rpartition("-seed")[0] for run in page.results.evaluations}
        assert stored - {"trained-again", *getattr(page, "pretrained", ())} <= set(page.trainings)


def test_reports_hold_a_table_and_its_benchmark():
    for file in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        document = json.loads(file.read_text())
        assert pages.markdown_table(document["rows"]).startswith("| ")
        assert document["name"] in program.names() or document["revision"] == "488e772", file
