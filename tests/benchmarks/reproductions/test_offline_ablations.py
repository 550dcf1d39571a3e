"""The ablations of what is learned offline: one part each, on data of one kind after another."""

import dataclasses
import json

import pytest

pytestmark = [
    pytest.mark.tf_only,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.usefixtures("few_pictures"),
]


@pytest.fixture
def ablations():
    from benchmarks.reproductions import offline_ablations

    return offline_ablations


def keep(folder, variant, seed, mean, reached, **more):
    summary = {
        "data": "local walker2d/medium-v0",
        "environment": "Walker2d-v5",
        "data_return": {"mean": mean, "max": 4000.0},
        "preset": variant,
        "step": 10_000,
        "last": {"4000": {"return": reached}},
        **more,
    }
    (folder / f"{variant}-{mean}-seed{seed}.json").write_text(json.dumps(summary))


def test_the_table_says_what_the_files_say(ablations, tmp_path):
    for seed, (reached, noise) in enumerate([(4300.0, 0.5), (4100.0, 0.0)]):
        keep(tmp_path, "whole", seed, 2000.0, reached, chosen_noise=noise)
        keep(tmp_path, "squared", seed, 2000.0, reached / 2)
    keep(tmp_path, "transformer", 0, 1000.0, 900.0)
    other, whole, squared = ablations.table(tmp_path).splitlines()[2:]
    data = "local walker2d/medium-v0 (Walker2d-v5)"
    assert other == f"| {data} | 1,000, 4,000 | transformer: all of it | 10,000 | 1 | 900 |  |"
    assert whole.endswith("| dense: all of it | 10,000 | 2 | 4,200 (4,100 to 4,300) | 0, 0.5 |")
    assert squared.endswith("| 10,000 | 2 | 2,100 (2,050 to 2,150) |  |")


def test_each_variant_is_its_preset_with_its_options_otherwise(ablations):
    import tyro

    from train_scripts import train_decision_transformer as script

    for variant, (_, preset, options) in ablations.VARIANTS.items():
        numbers = script.PRESETS[preset]
        other = tyro.cli(script.Config, default=numbers, args=list(options))
        before = dataclasses.asdict(numbers)
        changed = {
            name for name, value in dataclasses.asdict(other).items() if value != before[name]
        }
        assert changed == {
            option.split("=")[0].lstrip("-").removeprefix("no-").replace("-", "_")
            for option in options
            if option.startswith("--")
        }, variant


@pytest.mark.slow  # it trains
def test_what_is_learned_otherwise_is_trained_and_kept(ablations, tmp_path, monkeypatch):
    """From a recording to the file that the table is made of, with a variant whose options need
    others to be taken away: without a noise that is learned, no share of it is tried."""
    from train_scripts import collect_dataset

    recording = collect_dataset.Config(
        recipe="pendulum", steps=400, folder=str(tmp_path / "datasets")
    )
    data = f"minari:{collect_dataset.main(recording)}"
    monkeypatch.setattr(ablations, "RESULTS", tmp_path / "results")
    label, preset, options = ablations.VARIANTS["squared"]
    short = ("--steps=20", "--log-every=10", "--checkpoint-every=20", "--advantage-power=0")
    few = ("--evaluation-episodes=2", "--progress-episodes=2")
    variants = {"squared": (label, preset, (*options, *short, *few))}
    monkeypatch.setattr(ablations, "VARIANTS", variants)
    config = ablations.Config(data=(data,), variants=("squared",), runs=str(tmp_path / "runs"))
    ablations.train(config, data, "squared", 0)
    [row] = ablations.table(tmp_path / "results").splitlines()[2:]
    assert f"| {label} | 20 | 1 | -" in row
    asked = json.loads(next((tmp_path / "results").glob("*.json")).read_text())["last"]
    assert list(map(float, asked)) == [round(float(ablations.best_return(data)))]
