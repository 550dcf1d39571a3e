"""`rrl-interpret` explains presets, runs and Keras files."""

import csv
import dataclasses
import json
import re
import shutil
import sys
import time

import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.models import RelationalQNetwork
from train_scripts import interpret as script
from train_scripts import train_box_world, train_doorkey, train_dqn, train_recurrent

pytestmark = pytest.mark.tf_only


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


def test_keras_file_is_explained_with_a_task(monkeypatch, tmp_path, model_file):
    arguments = ("--task=DoorKey-5x5", "--method=ablation", "--states=10", "--out", tmp_path)
    explain(monkeypatch, model_file, *arguments)
    assert "agent.keras on DoorKey-5x5: 10 states" in (tmp_path / "report.html").read_text()


CONFIGS = {
    "DoorKey-6x6": dataclasses.replace(train_doorkey.PRESETS["fast"], sizes=(6,), frames=2),
    "MemoryS7": train_recurrent.PRESETS["memory-s7"],
    "BoxWorld-8x8": train_box_world.PRESETS["box-world"],
    "CartPole-v1": train_dqn.Config(env="CartPole-v1"),
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
        (["nothing"], r"`model` must be the folder of a run, .* doorkey-5x5.*received 'nothing'"),
        (["mnist-relational"], "`model` must play a task"),
    ],
)
def test_wrong_models_end_with_one_line(monkeypatch, capsys, arguments, message):
    with pytest.raises(SystemExit):
        explain(monkeypatch, *arguments)
    [line] = capsys.readouterr().err.splitlines()
    assert re.match(f"error: {message}", line)


def test_keras_file_without_a_task_is_refused(model_file):
    with pytest.raises(InvalidInput, match="`--task` must be given"):
        script.load(str(model_file))


@pytest.mark.slow
def test_all_methods_on_200_states_take_a_minute_of_two_cores(tmp_path):
    began = time.process_time()  # of all threads: other processes do not count
    script.explain(script.Config("doorkey-5x5", out=str(tmp_path)))
    assert time.process_time() - began < 60
    assert len(list(tmp_path.glob("*.png"))) == len(script.METHODS)
