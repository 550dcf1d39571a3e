"""A `fit` that was killed and continued is the `fit` that was not."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.training import (
    Checkpoint,
    EarlyStop,
    LogImages,
    LogMetrics,
    MetricsLog,
    Profile,
    RunFolder,
)

pytestmark = pytest.mark.tf_only

STEPS = 3


def make_model():
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dropout(0.5, seed=1), keras.layers.Dense(2)]
    )
    schedule = keras.optimizers.schedules.CosineDecay(1e-2, 20)
    model.compile(keras.optimizers.Adam(schedule), "mse", metrics=["mae"])
    return model


def batches(first):
    """The batch of a step depends on the step alone."""
    seeds = tf.data.Dataset.range(first, 1000)
    return seeds.map(lambda step: (tf.random.stateless_normal((8, 4), [0, step]), tf.ones((8, 2))))


def train(path, epochs, callbacks=(), every=1):
    folder = RunFolder(path, {})
    model = make_model()
    checkpoint = Checkpoint(folder, model, every)
    log = MetricsLog(folder.path, until_step=checkpoint.step)
    model.fit(
        batches(checkpoint.step),
        epochs=epochs,
        steps_per_epoch=STEPS,
        initial_epoch=checkpoint.epoch,
        validation_data=(np.ones((8, 4)), np.ones((8, 2))),
        callbacks=[LogMetrics(log), *(make(log) for make in callbacks), checkpoint],
        shuffle=False,  # the data come as they should
        verbose=0,
    )
    return model, log, checkpoint


class Killed(keras.callbacks.Callback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("killed_at", [2, STEPS, 2 * STEPS + 1])
def test_a_killed_fit_goes_on_as_if_nothing_had_happened(tmp_path, killed_at):
    whole, log, _ = train(tmp_path / "whole", 4)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", 4, [lambda _: Killed(killed_at)])
    resumed, resumed_log, checkpoint = train(tmp_path / "killed", 4)
    for ours, theirs in zip(resumed.variables, whole.variables):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    assert (checkpoint.epoch, checkpoint.step) == (4, 4 * STEPS)
    for row, expected in zip(resumed_log.rows, log.rows, strict=True):
        assert row["step"] == expected["step"]
        assert row["train/loss"] == pytest.approx(expected["train/loss"], rel=1e-5)


def test_fit_ends_with_a_checkpoint_whatever_the_interval(tmp_path):
    model, _, _ = train(tmp_path, 3, every=2)
    continued = make_model()
    assert Checkpoint(RunFolder(tmp_path, {}), continued).epoch == 3
    np.testing.assert_array_equal(continued.get_weights()[0], model.get_weights()[0])
    stored = keras.models.load_model(RunFolder(tmp_path, {}).model_file)
    np.testing.assert_array_equal(stored.get_weights()[0], model.get_weights()[0])


def test_a_model_without_weights_cannot_be_restored(tmp_path):
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("adam", "mse")
    with pytest.raises(ValueError, match="built model"):
        Checkpoint(RunFolder(tmp_path, {}), model)


def test_metrics_have_the_projects_names(tmp_path):
    _, log, _ = train(tmp_path, 2)
    assert [row["step"] for row in log.rows] == [STEPS, 2 * STEPS]
    assert set(log.rows[0]) == {
        "step",
        *("train/loss", "train/mae", "eval/loss", "eval/mae", "train/learning_rate"),
        *("time/epoch", "time/steps_per_second"),
    }
    assert log.rows[1]["train/learning_rate"] < log.rows[0]["train/learning_rate"] < 1e-2


def test_pictures_are_drawn_every_so_often(tmp_path):
    drawn = []

    def draw(model):
        drawn.append(int(model.optimizer.iterations))
        return {"noise": np.zeros((4, 4, 3), np.uint8)}

    train(tmp_path, 5, [lambda log: LogImages(log, draw, every=2)])
    assert drawn == [2 * STEPS, 4 * STEPS]


@pytest.mark.parametrize(
    ("values", "mode", "expected"),
    [
        ([3, 2, 1], "min", False),
        ([1, 2, 3], "min", True),
        ([1, 2, 3], "max", False),
        ([], "min", 0),
    ],
)
def test_early_stop_reads_the_log(values, mode, expected):
    log = types.SimpleNamespace(rows=[{"step": 0}, *({"eval/loss": v} for v in values)])
    assert EarlyStop(log, "eval/loss", patience=2, mode=mode).reached == expected


def test_early_stop_ends_fit_and_stays_reached(tmp_path):
    _, log, checkpoint = train(
        tmp_path, 9, [lambda log: EarlyStop(log, "train/learning_rate", 2, "max")]
    )
    assert checkpoint.epoch == 3
    assert EarlyStop(log, "train/learning_rate", 2, "max").reached
    with pytest.raises(ValueError, match="'best'"):
        EarlyStop(log, "eval/loss", 2, mode="best")


@pytest.mark.parametrize("count", [2, 100])  # ends within the run, or with it
def test_a_window_of_steps_is_profiled(tmp_path, count):
    train(tmp_path, 2, [lambda _: Profile(tmp_path, first=2, count=count)])
    assert list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))
