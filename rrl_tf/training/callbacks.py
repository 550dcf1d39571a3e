"""What `fit` does besides training: checkpoints and resuming, logs, pictures, early stop, profile.

A run that can be killed at any moment and goes on with the same command:

    folder = RunFolder("runs/mnist/first", dataclasses.asdict(config), may_change=["epochs"])
    model.compile(optimizer, loss, metrics=["accuracy"])
    checkpoint = Checkpoint(folder, model)  # takes the newest one up
    log = MetricsLog(folder.path, until_step=checkpoint.step)
    model.fit(
        data_from(checkpoint.step),
        initial_epoch=checkpoint.epoch,
        epochs=config.epochs,
        callbacks=[LogMetrics(log), EarlyStop(log, "eval/loss", patience=5), checkpoint],
        shuffle=False,  # Keras warns that it does not shuffle a tf.data.Dataset
        verbose=0,
    )

Order matters in two places: `LogMetrics` comes before what reads the log, and `Checkpoint` last.
"""

import time

import keras
import numpy as np
import tensorflow as tf

from rrl_tf.errors import InvalidInput


class Checkpoint(keras.callbacks.Callback):
    """Saves weights, optimiser, random states and epoch to the run's folder after epochs.

    Making it restores the newest checkpoint of the folder. `epoch` and `step` tell how far the run
    had come: epochs that were finished, and updates of the optimiser; both 0 in a new run.

    Args:
        folder: `RunFolder`.
        model: compiled and built `keras.Model`; filled in place.
        every: int, epochs from one checkpoint to the next. The last epoch is always saved.

    Raises:
        ValueError: if the model has no weights yet, or the checkpoint cannot be read.

    Example:
        >>> checkpoint = Checkpoint(folder, model, every=5)
        >>> model.fit(data, epochs=20, initial_epoch=checkpoint.epoch, callbacks=[checkpoint])
    """

    def __init__(self, folder, model, every=1):
        super().__init__()
        if not model.built:
            raise InvalidInput(f"Checkpoint needs a built model, {model.name} has no weights yet")
        self._folder, self._every = folder, every
        self._saved = self.epoch = 0
        model.optimizer.build(model.trainable_variables)
        if state := folder.load_checkpoint():
            for name, variable in _variables(model).items():
                variable.assign(state["variables"][name])
            self._saved = self.epoch = state["progress"]["epoch"]
        self.step = int(model.optimizer.iterations)

    def on_epoch_end(self, epoch, logs=None):
        self.epoch, self.step = epoch + 1, int(self.model.optimizer.iterations)
        if self.epoch % self._every == 0:
            self._save()

    def on_train_end(self, logs=None):
        if self.epoch > self._saved:
            self._save()

    def _save(self):
        arrays = {name: np.asarray(value) for name, value in _variables(self.model).items()}
        state = {"variables": arrays, "progress": {"epoch": self.epoch}}
        self._folder.save_checkpoint(self.step, state, self.model)
        self._saved = self.epoch


def _variables(model):
    """Name → variable of weights, random states and optimiser; by position, as paths repeat."""
    parts = {"model": model.variables, "optimizer": model.optimizer.variables}
    return {f"{part}/{i}": v for part, values in parts.items() for i, v in enumerate(values)}


class LogMetrics(keras.callbacks.Callback):
    """Writes a row of metrics after every epoch, to the CSV file and to TensorBoard.

    What `fit` calls `loss` and `val_loss` is written as `train/loss` and `eval/loss`, beside
    `train/learning_rate`, `time/epoch` (seconds, validation included) and
    `time/steps_per_second`. The step is the number of updates.

    Args:
        log: `MetricsLog`.

    Example:
        >>> model.fit(data, callbacks=[LogMetrics(MetricsLog(folder.path))])
    """

    def __init__(self, log):
        super().__init__()
        self._log = log

    def on_epoch_begin(self, epoch, logs=None):
        self._begun = time.perf_counter()
        self._first = int(self.model.optimizer.iterations)

    def on_epoch_end(self, epoch, logs=None):
        seconds = time.perf_counter() - self._begun
        step = int(self.model.optimizer.iterations)
        metrics = {_logged_name(name): float(value) for name, value in (logs or {}).items()}
        metrics["train/learning_rate"] = float(self.model.optimizer.learning_rate)
        metrics["time/epoch"] = seconds
        metrics["time/steps_per_second"] = (step - self._first) / seconds
        self._log.write(step, metrics)


def _logged_name(name):
    if name.startswith("val_"):
        return f"eval/{name.removeprefix('val_')}"
    return f"train/{name}"


class LogImages(keras.callbacks.Callback):
    """Shows pictures of the model in TensorBoard, such as what it attends to.

    Args:
        log: `MetricsLog`.
        draw: function of the model → dict name → uint8 RGB `(height, width, 3)`.
        every: int, epochs from one drawing to the next.

    Example:
        >>> LogImages(log, lambda model: {"attention": draw_attention(model, images)}, every=5)
    """

    def __init__(self, log, draw, every=1):
        super().__init__()
        self._log, self._draw, self._every = log, draw, every

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self._every == 0:
            for name, image in self._draw(self.model).items():
                self._log.image(int(self.model.optimizer.iterations), name, image)


class EarlyStop(keras.callbacks.Callback):
    """Stops when a metric has not been better for some epochs.

    It reads the run's log, so that a run that was interrupted stops where it would have stopped:
    Keras' own begins to count anew.

    Args:
        log: `MetricsLog`, written by a `LogMetrics` that comes before in the list of callbacks.
        monitor: name of the metric in the log.
        patience: int, rows without a better value after which training stops.
        mode: `"min"` or `"max"`, which value is the better one.

    Example:
        >>> callbacks = [LogMetrics(log), EarlyStop(log, "eval/accuracy", patience=5, mode="max")]
    """

    def __init__(self, log, monitor, patience, mode="min"):
        super().__init__()
        if mode not in ("min", "max"):
            raise InvalidInput(f"mode must be 'min' or 'max'. Received: {mode!r}")
        self._log, self._monitor, self._patience = log, monitor, patience
        self._best = np.argmin if mode == "min" else np.argmax

    @property
    def reached(self):
        """Whether the log says that it is time to stop, also before `fit` is called."""
        values = [row[self._monitor] for row in self._log.rows if self._monitor in row]
        return bool(values) and len(values) - 1 - int(self._best(values)) >= self._patience

    def on_epoch_end(self, epoch, logs=None):
        if self.reached:
            self.model.stop_training = True


class Profile(keras.callbacks.Callback):
    """Records some training steps for TensorBoard's profiler, each with its step marker.

    Args:
        folder: path, TensorBoard's log directory.
        first: int, the step of this `fit` at which to begin.
        count: int, steps to record.

    Example:
        >>> model.fit(data, callbacks=[Profile(folder.path, first=50)])
    """

    def __init__(self, folder, first, count=20):
        super().__init__()
        self._folder, self._window = str(folder), range(first, first + count)
        self._seen = 0
        self._recording = False
        self._marker = None

    def on_train_batch_begin(self, batch, logs=None):
        if self._seen == self._window.start:
            tf.profiler.experimental.start(self._folder)
            self._recording = True
        if self._recording:
            self._marker = tf.profiler.experimental.Trace("train", step_num=self._seen, _r=1)
            self._marker.__enter__()

    def on_train_batch_end(self, batch, logs=None):
        self._seen += 1
        if self._marker is not None:
            self._marker.__exit__(None, None, None)
            self._marker = None
        if self._seen == self._window.stop:
            self._stop()

    def on_train_end(self, logs=None):
        self._stop()

    def _stop(self):
        if self._recording:
            tf.profiler.experimental.stop()
            self._recording = False
