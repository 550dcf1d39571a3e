import csv
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytestmark = pytest.mark.tf_only

ROOT = pathlib.Path(__file__).parents[2]

TOY = [
    "--steps=640",
    "--num-envs=8",
    "--batch-size=8",
    "--learning-starts=100",
    "--updates-per-step=0.05",
    "--log-every=160",
    "--evaluate-every=320",
    "--checkpoint-every=160",
    "--no-jit-compile",
]


def toy_config(tmp_path, **changes):
    from train_scripts.train_doorkey import FAST

    numbers = {
        "steps": 640,
        "num_envs": 8,
        "batch_size": 8,
        "learning_starts": 100,
        "updates_per_step": 0.05,
        "log_every": 160,
        "evaluate_every": 320,
        "checkpoint_every": 160,
        "jit_compile": False,
        "runs": str(tmp_path),
        "name": "toy",
    }
    return dataclasses.replace(FAST, **{**numbers, **changes})


def train(runs, *arguments):
    command = [sys.executable, "-m", "train_scripts.train_doorkey", f"--runs={runs}", "--name=toy"]
    return subprocess.Popen(
        [*command, *TOY, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def metrics(run):
    """Rows of metrics.csv without the times."""
    with open(run / "metrics.csv", newline="") as file:
        return [
            {name: cell for name, cell in row.items() if not name.startswith("time/")}
            for row in csv.DictReader(file)
        ]


def test_a_run_leaves_everything_it_promises(tmp_path):
    from rrl_tf.export import load_policy
    from train_scripts import train_doorkey

    config = toy_config(tmp_path)
    folder, agent = train_doorkey.main(config)
    assert json.loads((folder.path / "config.json").read_text())["steps"] == 640
    assert [int(row["step"]) for row in metrics(folder.path)] == [160, 320, 480, 640]
    summary = json.loads((folder.path / "evaluation.json").read_text())
    assert 0 <= summary["eval/success"] <= 1
    assert {path.name for path in folder.figures.iterdir()} == {"attention.png", "episode.gif"}
    policy = load_policy(folder.export / "1")
    resets = train_doorkey.evaluation_resets(config)
    env = train_doorkey.make_env(config)
    observations = np.stack([env.reset(**reset)[0] for reset in resets])
    np.testing.assert_array_equal(policy.act(observations), agent.greedy(observations))
    assert policy.details["scores"]["eval/success"] == summary["eval/success"]

    again, _ = train_doorkey.main(config)  # nothing left to do, and nothing done
    assert [path.name for path in again.export.iterdir()] == ["1"]


def test_a_killed_run_resumed_equals_one_that_was_not_killed(tmp_path):
    whole, killed = tmp_path / "whole" / "toy", tmp_path / "killed" / "toy"
    process = train(killed.parent)
    while process.poll() is None and not list(killed.glob("checkpoints/0*")):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was over before it could be killed"
    assert not (killed / "evaluation.json").exists()

    running = [train(killed.parent), train(whole.parent)]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    assert metrics(killed) == metrics(whole)
    arrays = [np.load(run / "checkpoints" / "0000000640" / "arrays.npz") for run in (killed, whole)]
    assert set(arrays[0].files) == set(arrays[1].files)
    for name in arrays[0].files:
        np.testing.assert_array_equal(arrays[0][name], arrays[1][name], err_msg=name)


def test_a_run_goes_on_when_more_steps_are_asked_for(tmp_path):
    from train_scripts import train_doorkey

    train_doorkey.main(toy_config(tmp_path, steps=320))
    folder, _ = train_doorkey.main(toy_config(tmp_path, steps=640))
    assert [int(row["step"]) for row in metrics(folder.path)] == [160, 320, 480, 640]
    assert sorted(path.name for path in folder.export.iterdir()) == ["1", "2"]


@pytest.mark.parametrize("preset", ["book", "book-published", "fast-6x6", "zambaldi"])
def test_every_preset_runs(tmp_path, preset):
    from train_scripts import train_doorkey

    config = dataclasses.replace(
        train_doorkey.PRESETS[preset],
        runs=str(tmp_path),
        steps=64,
        num_envs=2,
        updates_per_step=0.1,
        learning_starts=20,
        batch_size=4,
        log_every=32,
        evaluate_every=64,
        evaluation_episodes=3,
        jit_compile=False,
    )
    folder, agent = train_doorkey.main(config)
    state = folder.load_checkpoint()
    assert state["loop"]["step"] == 64
    assert state["loop"]["updates"] > 0
    assert np.isfinite(agent.q_values(np.zeros((1, *agent_shape(config)), "uint8"))).all()


def agent_shape(config):
    from train_scripts import train_doorkey

    return train_doorkey.make_env(config).observation_space.shape


def test_the_presets_say_what_the_book_says():
    from train_scripts.train_doorkey import BOOK, PRESETS

    assert (BOOK.batch_size, BOOK.replay_capacity, BOOK.learning_rate) == (50, 9000, 5e-4)
    assert (BOOK.epsilon_start, BOOK.epsilon_end, BOOK.discount) == (0.5, 0.5, 0.99)
    assert (BOOK.target_period, BOOK.positive_copies, BOOK.clip_norm) == (100, 50, 1.0)
    assert not BOOK.select_at_t
    assert PRESETS["book-published"].select_at_t
    assert all(preset == config.preset for preset, config in PRESETS.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset=fsat"], r"unknown preset 'fsat', expected one of fast, fast-6x6"),
        (["--network=resnet"], r"resnet"),
        (["--observation=compass", "--preparation=frame_maximum"], r"cannot be prepared"),
        (["--sizes", "4"], r"size must be at least 5, received 4"),
        (["--batch-size=many"], r"many"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    tmp_path, monkeypatch, capsys, arguments, message
):
    from train_scripts import command_line, train_doorkey

    runs = tmp_path / "runs"
    monkeypatch.setattr(sys, "argv", ["train_doorkey", f"--runs={runs}", *arguments])
    with pytest.raises(SystemExit) as ended:
        command_line.run_preset(train_doorkey.main, train_doorkey.PRESETS, default="fast")
    assert ended.value.code not in (0, None)
    assert re.search(message, capsys.readouterr().err)
    assert not list(runs.rglob("checkpoints/*"))


def test_another_configuration_in_the_same_folder_is_refused(tmp_path):
    from train_scripts import train_doorkey

    train_doorkey.main(toy_config(tmp_path, steps=160))
    with pytest.raises(ValueError, match="seed is 0 there and 1 here"):
        train_doorkey.main(toy_config(tmp_path, steps=160, seed=1))
