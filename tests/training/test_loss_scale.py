"""The loss scale stays finite and positive."""

import keras
import numpy as np
import pytest
import tensorflow as tf

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
