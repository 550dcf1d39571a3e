"""The ablations of MemoryS17: one part each, and told from the log."""

import dataclasses
import json

import pytest

pytestmark = pytest.mark.tf_only


@pytest.fixture
def ablations():
    from benchmarks.reproductions import memory_ablations

    return memory_ablations


def test_the_last_level_is_reached_where_it_was_asked_about_first(ablations):
    log = [{"step": 1.0}, {"step": 4000.0, "zero_shot/level": 2.0}]
    assert ablations.reached(log) is None
    came = {"step": 9000.0, "zero_shot/level": 3.0}
    assert ablations.reached([*log, came, {"step": 9500.0}]) == 9000


def test_the_table_says_what_the_files_say(ablations, tmp_path):
    for seed, (at, share) in enumerate([(52_000, 1.0), (None, 0.5)]):
        summary = {
            "step": 200_000,
            "eval/success": share,
            "eval/success_epsilon_0.05": share,
            "cpu_minutes": 4.2,
            "reached": at,
        }
        (tmp_path / f"no-hold-seed{seed}.json").write_text(json.dumps(summary))
    [row] = ablations.table(tmp_path).splitlines()[2:]
    label, _ = ablations.VARIANTS["no-hold"]
    share = "75.0 % (50.0 to 100.0)"
    assert row == f"| {label} | 2 | 200,000 | 52,000, never | {share} | {share} | 4 |"


def test_each_variant_is_the_preset_with_one_part_otherwise(ablations):
    import tyro

    from train_scripts import train_recurrent

    preset = train_recurrent.PRESETS["memory-s17"]

    def configured(options):
        return tyro.cli(train_recurrent.Config, default=preset, args=[*ablations.TASK, *options])

    whole = dataclasses.asdict(configured(()))
    assert len(whole["sizes"]) == ablations.LAST_LEVEL
    assert whole["learning_rate_updates"] == whole["steps"] * whole["updates_per_step"]
    for variant, (_, options) in ablations.VARIANTS.items():
        other = dataclasses.asdict(configured(options))
        changed = {name for name, value in other.items() if value != whole[name]}
        assert changed == {
            option.split("=")[0].lstrip("-").removeprefix("no-").replace("-", "_")
            for option in options
        }, variant
