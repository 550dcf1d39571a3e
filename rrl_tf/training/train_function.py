"""The step of `fit`: on one device by names that a profile shows, or on several devices or hosts.

`fit` itself does not train a model of `MultiWorkerMirroredStrategy` (keras#20585), and with masks
or clipping not quite the same under `MirroredStrategy` as on one device: it averages sums of
parts, and clips their gradients one by one. So the model stays one of a single device, all that
`fit` does beside the step stays as it is, and the step is this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from rrl_tf.training.replicas import Replicas


def train_step(model: keras.Model, data: Any) -> dict[str, Any]:
    """What Keras' own `train_step` does with a batch, in the scopes forward, backward, optimizer.

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
    loss, gradients, y_pred = _loss_and_gradients(model, model, x, y, sample_weight)
    model.metrics[0].update_state(loss, sample_weight=tf.shape(tf.nest.flatten(x)[0])[0])
    with tf.name_scope("optimizer"):
        model.optimizer.apply(gradients, model.trainable_variables)
    return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def train_function(
    model: keras.Model, replicas: Replicas, network: keras.Model | None = None
) -> Callable[[Iterator[Any]], dict[str, Any]]:
    """What `fit` calls for every batch, `model.train_function`, on all devices at once.

    Loss, gradient and metrics are those of the whole batch on one device.

    Args:
        model: compiled and built, made outside any strategy's scope.
        replicas: R devices.
        network: what computes a part of the batch, where the model has the batch's size built in:
            the same layers for B / R rows. By default the model.

    Example:
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> replicas = Replicas(tf.distribute.MirroredStrategy(["CPU:0"]))  # or of more
        >>> model.train_function = train_function(model, replicas)
        >>> history = model.fit(tf.ones((8, 4)), tf.ones((8, 1)), verbose=0).history
        >>> sorted(history)
        ['loss']
    """
    network = network or model
    optimizer = model.optimizer
    count = len(model.trainable_variables)

    def compute(part):
        share = part["share"][0]  # Keras has divided the loss by the devices already
        loss, gradients, y_pred = _loss_and_gradients(
            model, network, part["x"], part["y"], part.get("sample_weight"), share
        )
        there = {i: g for i, g in enumerate(gradients) if g is not None}
        return {"loss": loss, "gradients": there}, y_pred

    parallel = replicas.spread(
        compute,
        [*_variables(network), *_loss_scale(optimizer)],
        sources=[*_variables(model), *_loss_scale(optimizer)],
        jit_compile=model.jit_compile,
    )

    @tf.function(autograph=False, reduce_retracing=True)
    def step(iterator):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(next(iterator))
        batch = {"x": x, "y": y, "share": _shares(model, sample_weight, replicas.count)}
        if sample_weight is not None:
            batch["sample_weight"] = sample_weight
        sums, y_pred = parallel(batch)
        gradients = [sums["gradients"].get(i) for i in range(count)]
        with tf.name_scope("optimizer"):
            optimizer.apply(gradients, model.trainable_variables)
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        model.metrics[0].update_state(sums["loss"], sample_weight=rows)
        return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    return step


def _loss_and_gradients(model, network, x, y, sample_weight, share=None):
    """The loss, or its share in that of a larger batch, its gradients as scaled, predictions."""
    weights = [variable.value for variable in network.trainable_variables]
    with tf.GradientTape() as tape, tf.name_scope("forward"):
        tape.watch(weights)
        y_pred = network(x, training=True)
        loss = model.compute_loss(x, y, y_pred, sample_weight, training=True)
        loss = loss if share is None else loss * share
        scaled = model.optimizer.scale_loss(loss)
    with tf.name_scope("backward"):
        return loss, tape.gradient(scaled, weights), y_pred


def _variables(network):
    """Whatever a call reads; Keras does not count the memories of stateful layers."""
    stateful = [layer for layer in network.layers if getattr(layer, "stateful", False)]
    memories = [memory for layer in stateful for memory in keras.tree.flatten(layer.states)]
    return [*network.trainable_variables, *network.non_trainable_variables, *memories]


def _loss_scale(optimizer):
    """What float16's losses are multiplied by, which changes as training goes on."""
    is_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    return [optimizer.dynamic_scale] if is_scaled else []


def _shares(model, sample_weight, count):
    """How much each part counts for, `(R,)`: alike, or where losses are divided by the sum of the
    weights, as much as its weights are of the mean part's."""
    reductions = {getattr(loss, "reduction", None) for loss in tf.nest.flatten(model.loss)}
    if sample_weight is None or reductions != {"mean_with_sample_weight"}:
        return tf.ones(count)
    (weights,) = tf.nest.flatten(sample_weight)  # a part has one share, so losses of one weight
    parts = tf.reduce_sum(tf.reshape(tf.cast(weights, "float32"), (count, -1)), axis=1)
    return tf.math.divide_no_nan(parts, tf.reduce_mean(parts))
