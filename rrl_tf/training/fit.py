"""Define `FitRun`, a run of `keras.Model.fit` that resumes exactly after an interruption.

    keras.utils.set_random_seed(config.seed)
    model = make_model(config)  # built and compiled
    run = FitRun(config, model, steps=config.steps, steps_per_epoch=config.log_every)
    if not run.is_finished():
        run.fit(dataset(first_step=run.step), validation_data=held_out)
        run.finish({"test/accuracy": accuracy(model)}, "tested", [picture])

The order matters:

1. Build the model before the run, so that an invalid command writes nothing.
2. Open the run before the data, because the data start at `run.step`.
3. Write figures and exports before `finish`, which marks the run as finished.

Keras 3 cannot `fit` a model under `MultiWorkerMirroredStrategy` (keras#20585). Under
`MirroredStrategy` it averages the parts' mean losses and clips each part's gradient separately.
The result differs from a step on one device if the parts have different sample weights. Therefore
the model here lives on a single device, and only its training step is distributed.
"""

from __future__ import annotations

import functools
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm
from tqdm.keras import TqdmCallback

from rrl_tf import viz
from rrl_tf._arguments import assign_arrays, path_of, variable_arrays
from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import RunConfig, SupervisedConfig
from rrl_tf.training.devices import Replicas
from rrl_tf.training.loggers import MetricsLog
from rrl_tf.training.optimizers import limit_loss_scale
from rrl_tf.training.profiling import WARM_UP, Profile
from rrl_tf.training.run import Run
from rrl_tf.training.safeguards import GracefulShutdown, require_finite, translate_xla_errors
from rrl_tf.training.summary import describe_network

Logs: TypeAlias = dict[str, Any] | None


class FitRun(Run):
    """A `Run` that trains with `keras.Model.fit`; a step is one batch.

    Opening a run restores the newest checkpoint: weights, optimizer variables and the states of
    random generators. Every epoch of `fit` writes one log entry.

    Args:
        config: `RunConfig`.
        model: compiled and built `keras.Model`; its weights are replaced if there is a checkpoint.
        steps: number of batches in the whole run.
        steps_per_epoch: number of batches between log entries. If it does not divide `steps`, the
            last epoch is shorter.
        checkpoint_every: number of batches between checkpoints, which are saved with the next log
            entry; by default `steps_per_epoch`. The last step is always saved.
        **options: `identity`, `stop`, `replicas` and `setup` of `Run`.

    Attributes:
        model: the model.

    Raises:
        InvalidInput: if the model is not built, the folder contains another run, or its checkpoint
            belongs to another model.

    Example:
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> config = RunConfig(name="first")
        >>> run = FitRun(config, model, steps=4, steps_per_epoch=2)  # doctest: +ELLIPSIS
        network     Sequential ..., 3 parameters
        device ...
        >>> run.fit(tf.data.Dataset.from_tensors((tf.ones((8, 2)), tf.ones((8, 1)))).repeat())
        >>> run  # the same call of `FitRun` resumes the run
        FitRun('runs/first', step=4, steps=4)
    """

    def __init__(
        self,
        config: RunConfig,
        model: keras.Model,
        *,
        steps: int,
        steps_per_epoch: int,
        checkpoint_every: int | None = None,
        **options: Any,
    ) -> None:
        self._checkpoint_every = checkpoint_every or steps_per_epoch
        if not model.built:
            raise InvalidInput(f"`model` must be built; received {model.name!r} without weights")
        model.optimizer.build(model.trainable_variables)
        model.train_step = functools.partial(train_step, model)
        self.model, self._steps_per_epoch = model, steps_per_epoch
        setup = {**options.pop("setup", {}), "network": describe_network(model)}
        super().__init__(config, steps, restore=self._restore, setup=setup, **options)

    def _restore(self, step, state):
        set_model_state(self.model, state["variables"])

    def fit(
        self,
        data: Any,
        *,
        callbacks: Iterable[keras.callbacks.Callback] = (),
        measure: Callable[[int], Mapping[str, float]] | None = None,
        **options: Any,
    ) -> None:
        """Train from `step` to the end of the run.

        After SIGINT or SIGTERM, training finishes the current epoch, saves a checkpoint and stops.
        With several hosts, only the chief runs the validation and `measure`.

        Args:
            data: `keras.utils.PyDataset` of one epoch, or an infinite `tf.data.Dataset` that starts
                at `step`. A batch contains the examples of all devices.
            callbacks: callbacks that run after each log entry is written.
            measure: function of the step that returns further metrics for the log entry.
            **options: options of `keras.Model.fit`, such as `validation_data`.

        Raises:
            InvalidInput: if the loss of an epoch, or a weight in a checkpoint, is not finite.
            ConnectionError: if another host is lost.
            KeyboardInterrupt: after SIGINT.
            SystemExit: after SIGTERM, with code 143.
        """
        if self.is_over():
            return
        replicas = self.replicas
        if replicas.count > 1:
            self.model.train_function = train_function(self.model, replicas)
        if not replicas.is_chief:
            measure, options = None, options | {"validation_data": None}
        with (
            replicas.translate_worker_errors(),
            translate_xla_errors(),
            GracefulShutdown(replicas.any) as shutdown,
        ):
            is_sized = isinstance(data, keras.utils.PyDataset)
            self.model.fit(
                data,
                initial_epoch=self._first_epoch,
                epochs=self._last_epoch,
                steps_per_epoch=None if is_sized else self._steps_per_epoch,
                callbacks=[
                    LogMetrics(self.log, measure, self.step),
                    *callbacks,
                    *self._profile(),
                    self._progress_bar(),
                    _StopAndSave(self, self._checkpoint_every, shutdown),
                ],
                shuffle=False,  # after resuming, Keras would shuffle in a different order
                verbose=0,
                **options,
            )

    def _profile(self) -> list[keras.callbacks.Callback]:
        first = min(WARM_UP, (self.steps - self.step) // 2)
        return [Profile(self.folder.path, first)] if self.config.profile else []

    def _progress_bar(self) -> keras.callbacks.Callback:
        return TqdmCallback(
            self._last_epoch,
            verbose=0,
            tqdm_class=tqdm,
            initial=self._first_epoch,
            mininterval=0.5,
            disable=not self.replicas.is_chief,
        )

    @property
    def _first_epoch(self) -> int:
        return self.step // self._steps_per_epoch

    @property
    def _last_epoch(self) -> int:
        return self._first_epoch + -(-(self.steps - self.step) // self._steps_per_epoch)


class _StopAndSave(keras.callbacks.Callback):
    """Saves the checkpoints of a `FitRun`, and stops it at its end or after a signal."""

    def __init__(self, run: FitRun, every: int, shutdown: GracefulShutdown) -> None:
        super().__init__()
        self._run, self._every, self._shutdown = run, every, shutdown
        self._left = run.steps - run.step

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._left -= 1
        if self._left == 0:  # perhaps in the middle of an epoch
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        step = self._run.steps - self._left
        if self._shutdown.requested() or self._run.replicas.any(self._run.is_over(step)):
            self.model.stop_training = True
        if self.model.stop_training or passes(self._run.step, step, self._every):
            arrays = model_state(self.model)
            require_finite(step, arrays)
            self._run.save(step, {"variables": arrays}, self.model)
        self._run.keep_best(self.model)


class LogMetrics(keras.callbacks.Callback):
    """Writes a log entry after every epoch.

    `loss` and `val_loss` of `fit` become `train/loss` and `eval/loss`. The entry also contains
    `train/learning_rate`, `time/steps_per_second`, `time/epoch` (wall-clock seconds) and
    `time/epoch_cpu` (CPU seconds of all cores). Both times include the validation.

    Args:
        log: `MetricsLog`.
        measure: function of the step that returns further metrics for the entry.
        first_step: number of batches before this call of `fit`.

    Raises:
        InvalidInput: if the loss of an epoch is not finite; nothing is written for that epoch.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> log = MetricsLog("runs/logged")
        >>> inputs, targets = np.ones((8, 2)), np.ones((8, 1))
        >>> _ = model.fit(inputs, targets, 4, epochs=2, verbose=0, callbacks=[LogMetrics(log)])
        >>> [row["step"] for row in log.rows]  # an epoch has two batches of 4
        [2, 4]
    """

    def __init__(
        self,
        log: MetricsLog,
        measure: Callable[[int], Mapping[str, float]] | None = None,
        first_step: int = 0,
    ) -> None:
        super().__init__()
        self._log, self._measure = log, measure or (lambda step: {})
        # The optimizer's counter is smaller if loss scaling has skipped updates.
        self._step = first_step

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._start, self._start_cpu = time.perf_counter(), time.process_time()
        self._first_step = self._step

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._step += 1

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        step = self._step
        metrics = {_log_key(name): float(value) for name, value in (logs or {}).items()}
        losses = ("train/loss", "eval/loss")
        require_finite(step, {name: metrics[name] for name in losses if name in metrics})
        metrics |= self._measure(step)
        seconds = time.perf_counter() - self._start
        metrics["train/learning_rate"] = float(self.model.optimizer.learning_rate)
        metrics["time/epoch"] = seconds
        metrics["time/epoch_cpu"] = time.process_time() - self._start_cpu
        metrics["time/steps_per_second"] = (step - self._first_step) / seconds
        self._log.write(step, metrics)


class LogFigures(keras.callbacks.Callback):
    """Logs figures of the model, such as its attention, at regular steps.

    Args:
        log: `MetricsLog` to which a `LogMetrics` before this callback writes the entries.
        draw: function of the model that returns a dict name → `matplotlib.figure.Figure`.
        every: number of steps between figures, which are drawn with the next log entry.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> def draw(model):
        ...     bias = float(model.get_weights()[1][0])
        ...     return {"bias": viz.learning_curves({"bias": ([0, 1], [[0, bias]])}, "bias")}
        >>> log = MetricsLog("runs/drawn")
        >>> callbacks = [LogMetrics(log), LogFigures(log, draw, every=1)]
        >>> _ = model.fit(np.ones((8, 2)), np.ones((8, 1)), verbose=0, callbacks=callbacks)
    """

    def __init__(
        self, log: MetricsLog, draw: Callable[[keras.Model], Mapping[str, Any]], every: int
    ) -> None:
        super().__init__()
        self._log, self._draw, self._every = log, draw, every

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        before, step = ([0] + [int(row["step"]) for row in self._log.rows])[-2:]
        if passes(before, step, self._every):
            for name, figure in self._draw(self.model).items():
                self._log.image(step, name, viz.figure_to_image(figure))


def load_weights(model: keras.Model, path: str | os.PathLike) -> dict[str, Any]:
    """Load the weights of a model from a `.keras` file of a model with the same layers.

    No object that the file describes is created.

    Returns:
        The serialized configuration of the saved model.

    Raises:
        InvalidInput: if the file cannot be read, or its layers are different; the model may then
            have some of its weights.

    Example:
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.save("small.keras")
        >>> load_weights(model, "small.keras")["name"] == model.name
        True
    """
    try:
        model.load_weights(path_of("path", path))
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read("config.json"))["config"]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidInput(
            f"`path` must be a .keras file of a network with the same layers; received "
            f"{str(path)!r} ({type(error).__name__})"
        ) from error


def passes(before: int, step: int, every: int) -> bool:
    """Return whether a multiple of `every` is more than `before` and at most `step`.

    Example:
        >>> passes(90, 105, every=50), passes(90, 95, every=50), passes(90, 105, every=0)
        (True, False, False)
    """
    return every > 0 and step // every > before // every


def _log_key(name):
    if name.startswith("val_"):
        return f"eval/{name.removeprefix('val_')}"
    return f"train/{name}"


def compile_classifier(model: keras.Model, config: SupervisedConfig) -> keras.Model:
    """Compile a model that outputs class logits, and return it.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(3)])
        >>> type(compile_classifier(model, SupervisedConfig()).optimizer).__name__
        'Adam'
    """
    model.compile(
        config.make_optimizer(),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=config.jit_compile,
    )
    return model


def model_state(model: keras.Model) -> dict[str, np.ndarray]:
    """Return the weights, random states and optimizer variables of a built and compiled model.

    Example:
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> {name: array.shape for name, array in model_state(model).items()}
        {'model/000': (2, 1), 'model/001': (1,), 'optimizer/000': (), 'optimizer/001': ()}
    """
    return variable_arrays(_variables(model))


def set_model_state(model: keras.Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Restore the arrays that `model_state` returned.

    Raises:
        InvalidInput: if the arrays do not fit; see `assign_arrays`. The model is not changed.
    """
    assign_arrays(f"model {model.name!r}", _variables(model), arrays)


def _variables(model):
    return {"model": model.variables, "optimizer": model.optimizer.variables}


def train_step(model: keras.Model, data: Any) -> dict[str, Any]:
    """Train a model on one batch as Keras does, with name scopes for the profiler.

    The scopes are `forward`, `backward` and `optimizer`.

    Args:
        model: compiled and built model.
        data: `x`, `(x, y)` or `(x, y, sample_weight)`.

    Example:
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> model.train_step = functools.partial(train_step, model)
        >>> history = model.fit(tf.ones((8, 4)), tf.ones((8, 1)), verbose=0).history
        >>> sorted(history)
        ['loss']
    """
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    loss, gradients, y_pred = _loss_and_gradients(model, x, y, sample_weight)
    return _update(model, x, y, y_pred, sample_weight, loss, gradients)


def train_function(
    model: keras.Model, replicas: Replicas
) -> Callable[[Iterator[Any]], dict[str, Any]]:
    """Return a `model.train_function` that processes each batch on all devices.

    Loss, gradient and metrics are the same as for the whole batch on one device.

    Args:
        model: compiled model that was built outside the scope of any strategy.
        replicas: the devices.

    Example:
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> replicas = Replicas(tf.distribute.MirroredStrategy(["CPU:0"]))
        >>> model.train_function = train_function(model, replicas)
        >>> history = model.fit(tf.ones((8, 4)), tf.ones((8, 1)), verbose=0).history
        >>> sorted(history)
        ['loss']
    """
    scale = []  # with float16, the loss scale changes during training
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        scale = [model.optimizer.dynamic_scale]

    def compute(part):
        fraction = part["fraction"][0]  # Keras has already divided the loss by the device count
        loss, gradients, y_pred = _loss_and_gradients(
            model, part["x"], part["y"], part.get("sample_weight"), fraction
        )
        found = {i: gradient for i, gradient in enumerate(gradients) if gradient is not None}
        return {"loss": loss, "gradients": found}, y_pred

    variables = [*model.trainable_variables, *model.non_trainable_variables, *scale]
    parallel = replicas.spread(compute, variables, jit_compile=model.jit_compile)

    @tf.function(autograph=False, reduce_retracing=True)
    def step(iterator):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(next(iterator))
        batch = {"x": x, "y": y, "fraction": _fractions(model, sample_weight, replicas.count)}
        if sample_weight is not None:
            batch["sample_weight"] = sample_weight
        sums, y_pred = parallel(batch)
        gradients = [sums["gradients"].get(i) for i in range(len(model.trainable_variables))]
        return _update(model, x, y, y_pred, sample_weight, sums["loss"], gradients)

    return step


def _loss_and_gradients(model, x, y, sample_weight, fraction=None):
    """Return the loss times `fraction`, the gradients of the scaled loss, and the predictions."""
    weights = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape, tf.name_scope("forward"):
        tape.watch(weights)
        y_pred = model(x, training=True)
        loss = model.compute_loss(x, y, y_pred, sample_weight, training=True)
        loss = loss if fraction is None else loss * fraction
        scaled = model.optimizer.scale_loss(loss)
    with tf.name_scope("backward"):
        return loss, tape.gradient(scaled, weights), y_pred


def _update(model, x, y, y_pred, sample_weight, loss, gradients):
    """Apply gradients and return the metrics of a batch."""
    model.metrics[0].update_state(loss, sample_weight=tf.shape(tf.nest.flatten(x)[0])[0])
    with tf.name_scope("optimizer"):
        model.optimizer.apply(gradients, model.trainable_variables)
        limit_loss_scale(model.optimizer)
    return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def _fractions(model, sample_weight, count):
    """Return the weight of each part's loss, `(R,)`, with mean 1.

    All parts have equal weight, unless the loss is divided by the sum of the sample weights. In
    that case the weight of a part is proportional to the sum of its sample weights.
    """
    reductions = {getattr(loss, "reduction", None) for loss in tf.nest.flatten(model.loss)}
    if sample_weight is None or reductions != {"mean_with_sample_weight"}:
        return tf.ones(count)
    (weights,) = tf.nest.flatten(sample_weight)  # losses with different weights are not supported
    parts = tf.reduce_sum(tf.reshape(tf.cast(weights, "float32"), (count, -1)), axis=1)
    return tf.math.divide_no_nan(parts, tf.reduce_mean(parts))
