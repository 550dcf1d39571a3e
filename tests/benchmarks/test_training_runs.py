"""Training runs in processes of their own, and the files the tables are made of."""

import pytest

from benchmarks import training_runs


def test_files_come_in_the_order_of_the_seeds(tmp_path):
    for name in ("fast-seed10", "fast-seed9", "fast-6x6-seed0", "slow-fast-seed1"):
        (tmp_path / f"{name}.csv").write_text("step,eval/success\n100,\n200,0.5\n")
    paths = training_runs.files(tmp_path, "fast", "csv")
    assert [path.stem for path in paths] == ["fast-seed9", "fast-seed10"]
    assert training_runs.metrics(paths[0]) == [{"step": 100}, {"step": 200, "eval/success": 0.5}]


def test_spread_leaves_out_a_range_of_nothing():
    assert training_runs.spread([50.0, 60.0], unit=" %") == "55.0 % (50.0 to 60.0)"
    assert training_runs.spread([1.23456], digits=3) == "1.235"
    assert training_runs.spread([2.0, 2.0]) == "2.0"


def test_a_run_that_fails_says_why(tmp_path):
    with pytest.raises(ValueError, match=r"train_doorkey --preset=none.* failed: .*'none'"):
        training_runs.train("train_doorkey", "--preset=none", f"--runs={tmp_path}")
