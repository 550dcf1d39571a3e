"""Loggers receive everything, and a resumed run continues the same run of a service."""

import dataclasses
import json
import sys
import urllib.parse

import numpy as np
import pytest
from PIL import Image

from rrl_tf import viz
from rrl_tf.errors import InvalidInput
from rrl_tf.training import Logger, MetricsLog, Run, RunConfig, make_loggers
from train_scripts import command_line

pytestmark = pytest.mark.tf_only

PICTURE = np.random.default_rng(0).integers(256, size=(6, 5, 3), dtype="uint8")


def opened(path, logger, steps=100, name="first"):
    config = RunConfig(runs=str(path / "doorkey"), name=name, logger=logger)
    return Run(config, steps)


def film(folder):
    frames = np.stack([PICTURE.repeat(4, 0).repeat(4, 1)] * 3)
    frames[1] = 255 - frames[1]
    return viz.save_film(frames, folder / "episode.gif")


def interrupted_run(path, logger):
    """Log a run that stops after its checkpoint and resumes; return its film."""
    run = opened(path, logger)
    run.log.write(10, {"train/loss": 0.5})
    run.log.image(10, "attention", PICTURE)
    shown = film(run.folder.figures)
    run.log.film(10, "episode", shown)
    run.save(10, {"loop": {}})
    run = opened(path, logger)
    run.log.write(100, {"train/loss": 0.25})
    run.save(100, {"loop": {}})
    run.finish({})
    return shown


def test_wandb_receives_everything_in_one_run(tmp_path, wandb):
    film_file = interrupted_run(tmp_path, ("wandb",))
    (calls,) = wandb.runs.values()
    settings = calls[2]
    assert settings["seed"] == 0 and settings["name"] == "first"
    again = [("*", "step"), settings]
    assert calls == [
        ("doorkey", "first", str(tmp_path / "doorkey" / "first")),
        *again,
        {"step": 10, "train/loss": 0.5},
        {"step": 10, "attention": (6, 5, 3)},
        {"step": 10, "episode": str(film_file)},
        *again,
        {"step": 100, "train/loss": 0.25},
        "finished",
    ]


def test_mlflow_receives_everything_in_one_run(tmp_path, mlflow):
    film_file = interrupted_run(tmp_path, ("mlflow",))
    ((run_id, calls),) = mlflow.runs.items()
    assert mlflow.experiments == {"doorkey": "experiment0"}
    settings = calls[1]
    assert settings[0] == "config.json" and settings[1]["name"] == "first"
    assert mlflow.params[run_id]["seed"] == "0"
    assert calls == [
        ("experiment0", "first"),
        settings,
        ("train/loss", 0.5, 10),
        ("attention", (6, 5, 3), 10),
        (str(film_file), "films/10"),
        settings,
        ("train/loss", 0.25, 100),
    ]
    assert mlflow.status == {run_id: "FINISHED"}


def test_changed_settings_reach_mlflow_as_an_artifact(tmp_path, mlflow):
    run = opened(tmp_path, ("mlflow",))
    run.save(100, {"loop": {}})
    moved = dataclasses.replace(run.config, profile=True)  # may differ in the same run
    Run(moved, 200)
    ((run_id, calls),) = mlflow.runs.items()
    assert mlflow.params[run_id]["profile"] == "False"
    assert calls[-1][1]["profile"] is True
    assert mlflow.status[run_id] == "RUNNING"


def test_environment_variables_name_projects(tmp_path, mlflow, wandb, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "ours")
    opened(tmp_path, ("mlflow", "wandb"))
    assert wandb.runs["id0"][0][0] == "mine"
    assert mlflow.experiments.keys() == {"ours"}


def test_finished_run_is_not_logged_again(tmp_path, wandb):
    run = opened(tmp_path, ("wandb", "tensorboard"))
    run.save(100, {"loop": {}})
    run.finish({})
    files = sorted(path.name for path in run.folder.path.iterdir())
    again = opened(tmp_path, ("wandb", "tensorboard"))
    assert again.is_finished() and again.log.loggers == []
    assert wandb.runs["id0"][-1] == "finished"
    assert sorted(path.name for path in run.folder.path.iterdir()) == files


def test_csv_alone_opens_no_logger(tmp_path):
    run = opened(tmp_path, ("csv",))
    run.log.write(10, {"train/loss": 0.5})
    assert (run.folder.path / "metrics.csv").read_text() == "step,train/loss\n10,0.5\n"
    assert not list(run.folder.path.glob("events*"))


def test_missing_package_writes_nothing(tmp_path, monkeypatch):
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(InvalidInput, match=rf"{name} needs pip install '\.\[{name}\]'"):
            opened(tmp_path, ("tensorboard", name))
    assert not list(tmp_path.iterdir())


def test_folder_with_the_name_of_a_package_is_not_the_package(tmp_path, monkeypatch):
    (tmp_path / "wandb").mkdir()
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(InvalidInput, match="wandb needs pip install"):
        RunConfig(logger=("wandb",))


def test_refusal_of_a_service_is_one_line(tmp_path, wandb):
    wandb.refuses = "no API key\nlog in first"
    with pytest.raises(
        InvalidInput,
        match=r"logger wandb cannot be opened; .*received ConnectionError: no API key$",
    ):
        opened(tmp_path, ("wandb",))
    wandb.refuses = ""
    opened(tmp_path, ("wandb",))  # the same command continues


def test_refused_new_run_leaves_nothing_behind(tmp_path, mlflow, wandb):
    wandb.refuses = "no API key"
    with pytest.raises(InvalidInput, match="no API key"):
        opened(tmp_path, ("mlflow", "tensorboard", "wandb"))
    assert mlflow.status == {"id0": "FINISHED"}
    assert not list(tmp_path.iterdir())


def test_refused_resumed_run_is_unchanged(tmp_path, mlflow, wandb):
    opened(tmp_path, ("csv",)).save(10, {"loop": {}})
    wandb.refuses = "no API key"
    with pytest.raises(InvalidInput, match="no API key"):
        opened(tmp_path, ("mlflow", "wandb"))
    assert mlflow.status == {"id0": "FINISHED"}
    assert opened(tmp_path, ("csv",)).step == 10


def test_run_that_the_service_lost_is_one_error(tmp_path, mlflow, monkeypatch):
    def unknown(run_id, status):
        raise mlflow.MlflowException(f"Run '{run_id}' not found")

    (tmp_path / "loggers.json").write_text('{"mlflow": "gone"}')
    monkeypatch.setattr(mlflow, "update_run", unknown)
    with pytest.raises(
        InvalidInput, match=r"remove loggers\.json to start a new log; received .*Run 'gone"
    ):
        make_loggers(["mlflow"], tmp_path)


def test_unknown_logger_is_rejected():
    with pytest.raises(InvalidInput, match=r"`logger` must be one of .*; received 'printer'"):
        RunConfig(logger=("printer",))


def test_damaged_service_ids_are_rejected(tmp_path, wandb):
    (tmp_path / "loggers.json").write_text("[]")
    with pytest.raises(InvalidInput, match="must hold a JSON object; remove it to start a new log"):
        make_loggers(["wandb"], tmp_path)
    assert not wandb.runs


def test_loggers_close_before_the_run_is_finished(tmp_path):
    seen = []

    class Late(Logger):
        def close(self):
            seen.append((run.folder.path / "evaluation.json").exists())
            raise ConnectionError("no route")

    run = opened(tmp_path, ("csv",))
    run.log.loggers = [Late()]
    run.save(100, {"loop": {}})
    with pytest.warns(UserWarning, match="without Late; received ConnectionError: no route"):
        run.finish({})
    assert seen == [False] and run.is_finished()


def test_command_line_accepts_several_loggers(tmp_path, monkeypatch, capsys, wandb):
    seen = []
    monkeypatch.setattr(sys, "argv", ["train", "--logger", "tensorboard", "wandb"])
    command_line.run(lambda config: seen.append(config.logger), RunConfig, description="x")
    assert seen == [("tensorboard", "wandb")]
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SystemExit, match="2"):
        command_line.run(seen.append, RunConfig, description="x")
    assert "logger wandb needs pip install '.[wandb]'" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["train", "--logger", "printer"])
    with pytest.raises(SystemExit):
        command_line.run(seen.append, RunConfig, description="x")
    assert "printer" in capsys.readouterr().err


def test_tensorboard_serves_the_gif_file(tmp_path):
    """TensorBoard's server returns the animation with its MIME type."""
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.image import images_plugin
    from tensorboard.util import img_mime_type_detector

    shown = film(tmp_path / "figures")
    log = MetricsLog(tmp_path / "run")
    log.film(7, "episode", shown)
    events = plugin_event_multiplexer.EventMultiplexer()
    events.AddRunsFromDirectory(str(tmp_path / "run"))
    events.Reload()
    provider = data_provider.MultiplexerDataProvider(events, str(tmp_path))
    plugin = images_plugin.ImagesPlugin(
        base_plugin.TBContext(data_provider=provider, sampling_hints={})
    )
    (entry,) = plugin._image_response_for_run(RequestContext(), "", ".", "episode", 0)
    key = urllib.parse.parse_qs(entry["query"])["blob_key"][0]
    content = plugin._get_generic_data_individual_image(RequestContext(), key)
    assert entry["step"] == 7
    assert content == shown.read_bytes()
    assert img_mime_type_detector.from_bytes(content) == "image/gif"
    with Image.open(shown) as picture:
        assert picture.n_frames == 3


@pytest.mark.filterwarnings("ignore")
def test_real_wandb(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    interrupted_run(tmp_path, ("wandb",))
    folder = tmp_path / "doorkey" / "first"
    run_id = json.loads((folder / "loggers.json").read_text())["wandb"]
    files = sorted((folder / "wandb").glob(f"offline-run-*/run-{run_id}.wandb"))
    written = b"".join(file.read_bytes() for file in files)
    assert b"train/loss" in written and b"attention" in written and b"episode" in written
    (gif,) = (folder / "wandb").glob("offline-run-*/files/media/**/*.gif")
    assert gif.read_bytes() == (folder / "figures" / "episode.gif").read_bytes()
    wandb.teardown()


@pytest.mark.filterwarnings("ignore")
def test_real_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    interrupted_run(tmp_path, ("mlflow",))
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("doorkey")
    (run,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(each.step, each.value) for each in history] == [(10, 0.5), (100, 0.25)]
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    assert run.data.params["seed"] == "0"
    names = {each.path for each in client.list_artifacts(run.info.run_id)}
    assert {"config.json", "films", "images"} <= names
