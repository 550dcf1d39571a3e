import csv
import dataclasses
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from rrl_tf.export import load_policy

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]

ROOT = pathlib.Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "train_scripts.train_nth_farthest"]


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


@pytest.mark.parametrize(
    "network",
    ["fast", pytest.param("fast-transformer", marks=pytest.mark.slow), "fast-lstm"],
)
def test_a_run_leaves_everything_it_promises(tmp_path, capsys, network):
    from train_scripts import train_nth_farthest

    config = toy_config(tmp_path, network=network)
    run = train_nth_farthest.main(config)
    folder, model = run.folder, run.model
    rows = metrics(folder.path)
    assert [row["step"] for row in rows] == ["3", "6", "9", "12"]
    assert [bool(row["eval/accuracy"]) for row in rows] == [False, True, False, True]
    summary = json.loads((folder.path / "evaluation.json").read_text())
    sequences, answers = train_nth_farthest.evaluation_questions(config)
    right = model.predict(sequences, batch_size=200, verbose=0).argmax(-1) == answers
    assert summary["eval/accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    assert summary["eval/accuracy"] == pytest.approx(float(rows[-1]["eval/accuracy"]), abs=1e-4)
    assert len(summary["eval/accuracy_of_n"]) == 3
    assert (folder.figures / "attention.png").exists() == (network != "fast-lstm")
    exported = load_policy(folder.export)
    np.testing.assert_array_equal(exported.classify(sequences) == answers, right)
    exported.close()
    printed = capsys.readouterr().out
    for floor in ("chance 33", "no geometry 6", "norms only"):
        assert floor in printed

    train_nth_farthest.main(config)  # nothing left to do
    assert "is trained already" in capsys.readouterr().out
    assert metrics(folder.path) == rows


@pytest.mark.slow  # three networks to trace; test_fit has the same of a small one
def test_a_run_that_was_killed_equals_one_that_was_not(tmp_path, killed_at):
    from train_scripts import train_nth_farthest

    whole = train_nth_farthest.main(toy_config(tmp_path / "whole", stage_epochs=1)).folder
    config = toy_config(tmp_path / "killed", stage_epochs=1)
    with killed_at(10):
        train_nth_farthest.main(config)
    resumed = train_nth_farthest.main(config).folder
    assert metrics(resumed.path) == metrics(whole.path)
    for name, array in whole.load_checkpoint()["variables"].items():
        np.testing.assert_array_equal(resumed.load_checkpoint()["variables"][name], array)


@pytest.mark.slow  # test_train_doorkey has the same of a smaller network
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_process_with_a_checkpoint(tmp_path, number, code):
    """The real thing: a process of its own, whose next checkpoint is far away."""
    few = ["--steps-per-epoch=2", "--epochs=5000", "--evaluate-every=5000", "--batch-size=4"]
    process = subprocess.Popen(
        [*COMMAND, f"--runs={tmp_path}", "--name=toy", *few, "--no-jit-compile"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = tmp_path / "toy" / "metrics.csv"
    while not log.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == code
    assert "Traceback" not in said and "stopping after what is under way is saved" in said
    (checkpoint,) = (tmp_path / "toy" / "checkpoints").iterdir()
    assert int(checkpoint.name) == int(metrics(tmp_path / "toy")[-1]["step"]) > 0


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
        (["--preset=slow"], "unknown preset 'slow'; expected one of fast, fast-lstm"),
        (["--num-vectors=0"], "num_vectors.*received:? 0"),
        (["--stages", "9", "1"], "active_vectors.*received:? 9"),
        (["--epochs=2"], "warmup_steps must be less than the 400 steps.*; received 500"),
        (["--batch-size=0"], "batch_size must be greater than 0; received 0"),
        (["--stage-passed=1.5"], "stage_passed must be from 0 to 1; received 1.5"),
        (["--network=nope"], "nope"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(refusal, arguments, message):
    from train_scripts import train_nth_farthest

    said = refusal(train_nth_farthest, "fast", *arguments)
    assert re.search(message, said, re.IGNORECASE)


@pytest.mark.parametrize("preset", ["fast", "five", "paper"])
def test_a_schedule_without_a_warm_up_runs(tmp_path, preset):
    from rrl_tf.training import make_optimizer
    from train_scripts import train_nth_farthest

    for schedule in ("constant", "cosine"):
        config = dataclasses.replace(
            train_nth_farthest.PRESETS[preset], warmup_steps=0, schedule=schedule
        )
        optimizer = make_optimizer(config.optimizer, **config.optimizer_options(config.steps))
        assert optimizer.learning_rate == config.learning_rate


def test_what_was_not_asked_has_no_accuracy():
    """Of few questions a kind may be missing; its nan could not be exported, at the run's end."""
    from train_scripts.train_nth_farthest import accuracy_of_each

    right, ranks = np.array([True, False, True]), np.array([0, 0, 2])
    assert accuracy_of_each(right, ranks, 4) == [0.5, None, 1.0, None]
