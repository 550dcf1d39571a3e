"""Running means of what the training loop reports."""

from __future__ import annotations

import collections
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from rrl_tf.agents.loop import Record


class RolloutStatistics:
    """Averages the records of a loop for the log.

    Episodes are averaged over the last `window` of them, losses and times over the time since the
    last call of `averages`. CPU minutes are those of this process and of the run's earlier ones.

    Args:
        window: number of episodes.

    Example:
        >>> statistics = RolloutStatistics()
        >>> episodes = [{"return": 1.0, "success": 1.0}, {"return": 0.0, "success": 0.0}]
        >>> record = {"step": 16, "updates": 4, "epsilon": 0.1, "episodes": episodes}
        >>> statistics.add(Record(**record, metrics={"loss": 0.25}, seconds=0.3))
        >>> averages = statistics.averages()
        >>> averages["rollout/success"], averages["train/loss"]
        (0.5, 0.25)
    """

    def __init__(self, window: int = 100) -> None:
        self._episodes: collections.deque[dict[str, float]] = collections.deque(maxlen=window)
        self._latest = Record(0, 0, float("nan"), [], {}, 0.0)
        self._earlier_minutes = 0.0
        self._clear()

    def _clear(self):
        self._metrics = collections.defaultdict(list)
        self._seconds = 0.0
        self._first_step = self._latest.step

    def add(self, record: Record) -> None:
        """Add one `Record`."""
        self._episodes.extend(record.episodes)
        for name, value in record.metrics.items():
            self._metrics[name].append(value)
        self._seconds += record.seconds
        self._latest = record

    def averages(self) -> dict[str, float]:
        """Return the metrics under `rollout/`, `train/` and `time/`, and begin a new interval."""
        averages = {
            **self._episode_means(),
            **{f"train/{name}": float(np.mean(values)) for name, values in self._metrics.items()},
            "train/epsilon": self._latest.epsilon,
            "train/updates": self._latest.updates,
            "time/steps_per_second": (self._latest.step - self._first_step)
            / (self._seconds or 1.0),
            "time/cpu_minutes": self._cpu_minutes(),
            **{f"time/{name}": value for name, value in self._latest.gauges.items()},
        }
        self._clear()
        return averages

    def _cpu_minutes(self):
        return self._earlier_minutes + time.process_time() / 60

    def _episode_means(self):
        means = {}
        for name in ("success", "return", "length"):
            if any(name in episode for episode in self._episodes):
                values = [episode.get(name, 0.0) for episode in self._episodes]
                means[f"rollout/{name}"] = float(np.mean(values))
        return means

    def get_state(self) -> dict[str, Any]:
        """Return the recent episodes as a JSON-compatible dict; call it after `averages`."""
        return {
            "episodes": list(self._episodes),
            "step": self._latest.step,
            "cpu_minutes": self._cpu_minutes(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `get_state` returned."""
        self._episodes.extend(
            {name: float(value) for name, value in episode.items()} for episode in state["episodes"]
        )
        self._latest = Record(int(state["step"]), 0, float("nan"), [], {}, 0.0)
        self._first_step = self._latest.step
        # The CPU time that this process used before is not part of the run.
        self._earlier_minutes = float(state["cpu_minutes"]) - time.process_time() / 60
