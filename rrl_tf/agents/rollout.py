"""Running means of what the training loop reports."""

from __future__ import annotations

import collections
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from rrl_tf.agents.loop import Record


class RolloutStatistics:
    """Collects a loop's records and averages them for the log.

    Episodes are averaged over the last `window` of them; losses and times since the last call of
    `averages`. Minutes of CPU time are those of this process and of the run's earlier ones.

    Args:
        window: int, episodes.

    Example:
        >>> statistics = RolloutStatistics()
        >>> episodes = [{"return": 1.0, "success": 1.0}, {"return": 0.0, "success": 0.0}]
        >>> played = {"step": 16, "updates": 4, "epsilon": 0.1, "episodes": episodes}
        >>> statistics.add(Record(**played, metrics={"loss": 0.25}, seconds={"update": 0.3}))
        >>> averages = statistics.averages()
        >>> averages["rollout/success"], averages["train/loss"]
        (0.5, 0.25)
    """

    def __init__(self, window: int = 100) -> None:
        self._episodes: collections.deque[dict[str, float]] = collections.deque(maxlen=window)
        self._step = self._updates = 0
        self._epsilon = float("nan")
        self._gauges: Mapping[str, float] = {}
        self._earlier_minutes = 0.0
        self._clear()

    def _clear(self):
        self._metrics = collections.defaultdict(list)
        self._seconds = collections.Counter()
        self._first_step = self._step

    def add(self, record: Record) -> None:
        """Takes one `Record`."""
        self._episodes.extend(record.episodes)
        for name, value in record.metrics.items():
            self._metrics[name].append(value)
        self._seconds.update(record.seconds)
        self._step = record.step
        self._updates = record.updates
        self._epsilon = record.epsilon
        self._gauges = record.gauges

    def averages(self) -> dict[str, float]:
        """The metrics as a dict under `rollout/`, `train/` and `time/`; begins a new interval."""
        total = sum(self._seconds.values()) or 1.0
        averages = {
            **self._episode_means(),
            **{f"train/{name}": float(np.mean(values)) for name, values in self._metrics.items()},
            "train/epsilon": self._epsilon,
            "train/updates": self._updates,
            **{f"time/{name}_share": seconds / total for name, seconds in self._seconds.items()},
            "time/steps_per_second": (self._step - self._first_step) / total,
            "time/cpu_minutes": self._cpu_minutes(),
            **{f"time/{name}": value for name, value in self._gauges.items()},
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
        """The recent episodes, as a JSON-able dict; call it after `averages`."""
        return {
            "episodes": list(self._episodes),
            "step": self._step,
            "cpu_minutes": self._cpu_minutes(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `get_state` returned."""
        self._episodes.extend(
            {name: float(value) for name, value in episode.items()} for episode in state["episodes"]
        )
        self._step = self._first_step = int(state["step"])
        # What this process did before is not the run's.
        self._earlier_minutes = float(state["cpu_minutes"]) - time.process_time() / 60
