"""Rows of metrics are complete, resume with the run, and reach TensorBoard."""

import contextlib
import csv
import functools
import sys
import urllib.parse

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2

from rrl_tf import viz
from rrl_tf.errors import InvalidInput
from rrl_tf.training import Logger, MetricsLog, Run, RunConfig
from train_scripts import command_line

pytestmark = pytest.mark.tf_only


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def events(folder):
    """Return the scalars and images of TensorBoard files as (name, step) -> value."""
    import tensorflow as tf

    found = {}
    for file in folder.glob("events*"):
        for record in tf.data.TFRecordDataset([str(file)]):
            event = event_pb2.Event.FromString(record.numpy())
            for value in event.summary.value:
                found[value.tag, event.step] = tf.make_ndarray(value.tensor)
    return found


def test_csv_and_tensorboard_have_the_same_values(tmp_path):
    log = MetricsLog(tmp_path)
    log.write(10, {"train/loss": 0.125, "time/steps_per_second": 1234.5678})
    log.write(20, {"train/loss": 0.5, "eval/success": 1.0})
    rows = read(tmp_path / "metrics.csv")
    assert rows[0] == {
        "step": "10",
        "train/loss": "0.125",
        "time/steps_per_second": "1234.57",
        "eval/success": "",
    }
    assert rows[1]["eval/success"] == "1"
    scalars = events(tmp_path)
    assert scalars["train/loss", 20] == pytest.approx(0.5)
    assert scalars["eval/success", 20] == 1.0
    assert ("eval/success", 10) not in scalars


def test_metrics_of_the_same_step_share_an_entry(tmp_path):
    log = MetricsLog(tmp_path)
    log.write(10, {"train/loss": 0.5})
    log.write(20, {"train/loss": 0.25})
    for value in (1.0, 2.0):  # a repeated evaluation replaces its values
        log.write(20, {"eval/return": value})
    assert log.rows == [
        {"step": 10, "train/loss": 0.5},
        {"step": 20, "train/loss": 0.25, "eval/return": 2.0},
    ]
    assert [row["eval/return"] for row in read(tmp_path / "metrics.csv")] == ["", "2"]
    assert events(tmp_path)["train/loss", 20] == 0.25


def test_rows_after_the_checkpoint_are_replaced(tmp_path):
    log = MetricsLog(tmp_path)
    for step in (10, 20, 30):
        log.write(step, {"train/loss": step / 100})
    resumed = MetricsLog(tmp_path, until_step=20)
    resumed.write(30, {"train/loss": 7.0})
    rows = read(tmp_path / "metrics.csv")
    assert [row["step"] for row in rows] == ["10", "20", "30"]
    assert rows[-1]["train/loss"] == "7"


@pytest.mark.parametrize(
    "content",
    [
        b"step,train/loss\n1,abc\n",
        b"step,train/loss\n1\n",
        b"step,train/loss\n1,2,3\n",
        b"train/loss\n1\n",
        b"step,train/loss\n,2\n",
        b"",
        b"\xff\xfe\x00",
        b'step,"train/loss\n1,2\n',
    ],
)
def test_damaged_log_is_rejected_and_unchanged(tmp_path, content):
    (tmp_path / "metrics.csv").write_bytes(content)
    with pytest.raises(
        InvalidInput, match=r"metrics\.csv must be a CSV file of metrics .*; remove it"
    ):
        MetricsLog(tmp_path, until_step=10)
    assert (tmp_path / "metrics.csv").read_bytes() == content


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it has no rows"),
        (b"step,train/loss\n", "it has no rows"),
        (b"train/loss\n1\n", "a row has no step"),
    ],
)
def test_rejection_of_a_damaged_log_names_the_reason(tmp_path, content, reason):
    (tmp_path / "metrics.csv").write_bytes(content)
    with pytest.raises(InvalidInput, match=rf"must be a CSV file of metrics \({reason}\); remove"):
        MetricsLog(tmp_path)


def test_tensorboard_has_the_pictures(tmp_path):
    picture = np.random.default_rng(0).integers(256, size=(6, 5, 3), dtype="uint8")
    MetricsLog(tmp_path).image(3, "attention", picture)
    width, height, png = events(tmp_path)["attention", 3]
    assert (int(width), int(height)) == (5, 6)
    np.testing.assert_array_equal(tf.io.decode_png(png), picture)


def test_tensorboard_has_the_settings_as_a_table(tmp_path):
    log = MetricsLog(tmp_path)
    log.settings({"seed": 3, "network": "fast"})
    log.write(1, {})
    assert b"| seed | 3 |\n| network | fast |" in events(tmp_path)["config", 0].item()


def board(folder):
    """Return the context through which TensorBoard's plugins read a folder of runs."""
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.plugins import base_plugin

    events = plugin_event_multiplexer.EventMultiplexer()
    events.AddRunsFromDirectory(str(folder))
    events.Reload()
    provider = data_provider.MultiplexerDataProvider(events, str(folder))
    return base_plugin.TBContext(data_provider=provider, sampling_hints={})


def hparams_tab(folder):
    """Return the experiment and session groups that TensorBoard's HPARAMS tab requests."""
    from tensorboard.context import RequestContext
    from tensorboard.plugins.hparams import (
        api_pb2,
        backend_context,
        get_experiment,
        list_session_groups,
    )

    context, request = backend_context.Context(board(folder)), RequestContext()
    experiment = api_pb2.GetExperimentRequest()
    groups = api_pb2.ListSessionGroupsRequest(
        slice_size=10, allowed_statuses=list(api_pb2.Status.values())
    )
    return (
        get_experiment.Handler(request, context, "", experiment).run(),
        list_session_groups.Handler(request, context, "", groups).run().session_groups,
    )


def test_tensorboard_compares_runs_by_settings_and_metrics(tmp_path):
    for seed in range(2):
        log = MetricsLog(tmp_path / f"seed{seed}")
        log.settings({"seed": seed, "sizes": (5, 6), "data": None, "rate": 1e-3, "jit": True})
        log.write(10, {"eval/success": 0.25})
        log.write(20, {"eval/success": 0.5 + 0.25 * seed})
    experiment, groups = hparams_tab(tmp_path)
    assert {info.name for info in experiment.hparam_infos} == {
        *("seed", "sizes", "data", "rate", "jit")
    }
    assert [info.name.tag for info in experiment.metric_infos] == ["eval/success"]
    shown = {group.hparams["seed"].number_value: group.metric_values[0].value for group in groups}
    assert shown == {0: 0.5, 1: 0.75}


def test_resumed_run_reads_the_same_rows(tmp_path):
    log = MetricsLog(tmp_path, loggers=())
    for step, loss in enumerate((0.12345674, 0.12345669, np.float32(0.65), 2), start=1):
        log.write(step, {"eval/loss": loss})
    assert log.rows == MetricsLog(tmp_path, loggers=()).rows
    assert log.rows[2] == {"step": 3, "eval/loss": 0.65}


class Broken(Logger):
    """Logger that raises an error in one method and records all calls."""

    def __init__(self, at):
        self.calls = []
        for name in ("settings", "write", "image", "film", "close"):
            setattr(self, name, functools.partial(self._note, name, name == at))

    def _note(self, name, raises, *what):
        self.calls.append(name)
        if raises:
            raise OSError("the disk is full")


@pytest.mark.parametrize("at", ["settings", "write", "image", "film", "close"])
def test_logger_that_raises_is_removed_with_a_warning(tmp_path, at):
    first, second, sound = Broken(at), Broken(at), Broken(None)
    log = MetricsLog(tmp_path, loggers=[first, second, sound])
    everything = {
        "settings": lambda: log.settings({}),
        "write": lambda: log.write(1, {"train/loss": 0.5}),
        "image": lambda: log.image(1, "picture", np.zeros((6, 5, 3), "uint8")),
        "film": lambda: log.film(1, "film", "film.gif"),
        "close": log.close,
    }
    with pytest.warns(UserWarning) as warned:
        for call in everything.values():
            call()
    message = "Broken raised OSError: the disk is full; the run continues without this logger"
    assert [str(each.message) for each in warned] == [message] * 2
    names = list(everything)
    assert first.calls == second.calls == names[: names.index(at) + 1]
    assert sound.calls == names
    assert (tmp_path / "metrics.csv").read_text() == "step,train/loss\n1,0.5\n"


@pytest.mark.parametrize(
    "value", ["x", None, [1, 2], 10**400], ids=["text", "none", "list", "huge"]
)
def test_metric_that_is_not_a_number_writes_nothing(tmp_path, value):
    log = MetricsLog(tmp_path, loggers=[])
    log.write(1, {"a": 0.5})
    with pytest.raises(InvalidInput, match=r"metric 'b' must be a number; received "):
        log.write(2, {"a": 1.0, "b": value})
    log.write(3, {"a": 2.0})
    assert (tmp_path / "metrics.csv").read_text() == "step,a\n1,0.5\n3,2\n"
    assert log.rows == [{"step": 1, "a": 0.5}, {"step": 3, "a": 2.0}]


def opened(path, *logger):
    return Run(RunConfig(runs=str(path), name="first", logger=logger), steps=100)


def test_csv_alone_opens_no_logger(tmp_path):
    run = opened(tmp_path, "csv")
    run.log.write(10, {"train/loss": 0.5})
    assert (run.folder.path / "metrics.csv").read_text() == "step,train/loss\n10,0.5\n"
    assert not list(run.folder.path.glob("events*"))


def test_finished_run_is_not_logged_again(tmp_path):
    run = opened(tmp_path, "tensorboard")
    run.save(100, {"loop": {}})
    run.finish({})
    files = sorted(path.name for path in run.folder.path.iterdir())
    again = opened(tmp_path, "tensorboard")
    assert again.is_finished() and again.log.loggers == []
    assert sorted(path.name for path in run.folder.path.iterdir()) == files


def test_loggers_close_before_the_run_is_finished(tmp_path):
    seen = []

    class Late(Logger):
        def close(self):
            seen.append((run.folder.path / "evaluation.json").exists())

    run = opened(tmp_path, "csv")
    run.log.loggers = [Late()]
    run.save(100, {"loop": {}})
    run.finish({})
    assert seen == [False] and run.is_finished()


def test_command_line_accepts_several_loggers(monkeypatch, capsys):
    seen = []
    for names in (["tensorboard", "csv"], ["printer"]):
        monkeypatch.setattr(sys, "argv", ["train", "--logger", *names])
        with contextlib.suppress(SystemExit):
            command_line.run(lambda config: seen.append(config.logger), RunConfig, description="x")
    assert seen == [("tensorboard", "csv")] and "printer" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match=r"`logger` must be one of .*; received 'printer'"):
        RunConfig(logger=("printer",))


def test_tensorboard_serves_the_gif_file(tmp_path):
    from tensorboard.context import RequestContext
    from tensorboard.plugins.image import images_plugin
    from tensorboard.util import img_mime_type_detector

    frames = np.random.default_rng(0).integers(256, size=(3, 24, 20, 3), dtype="uint8")
    shown = viz.save_film(frames, tmp_path / "figures" / "episode.gif")
    MetricsLog(tmp_path / "run").film(7, "episode", shown)
    plugin = images_plugin.ImagesPlugin(board(tmp_path / "run"))
    (entry,) = plugin._image_response_for_run(RequestContext(), "", ".", "episode", 0)
    key = urllib.parse.parse_qs(entry["query"])["blob_key"][0]
    content = plugin._get_generic_data_individual_image(RequestContext(), key)
    assert entry["step"] == 7
    assert content == shown.read_bytes()
    assert img_mime_type_detector.from_bytes(content) == "image/gif"
