"""The training step of `fit`, with named scopes and on several devices or hosts.

Keras 3 cannot `fit` a model of `MultiWorkerMirroredStrategy` (keras#20585). Under
`MirroredStrategy` it averages the means of the parts and clips their gradients one by one, which is
not the step of one device when parts have different weights. Here the model stays one of a single
device and only its training step is distributed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from rrl_tf.training.devices import Replicas


def train_step(model: keras.Model, data: Any) -> dict[str, Any]:
    """Train a model on a batch like Keras does, in the scopes forward, backward and optimizer.

    Args:
        model: compiled and built.
        data: `x`, `(x, y)` or `(x, y, sample_weight)`.

    Example:
        >>> import functools
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
    """Return a `model.train_function` that trains each batch on all devices.

    Loss, gradient and metrics are those of the whole batch on one device.

    Args:
        model: compiled and built, outside the scope of any strategy.
        replicas: R devices.

    Example:
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> replicas = Replicas(tf.distribute.MirroredStrategy(["CPU:0"]))
        >>> model.train_function = train_function(model, replicas)
        >>> history = model.fit(tf.ones((8, 4)), tf.ones((8, 1)), verbose=0).history
        >>> sorted(history)
        ['loss']
    """
    scale = []  # the loss scale of float16 changes during the training
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        scale = [model.optimizer.dynamic_scale]

    def compute(part):
        fraction = part["fraction"][0]  # Keras has divided the loss by the devices already
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
    """Return the loss times `fraction`, its scaled gradients, and the predictions."""
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
    return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def _fractions(model, sample_weight, count):
    """Return the weight of each part's loss, `(R,)`, with mean 1.

    Parts count equally, unless losses are divided by the sum of the sample weights: then a part
    counts by the sum of its weights.
    """
    reductions = {getattr(loss, "reduction", None) for loss in tf.nest.flatten(model.loss)}
    if sample_weight is None or reductions != {"mean_with_sample_weight"}:
        return tf.ones(count)
    (weights,) = tf.nest.flatten(sample_weight)  # losses with different weights are not supported
    parts = tf.reduce_sum(tf.reshape(tf.cast(weights, "float32"), (count, -1)), axis=1)
    return tf.math.divide_no_nan(parts, tf.reduce_mean(parts))
