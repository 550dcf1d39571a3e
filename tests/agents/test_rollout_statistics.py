"""Averages of rollout statistics between rows of the log."""

import pytest
from rrl_tf.agents.rollout import RolloutStatistics

from rrl_tf.agents.loop import Record

pytestmark = pytest.mark.tf_only


def record(step, updates, episodes=(), loss=None):
    metrics = {} if loss is None else {"loss": loss}
    return Record(step, updates, 0.5, list(episodes), metrics, seconds=4.0)


def test_averages_cover_the_records_since_the_last_call():
    statistics = RolloutStatistics(window=2)
    for success in (1, 0, 0):
        episode = {"return": float(success), "length": 10 * success, "success": success}
        statistics.add(record(10, 1, [episode], loss=success))
    averages = statistics.averages()
    assert averages["rollout/success"] == 0  # the last two episodes
    assert averages["train/loss"] == pytest.approx(1 / 3)
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
