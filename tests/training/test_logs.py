import csv

import numpy as np
import pytest

from rrl_tf.agents.loop import Record
from rrl_tf.training.rollout import RolloutStatistics

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


def test_a_profile_has_step_markers(tmp_path):
    import tensorflow as tf

    from rrl_tf.training import profiled

    def work():
        for i in range(6):
            yield tf.reduce_sum(tf.ones((i + 1, 8))).numpy()

    assert list(profiled(work(), tmp_path, first=2, count=3)) == [8.0 * (i + 1) for i in range(6)]
    [trace] = tmp_path.rglob("*.xplane.pb")
    content = trace.read_bytes()
    assert b"step_num" in content
    assert not list((tmp_path / "none").rglob("*"))


def test_without_a_first_step_nothing_is_recorded(tmp_path):
    from rrl_tf.training import profiled

    assert list(profiled(range(3), tmp_path)) == [0, 1, 2]
    assert not list(tmp_path.iterdir())
