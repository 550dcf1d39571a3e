"""What a `fit` does besides training, one thing a callback; `FitRun` puts them in order.

A step is a batch. Callbacks know nothing of each other: what one of them reads, it gets from the
log or as a function.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import keras
import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.training.divergence import require_finite
from rrl_tf.training.metrics_log import MetricsLog

# What `fit` has measured, by name.
Logs: TypeAlias = dict[str, Any] | None

_LOSSES = ("train/loss", "eval/loss")


class LogMetrics(keras.callbacks.Callback):
    """Writes a row of metrics after every epoch.

    What `fit` calls `loss` and `val_loss` is written as `train/loss` and `eval/loss`, beside
    `train/learning_rate`, `time/epoch` and `time/epoch_cpu` (seconds, and those of all cores,
    validation included) and `time/steps_per_second`.

    Args:
        log: `MetricsLog`.
        measure: function of the step → more metrics for the row, under their names in the log.

    Raises:
        InvalidInput: after an epoch whose loss is not finite; the row is not written.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> log = MetricsLog("runs/logged")
        >>> inputs, targets = np.ones((8, 2)), np.ones((8, 1))
        >>> _ = model.fit(inputs, targets, 4, epochs=2, verbose=0, callbacks=[LogMetrics(log)])
        >>> [row["step"] for row in log.rows]  # two batches of 4 an epoch
        [2, 4]
    """

    def __init__(
        self, log: MetricsLog, measure: Callable[[int], Mapping[str, float]] | None = None
    ) -> None:
        super().__init__()
        self._log, self._measure = log, measure or (lambda step: {})

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._begun, self._begun_cpu = time.perf_counter(), time.process_time()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        step = _step(self, epoch)
        metrics = {_logged_name(name): float(value) for name, value in (logs or {}).items()}
        require_finite(step, {name: metrics[name] for name in _LOSSES if name in metrics})
        metrics |= self._measure(step)
        seconds = time.perf_counter() - self._begun
        metrics["train/learning_rate"] = float(self.model.optimizer.learning_rate)
        metrics["time/epoch"] = seconds
        metrics["time/epoch_cpu"] = time.process_time() - self._begun_cpu
        metrics["time/steps_per_second"] = self.params["steps"] / seconds
        self._log.write(step, metrics)


def _step(callback, epoch):
    """Batches up to the end of an epoch. An optimiser that scales losses counts fewer updates."""
    return (epoch + 1) * callback.params["steps"]


def _logged_name(name):
    if name.startswith("val_"):
        return f"eval/{name.removeprefix('val_')}"
    return f"train/{name}"


class LogImages(keras.callbacks.Callback):
    """Logs pictures of the model, such as what it attends to.

    Args:
        log: `MetricsLog`.
        draw: function of the model → dict name → uint8 RGB `(height, width, 3)`.
        every: steps from one drawing to the next, a multiple of an epoch's.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> log = MetricsLog("runs/drawn")  # with event files, so TensorBoard shows the picture
        >>> def draw(model):  # a grey, the brighter the larger the bias is
        ...     return {"bias": np.full((4, 4, 3), abs(model.get_weights()[1]) * 255, "uint8")}
        >>> pictures = LogImages(log, draw, every=1)
        >>> _ = model.fit(np.ones((8, 2)), np.ones((8, 1)), verbose=0, callbacks=[pictures])
    """

    def __init__(
        self,
        log: MetricsLog,
        draw: Callable[[keras.Model], Mapping[str, np.ndarray]],
        every: int,
    ) -> None:
        super().__init__()
        self._log, self._draw, self._every = log, draw, every

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        step = _step(self, epoch)
        if step % self._every == 0:
            for name, image in self._draw(self.model).items():
                self._log.image(step, name, image)


class Checkpoint(keras.callbacks.Callback):
    """Saves every so many steps, and where training ends.

    Args:
        save: function of the step.
        every: steps from one checkpoint to the next, a multiple of an epoch's.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> save = Checkpoint(lambda step: print("save", step), every=2)
        >>> _ = model.fit(np.ones((8, 2)), np.ones((8, 1)), epochs=3, verbose=0, callbacks=[save])
        save 2
        save 3
    """

    def __init__(self, save: Callable[[int], None], every: int) -> None:
        super().__init__()
        self._save, self._every = save, every
        self._unsaved: int | None = None

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._unsaved = _step(self, epoch)
        if self._unsaved % self._every == 0:
            self.on_train_end()

    def on_train_end(self, logs: Logs = None) -> None:
        if self._unsaved:
            self._save(self._unsaved)
            self._unsaved = None


class StopWhen(keras.callbacks.Callback):
    """Ends training after the epoch at which a condition holds.

    Args:
        condition: function of the step → bool.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.0), "mse")  # which learns nothing
        >>> log = MetricsLog("runs/stopped")
        >>> stop = StopWhen(lambda step: EarlyStop("train/loss", patience=2)(log.rows))
        >>> inputs, targets, calls = np.ones((8, 2)), np.ones((8, 1)), [LogMetrics(log), stop]
        >>> _ = model.fit(inputs, targets, epochs=10, verbose=0, callbacks=calls)
        >>> len(log.rows)
        3
    """

    def __init__(self, condition: Callable[[int], bool]) -> None:
        super().__init__()
        self._condition = condition

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if self._condition(_step(self, epoch)):
            self.model.stop_training = True


@dataclasses.dataclass(frozen=True)
class EarlyStop:
    """Whether a metric has not been better for some rows of the log.

    The rows decide alone, so that a run that was interrupted stops where it would have stopped.

    Attributes:
        monitor: name of the metric in the log.
        patience: rows without a better value after which training stops; 0 never does.
        mode: which value is the better one.

    Example:
        >>> EarlyStop("eval/loss", patience=1)([{"eval/loss": 1.0}, {"eval/loss": 2.0}])
        True
    """

    monitor: str
    patience: int
    mode: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        if self.mode not in ("min", "max"):
            raise InvalidInput(f"mode must be 'min' or 'max'; received {self.mode!r}")

    def __call__(self, rows: list[dict[str, float]]) -> bool:
        values = [row[self.monitor] for row in rows if self.monitor in row]
        if not values or not self.patience:
            return False
        best = np.argmin(values) if self.mode == "min" else np.argmax(values)
        return len(values) - 1 - int(best) >= self.patience
