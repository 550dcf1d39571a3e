"""`rrl-interpret` explains presets, runs and Keras files."""

import csv
import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

import keras
import pytest

from rrl_tf import interpret
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RelationalQNetwork
from rrl_tf.training import optimizers
from train_scripts import interpret as script
from train_scripts import (
    train_atari,
    train_box_world,
    train_decision_transformer,
    train_doorkey,
    train_dqn,
    train_recurrent,
)

pytestmark = pytest.mark.tf_only
ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("models") / "agent.keras"
    RelationalQNetwork.from_preset("doorkey-5x5").save(file)
    return file


def explain(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["rrl-interpret", *map(str, arguments)])
    script.main()


@pytest.mark.parametrize("method", ["ablation", "probes"])
def test_preset_is_explained_in_a_figure_a_table_and_a_report(monkeypatch, tmp_path, method):
    explain(monkeypatch, "doorkey-5x5", "--method", method, "--states", 25, "--out", tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        *(f"{method}.png", f"{method}.csv", "report.html")
    }
    rows = list(csv.DictReader((tmp_path / f"{method}.csv").read_text().splitlines()))
    page = (tmp_path / "report.html").read_text()
    assert page.count("<tr>") == len(rows) + 1 and page.count("data:image/png") == 1
    assert "doorkey-5x5 on DoorKey-5x5: 25 states" in page and page.endswith("</html>\n")


def test_recurrent_preset_without_attention_is_ablated(monkeypatch, tmp_path):
    arguments = ("memory-s17", "--method=ablation", "--states=12", "--out", tmp_path)
    explain(monkeypatch, *arguments)
    assert "memory, slot 2" in (tmp_path / "ablation.csv").read_text()


def test_methods_that_do_not_fit_are_left_out(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(script, "METHODS", {n: script.METHODS[n] for n in ("ablation", "curves")})
    explain(monkeypatch, "memory-s17", "--states=10", "--out", tmp_path)
    assert "left out: curves, because `model` must have rounds of att" in capsys.readouterr().out
    assert {file.name for file in tmp_path.iterdir()} == {
        *("ablation.png", "ablation.csv", "report.html")
    }


def test_a_checkpoint_is_read_without_its_optimizer(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizers.AdamW(1e-3), "mse")
    model.save(tmp_path / "model.keras")
    program = "import sys; from train_scripts.interpret import read_keras as r; r(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, tmp_path / "model.keras"], check=True, cwd=ROOT)


def test_help_has_one_example_per_line(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        explain(monkeypatch, "--help")
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert sum(line.startswith("rrl-interpret ") for line in lines) == 3


def test_keras_file_is_explained_with_a_task(monkeypatch, tmp_path, model_file):
    arguments = ("--task=DoorKey-5x5", "--method=ablation", "--states=10", "--out", tmp_path)
    explain(monkeypatch, model_file, *arguments)
    assert "agent.keras on DoorKey-5x5: 10 states" in (tmp_path / "report.html").read_text()


CONFIGS = {
    "DoorKey-6x6": dataclasses.replace(train_doorkey.PRESETS["fast"], sizes=(6,), frames=2),
    "MemoryS7": train_recurrent.PRESETS["memory-s7"],
    "BoxWorld-8x8": train_box_world.PRESETS["box-world"],
    "CartPole-v1": train_dqn.Config(env="CartPole-v1"),
    "ALE/Alien-v5": train_atari.PRESETS["atari-100k"],
}


@pytest.mark.parametrize("name", CONFIGS)
def test_task_of_a_run_comes_from_its_settings(name, tmp_path, model_file):
    (tmp_path / "checkpoints" / "0000000010").mkdir(parents=True)
    settings = {**dataclasses.asdict(CONFIGS[name]), "task": name, "parameters": 1}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(InvalidInput, match="must have a checkpoint"):
        script.load(str(tmp_path))
    shutil.copy(model_file, tmp_path / "checkpoints" / "0000000010" / "model.keras")
    model, task = script.load(str(tmp_path))
    assert isinstance(model, RelationalQNetwork) and task.name == name
    if name.startswith("DoorKey"):
        assert task.observation_space.shape == (7, 7, 8)  # two frames


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], r"`model` must be a run .* train_dqn.*; received 'nothing'.* doorkey-5x5"),
        (["mnist-relational"], "`model` must be a run .*'mnist-relational', a RelationalClass"),
        (["dt-doorkey"], "`model` must be a run .* 'dt-doorkey', a DecisionTransformer"),
        (["doorkey-5x5", "--states=0"], "`states` must be a positive integer; received 0"),
        (["doorkey-5x5", "--out=file/folder"], r".*Not a directory"),
        (["doorkey-5x5", "--task=CartPole-v1"], "`model` must be a Q network of CartPole-v1"),
        (["memory-s17", "--method=curves"], "`model` must have rounds of attention"),
        (["damaged.keras", "--task=CartPole-v1"], "`model` must be a file that Keras can read"),
        (["run"], r"run/config.json is not JSON .*; restore the file"),
        (["offline"], "`model` must be a run .* train_doorkey.*; received another run"),
    ],
)
def test_wrong_models_end_with_one_line(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    for file, text in {
        "file": "",
        "damaged.keras": "PK",
        "run/config.json": "{",
        "offline/config.json": json.dumps(
            dataclasses.asdict(train_decision_transformer.PRESETS["min-dt"])
        ),
    }.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    monkeypatch.setattr(interpret, "ablate", lambda *_, **__: pytest.fail("the model was run"))
    with pytest.raises(SystemExit):
        explain(monkeypatch, *arguments)
    [line] = capsys.readouterr().err.splitlines()
    assert re.match(f"error: {message}", line)
    assert not list(tmp_path.glob("**/*.png"))


@pytest.mark.parametrize("name", ["MemoryS7Random", "ComparisonS6", "KeyCorridorS3R1"])
def test_task_of_a_packaged_policy_comes_from_its_name(name):
    assert script.named_task(name).name == name


def test_keras_file_without_a_task_is_refused(model_file):
    with pytest.raises(InvalidInput, match="`--task` must be given"):
        script.load(str(model_file))


@pytest.mark.slow
def test_all_methods_on_200_states_take_a_minute_of_two_cores(tmp_path):
    began = time.process_time()  # CPU time of all threads of this process
    script.explain(script.Config("doorkey-5x5", out=str(tmp_path)))
    assert time.process_time() - began < 60
    assert len(list(tmp_path.glob("*.png"))) == len(script.METHODS)
