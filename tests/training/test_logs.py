import csv

import numpy as np
import pytest

from rrl_tf.agents.loop import Record
from rrl_tf.agents.rollout import RolloutStatistics
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def events(folder):
    """Scalars and images of the TensorBoard files: (kind, name, step) -> value."""
    import tensorflow as tf
    from tensorflow.core.util import event_pb2

    found = {}
    for file in folder.glob("events*"):
        for record in tf.data.TFRecordDataset([str(file)]):
            event = event_pb2.Event.FromString(record.numpy())
            for value in event.summary.value:
                found[value.tag, event.step] = tf.make_ndarray(value.tensor)
    return found


def test_csv_and_tensorboard_hold_the_same(tmp_path):
    from rrl_tf.training import MetricsLog

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


def test_rows_beyond_the_checkpoint_are_written_again(tmp_path):
    from rrl_tf.training import MetricsLog

    log = MetricsLog(tmp_path)
    for step in (10, 20, 30):
        log.write(step, {"train/loss": step / 100})
    resumed = MetricsLog(tmp_path, until_step=20)
    resumed.write(30, {"train/loss": 7.0})
    rows = read(tmp_path / "metrics.csv")
    assert [row["step"] for row in rows] == ["10", "20", "30"]
    assert rows[-1]["train/loss"] == "7"


def test_a_log_begins_where_there_is_no_folder_yet_and_keeps_what_there_is(tmp_path, monkeypatch):
    from rrl_tf.training import MetricsLog

    monkeypatch.chdir(tmp_path)
    MetricsLog("runs/doorkey/first").write(1000, {"train/loss": 0.5})
    MetricsLog("runs/doorkey/first").write(2000, {"train/loss": 0.25})
    rows = read("runs/doorkey/first/metrics.csv")
    assert [row["step"] for row in rows] == ["1000", "2000"]


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
def test_a_damaged_log_is_one_clear_error_and_stays(tmp_path, content):
    from rrl_tf.training import MetricsLog

    (tmp_path / "metrics.csv").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"metrics\.csv is not a log of metrics .*; remove it"):
        MetricsLog(tmp_path, until_step=10)
    assert (tmp_path / "metrics.csv").read_bytes() == content


def test_pictures_reach_tensorboard(tmp_path):
    import tensorflow as tf

    from rrl_tf.training import MetricsLog

    picture = np.random.default_rng(0).integers(256, size=(6, 5, 3), dtype="uint8")
    MetricsLog(tmp_path).image(3, "attention", picture)
    width, height, png = events(tmp_path)["attention", 3]
    assert (int(width), int(height)) == (5, 6)
    np.testing.assert_array_equal(tf.io.decode_png(png), picture)


def test_settings_are_shown_as_a_table(tmp_path):
    from rrl_tf.training import MetricsLog

    log = MetricsLog(tmp_path)
    log.settings({"seed": 3, "network": "fast"})
    log.write(1, {})
    assert b"| seed | 3 |\n| network | fast |" in events(tmp_path)["config", 0].item()


def hparams_tab(folder):
    """What TensorBoard's own HPARAMS tab asks its server for: experiment and session groups."""
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import (
        api_pb2,
        backend_context,
        get_experiment,
        list_session_groups,
    )

    events = plugin_event_multiplexer.EventMultiplexer()
    events.AddRunsFromDirectory(str(folder))
    events.Reload()
    board = base_plugin.TBContext(
        data_provider=data_provider.MultiplexerDataProvider(events, str(folder))
    )
    context, request = backend_context.Context(board), RequestContext()
    asked = api_pb2.GetExperimentRequest()
    groups = api_pb2.ListSessionGroupsRequest(
        slice_size=10, allowed_statuses=list(api_pb2.Status.values())
    )
    return (
        get_experiment.Handler(request, context, "", asked).run(),
        list_session_groups.Handler(request, context, "", groups).run().session_groups,
    )


def test_tensorboard_compares_runs_by_their_settings_and_metrics(tmp_path):
    from rrl_tf.training import MetricsLog

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


def record(step, updates, episodes=(), loss=None, seconds=1.0):
    metrics = {} if loss is None else {"loss": loss}
    share = {"act": seconds, "environment": 0.0, "replay": 0.0, "update": 3 * seconds}
    return Record(step, updates, 0.5, list(episodes), metrics, share)


def test_statistics_average_what_came_since_the_last_call():
    statistics = RolloutStatistics(window=2)
    for success in (1, 0, 0):
        episode = {"return": float(success), "length": 10 * success, "success": success}
        statistics.add(record(10, 1, [episode], loss=success))
    averages = statistics.averages()
    assert averages["rollout/success"] == 0  # the last two episodes
    assert averages["train/loss"] == pytest.approx(1 / 3)
    assert averages["time/update_share"] == pytest.approx(0.75)
    assert averages["time/steps_per_second"] == pytest.approx(10 / 12)
    statistics.add(record(34, 2, loss=5.0))
    averages = statistics.averages()
    assert averages["train/loss"] == 5.0
    assert averages["train/updates"] == 2
    assert averages["time/steps_per_second"] == pytest.approx(24 / 4)
    twin = RolloutStatistics(window=2)
    twin.set_state(statistics.get_state())
    twin.add(record(40, 3))
    assert twin.averages()["rollout/success"] == 0
