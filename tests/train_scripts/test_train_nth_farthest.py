import csv
import dataclasses
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.tf_only

ROOT = pathlib.Path(__file__).parents[2]


def toy_config(tmp_path, **changes):
    from train_scripts.train_nth_farthest import FAST

    numbers = {
        "num_vectors": 3,
        "dimension": 2,
        "stages": ((2, 1), (3, 1)),
        "epochs": 4,
        "steps_per_epoch": 3,
        "batch_size": 8,
        "warmup_steps": 2,
        "evaluate_every": 2,
        "evaluation_questions": 200,
        "jit_compile": False,
        "runs": str(tmp_path),
        "name": "toy",
    }
    return dataclasses.replace(FAST, **{**numbers, **changes})


def metrics(run):
    with (run / "metrics.csv").open(newline="") as file:
        return [
            {name: cell for name, cell in row.items() if not name.startswith("time/")}
            for row in csv.DictReader(file)
        ]


@pytest.mark.parametrize("network", ["fast", "fast-transformer", "fast-lstm"])
def test_a_run_leaves_everything_it_promises(tmp_path, capsys, network):
    from train_scripts import train_nth_farthest

    config = toy_config(tmp_path, network=network)
    folder, model = train_nth_farthest.main(config)
    rows = metrics(folder.path)
    assert [row["step"] for row in rows] == ["3", "6", "9", "12"]
    assert [bool(row["eval/accuracy"]) for row in rows] == [False, True, False, True]
    summary = json.loads((folder.path / "evaluation.json").read_text())
    sequences, answers = train_nth_farthest.evaluation_questions(config)
    right = model.predict(sequences, verbose=0).argmax(-1) == answers
    assert summary["eval/accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    assert summary["eval/accuracy"] == pytest.approx(float(rows[-1]["eval/accuracy"]), abs=1e-4)
    assert len(summary["eval/accuracy_of_n"]) == 3
    assert (folder.figures / "attention.png").exists() == (network != "fast-lstm")
    printed = capsys.readouterr().out
    for floor in ("chance 33", "no geometry 6", "norms only"):
        assert floor in printed

    train_nth_farthest.main(config)  # nothing left to do
    assert "is trained already" in capsys.readouterr().out
    assert metrics(folder.path) == rows


def test_a_run_that_was_interrupted_equals_one_that_was_not(tmp_path, monkeypatch):
    from train_scripts import train_nth_farthest
    from train_scripts.train_nth_farthest import RaiseStage

    whole, _ = train_nth_farthest.main(toy_config(tmp_path / "whole", stage_epochs=1))

    original = RaiseStage.on_epoch_end

    def interrupt(self, epoch, logs=None):
        original(self, epoch, logs)
        if epoch == 2:
            raise KeyboardInterrupt

    config = toy_config(tmp_path / "interrupted", stage_epochs=1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RaiseStage, "on_epoch_end", interrupt)
        train_nth_farthest.main(config)
    interrupted, _ = train_nth_farthest.main(config)
    assert metrics(interrupted.path) == metrics(whole.path)
    arrays = [
        np.load(run.path / "checkpoints" / "0000000012" / "arrays.npz")
        for run in (interrupted, whole)
    ]
    for name in arrays[1].files:
        np.testing.assert_array_equal(arrays[0][name], arrays[1][name], err_msg=name)


def test_stages_are_passed_by_accuracy_or_by_patience(tmp_path):
    from train_scripts.train_nth_farthest import RaiseStage, training_questions

    config = toy_config(tmp_path, stage_passed=0.3, stage_epochs=3)
    data = training_questions(config, epoch=0)

    class Log:
        rows = []

    callback = RaiseStage(Log, data, config)
    # Two vectors need no geometry, so the floor is 1 and only perfection passes; of three, 0.767.
    reached = []
    for accuracy in (0.9, 1.0, 0.7, 0.76, 0.8, 0.5, 0.9):
        Log.rows = [*Log.rows, {"train/accuracy": accuracy}]
        callback.on_epoch_end(len(Log.rows) - 1)
        reached.append(data.stage)
    assert reached == [0, 1, 1, 1, 2, 2, 2]
    impatient = dataclasses.replace(config, stage_epochs=2)
    Log.rows = [{"train/accuracy": 0.1}] * 3
    assert RaiseStage(Log, data, impatient).stage() == 1
    assert data.stage == 1


def test_the_names_of_the_vectors_tell_the_question(tmp_path):
    from train_scripts import train_nth_farthest

    for order in ("paper", "sonnet"):
        config = toy_config(tmp_path, num_vectors=5, order=order)
        sequences, answers = train_nth_farthest.evaluation_questions(config, 20)
        for sequence, answer in zip(sequences, answers):
            names = train_nth_farthest.names_of_vectors(config, sequence, answer)
            assert sorted(name.split()[1] for name in names) == list("01234")
            (m,) = [name for name in names if " = m" in name]
            (right,) = [name for name in names if "answer" in name]
            assert right.split()[1] == str(answer)
            n = sequence[0, 2 + 5 : 2 + 10] if order == "paper" else sequence[0, 2 + 10 :]
            is_itself = n.argmax() == (4 if order == "paper" else 0)
            assert (m == right) == is_itself


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset=slow"], "unknown preset 'slow', expected one of fast, fast-lstm"),
        (["--num-vectors=0"], "`num_vectors` must be a positive integer. Received: 0"),
        (["--stages", "9", "1"], "`active_vectors` must be at most 4. Received: 9"),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path, arguments, message):
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "train_scripts.train_nth_farthest",
            f"--runs={tmp_path}",
            *arguments,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.csv"))
