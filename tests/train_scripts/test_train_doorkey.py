import dataclasses
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import typing

import keras
import numpy as np
import pytest
from run_metrics import metrics

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]

ROOT = pathlib.Path(__file__).parents[2]

TOY = [
    "--num-rounds=1",
    "--steps=640",
    "--max-steps=20",
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
        "num_rounds": 1,  # halves the time of tracing
        "steps": 640,
        "max_steps": 20,  # short evaluations and films
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory, few_pictures):
    """Return a finished run of `toy_config` and its agent."""
    from train_scripts import train_doorkey

    return train_doorkey.main(toy_config(tmp_path_factory.mktemp("trained")))


@pytest.fixture
def copied(trained, tmp_path):
    """Return the folder of a copy of that run."""
    return shutil.copytree(trained[0].folder.path, tmp_path / "toy")


def test_run_writes_log_evaluation_figures_and_export(trained, copied):
    from rrl_tf.export import load_policy
    from train_scripts import train_doorkey

    run, agent = trained
    folder = run.folder
    assert json.loads((folder.path / "config.json").read_text())["steps"] == 640
    assert [int(row["step"]) for row in metrics(folder.path)] == [160, 320, 480, 640]
    rate = float(metrics(folder.path)[-1]["train/learning_rate"])
    assert rate == pytest.approx(float(agent.optimizer.learning_rate))
    summary = json.loads((folder.path / "evaluation.json").read_text())
    assert 0 <= summary["eval/success"] <= 1
    assert {path.name for path in folder.figures.iterdir()} == {"attention.png", "episode.gif"}
    policy = load_policy(folder.export / "1")
    task = train_doorkey.make_task(run.config)
    env = task.make_test_env()
    observations = np.stack([env.reset(**reset)[0] for reset in task.evaluation_resets()])
    np.testing.assert_array_equal(policy.act(observations), agent.greedy(observations))
    assert policy.details["scores"]["eval/success"] == summary["eval/success"]

    again, _ = train_doorkey.main(toy_config(copied.parent))
    assert [path.name for path in again.folder.export.iterdir()] == ["1"]


def test_resume_after_kill_is_bit_exact(tmp_path, trained, unfinished):
    from train_scripts import train_doorkey

    whole, killed = trained[0].folder.path, tmp_path / "toy"
    process = train(tmp_path)
    while process.poll() is None and not list(killed.glob("checkpoints/0*")):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    assert not (killed / "evaluation.json").exists()

    train_doorkey.main(toy_config(tmp_path))
    assert metrics(killed) == metrics(whole)
    arrays = [np.load(run / "checkpoints" / "0000000640" / "arrays.npz") for run in (killed, whole)]
    assert set(arrays[0].files) == set(arrays[1].files)
    for name in arrays[0].files:
        np.testing.assert_array_equal(arrays[0][name], arrays[1][name], err_msg=name)


def test_run_resumes_with_more_steps(copied):
    from train_scripts import train_doorkey

    before = metrics(copied)
    run, _ = train_doorkey.main(toy_config(copied.parent, steps=800))
    after = metrics(run.folder.path)
    assert after[:-1] == before and [int(row["step"]) for row in after[-1:]] == [800]
    assert sorted(path.name for path in run.folder.export.iterdir()) == ["1", "2"]


@pytest.mark.slow
def test_resume_in_the_graph_is_bit_exact(tmp_path):
    from train_scripts import train_doorkey

    def train(name, steps):
        config = toy_config(tmp_path, name=name, steps=steps, loop="graph", sizes=(5, 6))
        return train_doorkey.main(config)[0].folder

    whole, parts = train("whole", 640), [train("parts", steps) for steps in (320, 640)][1]
    assert [int(row["step"]) for row in metrics(whole.path)] == [160, 320, 480, 640]
    assert metrics(parts.path) == metrics(whole.path)
    states = [np.load(f.path / "checkpoints/0000000640/arrays.npz") for f in (whole, parts)]
    assert set(states[0].files) == set(states[1].files)
    for name in states[0].files:
        np.testing.assert_array_equal(states[0][name], states[1][name], err_msg=name)
    assert {path.name for path in whole.figures.iterdir()} == {"attention.png", "episode.gif"}
    assert json.loads((whole.path / "evaluation.json").read_text())["eval/level"] == 2


def test_intervals_are_independent_and_the_run_is_finished_once(tmp_path, capfd):
    from train_scripts import train_doorkey

    every = {"log_every": 1000, "evaluate_every": 48, "checkpoint_every": 72}
    config = toy_config(tmp_path, steps=165, evaluation_episodes=2, **every)
    for _ in range(2):
        run, _ = train_doorkey.main(config)
        assert [path.name for path in run.folder.export.iterdir()] == ["1"]
    assert "| 165/165 [" in capfd.readouterr().err
    rows = metrics(run.folder.path)
    evaluated = [int(row["step"]) for row in rows if row["eval/success"]]
    assert evaluated == [48, 96, 144]
    assert [int(row["step"]) for row in rows] == [48, 72, 96, 144, 168]
    assert json.loads((run.folder.path / "evaluation.json").read_text())["step"] == 168


def test_large_grid_is_evaluated_on_seeds(tmp_path):
    from train_scripts import train_doorkey

    config = toy_config(
        tmp_path, sizes=(9,), steps=16, max_steps=20, evaluation_episodes=2, updates_per_step=0.0
    )
    run, _ = train_doorkey.main(config)
    assert {path.name for path in run.folder.figures.iterdir()} == {"attention.png", "episode.gif"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_saves_a_checkpoint(tmp_path, monkeypatch, capsys, number, code):
    from rrl_tf.training import MetricsLog
    from train_scripts import command_line, train_doorkey

    write = MetricsLog.write

    def interrupted(self, step, row):
        write(self, step, row)
        if step == 160:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(MetricsLog, "write", interrupted)
    few = ["--steps=100000", "--checkpoint-every=100000"]
    monkeypatch.setattr(sys, "argv", ["_", f"--runs={tmp_path}", "--name=toy", *TOY, *few])
    with pytest.raises(SystemExit) as ended:
        command_line.run_preset(train_doorkey.main, train_doorkey.PRESETS, default="fast")
    assert ended.value.code == code
    [checkpoint] = (tmp_path / "toy" / "checkpoints").iterdir()
    assert int(checkpoint.name) == int(metrics(tmp_path / "toy")[-1]["step"]) < 1000
    assert not (tmp_path / "toy" / "evaluation.json").exists()
    assert ("the same command resumes" in capsys.readouterr().err) == (number == signal.SIGINT)


@pytest.mark.parametrize(
    "preset",
    [
        "book",
        pytest.param("book-published", marks=pytest.mark.slow),
        "fast-6x6",
        pytest.param("quick", marks=pytest.mark.slow),
        pytest.param("few-steps", marks=pytest.mark.slow),
        pytest.param("zambaldi", marks=pytest.mark.slow),
    ],
)
def test_preset_trains(tmp_path, preset):
    from train_scripts import train_doorkey

    config = dataclasses.replace(
        train_doorkey.PRESETS[preset],
        runs=str(tmp_path),
        steps=64,
        max_steps=20,
        num_envs=2,
        updates_per_step=0.1,
        learning_starts=20,
        batch_size=4,
        log_every=32,
        evaluate_every=64,
        evaluation_episodes=3,
        jit_compile=False,
    )
    run, agent = train_doorkey.main(config)
    state = run.load()
    assert state["loop"]["step"] == 64
    assert state["loop"]["updates"] > 0
    assert all(np.isfinite(weight).all() for weight in agent.network.get_weights())


@pytest.mark.parametrize("size", [5, 6])
def test_most_in_sight_is_the_maximum_over_all_states(size):
    from rrl_tf.envs.minigrid_view import most_in_sight
    from train_scripts import train_doorkey

    task = train_doorkey.make_task(dataclasses.replace(train_doorkey.FAST, sizes=(size,)))
    env, in_sight = task.make_test_env(), 0
    for reset in task.evaluation_resets(at_most=816)[:: 12 if size == 6 else 1]:
        env.reset(**reset)
        in_sight = max(in_sight, *cells_in_sight(env.unwrapped, size))
    assert in_sight == most_in_sight(size)


def cells_in_sight(room, size):
    """Yield the number of visible cells for every pose, with the door closed and open."""
    cells = {(x, y): room.grid.get(x, y) for x in range(size) for y in range(size)}
    [door] = [thing for thing in cells.values() if thing and thing.type == "door"]
    for is_open, (place, thing) in itertools.product((False, True), cells.items()):
        door.is_open = is_open
        if thing is None or thing.can_overlap():
            for direction in range(4):
                room.agent_pos, room.agent_dir = np.array(place), direction
                yield (room.gen_obs()["image"][..., 0] != 0).sum()


def test_bound_entities_changes_no_value():
    from train_scripts import train_doorkey
    from train_scripts.train_doorkey import FAST

    task = train_doorkey.make_task(FAST)
    env = task.make_test_env()
    views = task.preprocessor(
        np.stack([env.reset(**reset)[0] for reset in task.evaluation_resets()])
    )
    q_values = []
    for bound_entities in (True, False):
        keras.utils.set_random_seed(0)
        config = dataclasses.replace(FAST, bound_entities=bound_entities)
        network = train_doorkey.make_network(config, task)
        q_values.append(keras.ops.convert_to_numpy(network(views)))
        assert network.max_entities == (20 if bound_entities else None)
    np.testing.assert_allclose(*q_values, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 20),
        ({"sizes": (5, 6)}, 30),
        ({"sizes": (8,)}, None),  # all cells can be visible
        ({"preprocessor": "constant"}, None),  # does not mark invisible cells
        ({"network": "zambaldi"}, None),
        ({"network": "fast-relative"}, None),
        ({"network": "grid"}, None),
    ],
)
def test_presets_bound_entities_where_that_is_possible(changes, expected):
    from train_scripts import train_doorkey

    config = dataclasses.replace(train_doorkey.FAST, **changes)
    network = train_doorkey.make_network(config, train_doorkey.make_task(config))
    assert network.max_entities == expected


def test_book_preset_has_the_books_numbers():
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
        (["--network=resnet"], r"resnet"),
        (["--sizes", "4"], r"`size` must be at least 5"),
        (["--sizes", "9", "--held-out"], r"at most 8 with `held_out`.*received 9"),
        (["--batch-size=0"], r"`batch_size` must be greater than 0; received 0"),
        (["--seed=-1"], r"`seed` must be .*received -1"),
        (
            ["--updates-per-step=inf"],
            r"`updates_per_step` must be at least 0 and finite; received inf",
        ),
        (["--learning-rate=nan"], r"`learning_rate` must be greater than 0; received nan"),
        (["--discount=1.5"], r"`discount` must be from 0 to 1; received 1.5"),
    ],
)
def test_wrong_option_writes_nothing(rejected, arguments, message):
    from train_scripts import train_doorkey

    error = rejected(train_doorkey, "fast", *arguments)
    assert re.search(message, error)


def test_other_configuration_does_not_resume_a_run(copied):
    from train_scripts import train_doorkey

    with pytest.raises(ValueError, match="seed was 0 and is now 1"):
        train_doorkey.main(toy_config(copied.parent, seed=1))


def test_sizes_of_the_network_are_options(tmp_path):
    from rrl_tf.errors import InvalidInput
    from train_scripts import train_doorkey

    sizes = {"num_heads": 4, "key_size": 8, "num_rounds": 3, "hidden_units": (32, 16)}
    config = dataclasses.replace(train_doorkey.FAST, **sizes)
    network = train_doorkey.make_network(config, train_doorkey.make_task(config))
    found = network.get_config()
    assert (found["num_rounds"], tuple(found["hidden_units"])) == (3, (32, 16))
    assert (found["block"]["num_heads"], found["block"]["key_size"]) == (4, 8)
    with pytest.raises(InvalidInput, match="`num_heads` must be greater than 0; received 0"):
        dataclasses.replace(config, num_heads=0).network_sizes()


def test_help_names_every_network():
    from rrl_tf.agents.config import NETWORKS
    from rrl_tf.models.architectures import RELATIONAL_Q_NETWORK
    from train_scripts import train_doorkey

    kind = typing.get_type_hints(train_doorkey.Config)["network"]
    assert typing.get_args(kind) == tuple(RELATIONAL_Q_NETWORK)
    assert set(RELATIONAL_Q_NETWORK) <= set(NETWORKS)
