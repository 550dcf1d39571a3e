"""The loss scale stays finite and positive."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.training.devices import Replicas
from rrl_tf.training.fit import train_function, train_step
from rrl_tf.training.optimizers import limit_loss_scale


@pytest.mark.parametrize(("scale", "gradient"), [(1.0, np.nan), (2.0**100, 0.0)])
def test_loss_scale_has_limits(scale, gradient):
    weight = keras.Variable([1.0])
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(1.0), initial_scale=scale, dynamic_growth_steps=1
    )
    for _ in range(40):  # without limits, 2**100 grows to infinity in 28 updates
        optimizer.apply([tf.constant([gradient])], [weight])
        limit_loss_scale(optimizer)
        assert float(optimizer.dynamic_scale) == scale
    assert weight.numpy() == [1.0]


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize(("scale", "data"), [(1.0, np.nan), (2.0**100, 0.0)])
def test_fit_limits_the_loss_scale_on_one_and_on_several_devices(scale, data, distributed):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(1.0), initial_scale=scale, dynamic_growth_steps=1
    )
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    model.train_step = functools.partial(train_step, model)
    if distributed:
        replicas = Replicas(tf.distribute.MirroredStrategy(["CPU:0"]))
        model.train_function = train_function(model, replicas)
    before = model.get_weights()[0]
    batches = tf.data.Dataset.from_tensors((np.full((4, 2), data), np.zeros((4, 1)))).repeat(30)
    model.fit(batches, shuffle=False, verbose=0)
    assert float(optimizer.dynamic_scale) == scale
    np.testing.assert_array_equal(model.get_weights()[0], before)
