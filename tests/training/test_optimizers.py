"""Optimizers that read the learning rate once give the same numbers as Keras' own."""

import keras
import numpy as np
import pytest

from rrl_tf.training import learning_rate_schedule, make_optimizer, optimizers

pytestmark = pytest.mark.tf_only  # as all training is


class Counting(keras.optimizers.schedules.LearningRateSchedule):
    """A constant learning rate that counts its calls."""

    calls = 0

    def __call__(self, step):
        self.calls += 1
        return keras.ops.cast(0.01, "float32")


def trained(optimizer, updates=5):
    keras.utils.set_random_seed(0)
    network = keras.Sequential([keras.layers.Dense(4, activation="relu") for _ in range(3)])
    network.build((None, 4))
    network.compile(optimizer, "mse")
    x = np.random.default_rng(0).normal(size=(8 * updates, 4)).astype("float32")
    network.fit(x, x**2, batch_size=8, shuffle=False, verbose=0)
    return network


@pytest.mark.parametrize("rate", [0.01, learning_rate_schedule("cosine", 0.02, 6, 2, 0.001)])
@pytest.mark.parametrize("name", ["AdamW", "Muon"])
def test_update_equals_that_of_keras(name, rate):
    ours, theirs = (
        trained(getattr(module, name)(rate, weight_decay=0.3))
        for module in (optimizers, keras.optimizers)
    )
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_learning_rate_may_be_changed_during_the_training():
    networks = [trained(optimizers.AdamW(0.01, weight_decay=decay)) for decay in (0.3, 0.0)]
    sizes = [np.square(network.get_weights()[0]).sum() for network in networks]
    assert sizes[0] < sizes[1]
    networks[0].optimizer.learning_rate = 0.0
    before = networks[0].get_weights()
    networks[0].fit(np.ones((8, 4)), np.ones((8, 4)), verbose=0)
    for a, b in zip(networks[0].get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("make", [optimizers.AdamW, optimizers.Muon])
def test_schedule_is_not_called_for_every_weight(make):
    schedule = Counting()
    optimizer = make(schedule, weight_decay=0.1)
    weights = [keras.Variable(np.ones((2, 2), "float32")) for _ in range(10)]
    optimizer.build(weights)
    schedule.calls = 0
    optimizer.apply([keras.ops.ones((2, 2)) for _ in weights], weights)
    assert schedule.calls <= 2  # for the update, and for the decay


@pytest.mark.parametrize("name", ["AdamW", "Muon"])
def test_optimizer_is_saved_with_a_model(tmp_path, name):
    network = trained(getattr(optimizers, name)(0.01, weight_decay=0.1))
    network.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert type(again) is getattr(optimizers, name)
    assert again.get_config() == network.optimizer.get_config()


def test_muon_excludes_the_head():
    optimizer = make_optimizer("muon", learning_rate=0.01)
    assert isinstance(optimizer, optimizers.Muon) and optimizer.exclude_layers == ["head"]
    assert type(make_optimizer("adam", learning_rate=0.01)) is keras.optimizers.Adam
