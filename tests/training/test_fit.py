"""A `fit` that resumes after a kill equals an uninterrupted `fit`."""

import os
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from matplotlib.figure import Figure

from rrl_tf.errors import InvalidInput
from rrl_tf.training import EarlyStop, FitRun, LogFigures, RunConfig

pytestmark = pytest.mark.tf_only

EPOCH = 3


def make_model(**options):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dropout(0.5, seed=1),
            keras.layers.Dense(2, **options),
        ]
    )
    schedule = keras.optimizers.schedules.CosineDecay(1e-2, 20)
    optimizer = keras.optimizers.Adam(schedule)
    if options:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**20)
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def batches(first):
    """Return batches that depend only on the step."""
    seeds = tf.data.Dataset.range(first, 1000)
    return seeds.map(lambda step: (tf.random.stateless_normal((8, 4), [0, step]), tf.ones((8, 2))))


def opened(path, epochs=4, model=None, every=EPOCH, **options):
    config = RunConfig(runs=str(path.parent), name=path.name)
    return FitRun(
        config,
        model or make_model(),
        steps=epochs * EPOCH,
        steps_per_epoch=EPOCH,
        checkpoint_every=every,
        **options,
    )


def train(run, callbacks=(), **options):
    run.fit(
        batches(run.step),
        validation_data=(np.ones((8, 4)), np.ones((8, 2))),
        callbacks=callbacks,
        **options,
    )
    return run


def assert_equal_runs(run, expected):
    for ours, theirs in zip(run.model.variables, expected.model.variables):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    for row, other in zip(run.log.rows, expected.log.rows, strict=True):
        assert row["step"] == other["step"]
        assert row["train/loss"] == pytest.approx(other["train/loss"], rel=1e-5)


class At(keras.callbacks.Callback):
    """Callback that calls a function after a number of batches."""

    def __init__(self, batch, action):
        super().__init__()
        self._left, self._action = batch, action

    def on_train_batch_end(self, batch, logs=None):
        self._left -= 1
        if self._left == 0:
            self._action()


def killed():
    raise MemoryError


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(opened(tmp_path_factory.mktemp("fit") / "whole"))


@pytest.mark.parametrize(("killed_at", "every"), [(2, 3), (3, 3), (7, 3), (8, 6), (12, 6)])
def test_resume_after_kill_is_bit_exact(tmp_path, whole, killed_at, every):
    with pytest.raises(MemoryError):
        train(opened(tmp_path / "killed", every=every), [At(killed_at, killed)])
    run = opened(tmp_path / "killed", every=every)
    assert run.step == (killed_at - 1) // every * every
    assert_equal_runs(train(run), whole)
    assert run.step == 12 and opened(tmp_path / "killed", every=every).step == 12


@pytest.mark.parametrize(
    ("number", "ended", "code"),
    [(signal.SIGINT, KeyboardInterrupt, None), (signal.SIGTERM, SystemExit, 143)],
)
def test_signal_ends_the_run_after_the_epoch(tmp_path, whole, number, ended, code):
    def interrupted():
        os.kill(os.getpid(), number)

    run = opened(tmp_path / "run", every=4 * EPOCH)
    with pytest.raises(ended) as exception:
        train(run, [At(4, interrupted)])
    assert getattr(exception.value, "code", None) == code
    assert [row["step"] for row in run.log.rows] == [3, 6]
    resumed = opened(tmp_path / "run", every=4 * EPOCH)
    assert resumed.step == 6 and not resumed.is_finished()
    assert_equal_runs(train(resumed), whole)


def test_second_signal_ends_the_run_at_once(tmp_path):
    def twice():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)

    run, before = opened(tmp_path / "run"), signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit):
        train(run, [At(4, twice)])
    assert opened(tmp_path / "run").step == 3
    assert signal.getsignal(signal.SIGINT) is before


def test_steps_count_batches_even_if_a_scaled_loss_skips_updates(tmp_path):
    def new():
        return make_model(dtype="mixed_float16")

    whole = train(opened(tmp_path / "whole", model=new()))
    assert int(whole.model.optimizer.iterations) < 12
    assert [row["step"] for row in whole.log.rows] == [3, 6, 9, 12]
    with pytest.raises(MemoryError):
        train(opened(tmp_path / "killed", model=new()), [At(7, killed)])
    assert_equal_runs(train(opened(tmp_path / "killed", model=new())), whole)


def test_nan_loss_ends_the_run_and_keeps_the_checkpoint(tmp_path):
    measured = []
    run = opened(tmp_path / "run")
    broken = (
        batches(0)
        .enumerate()
        .map(lambda step, batch: (tf.where(step < 7, batch[0], np.nan), batch[1]))
    )
    with pytest.raises(InvalidInput, match=r"diverged at step 9 .*train/loss .*; received nan"):
        run.fit(broken, measure=lambda step: measured.append(step) or {})
    assert measured == [row["step"] for row in run.log.rows] == [3, 6]
    resumed = opened(tmp_path / "run")
    assert resumed.step == 6
    assert all(np.isfinite(array).all() for array in resumed.model.get_weights())


def test_nan_weights_are_not_saved(tmp_path):
    model = make_model()
    # The loss is 0 and its gradient is 0 times infinity.
    model.compile("adam", lambda true, predicted: keras.ops.sqrt(0 * keras.ops.sum(predicted)))
    config = RunConfig(runs=str(tmp_path), name="run")
    run = FitRun(config, model, steps=1, steps_per_epoch=1)
    with pytest.raises(InvalidInput, match=r"diverged at step 1 .*model/\d+ must be finite"):
        run.fit(batches(0))
    assert run.log.rows[0]["train/loss"] == 0 and run.folder.model_file is None


def test_fit_ends_with_a_checkpoint(tmp_path):
    run = train(opened(tmp_path / "run", epochs=3, every=2 * EPOCH))
    assert run.step == 3 * EPOCH
    stored = keras.models.load_model(run.folder.model_file)
    np.testing.assert_array_equal(stored.get_weights()[0], run.model.get_weights()[0])


def test_finished_training_does_nothing(tmp_path):
    run = train(opened(tmp_path / "run", epochs=1))
    again = train(opened(tmp_path / "run", epochs=1))
    assert_equal_runs(again, run)


def test_progress_bar_starts_at_the_resumed_epoch(tmp_path, capfd):
    train(opened(tmp_path / "run", epochs=2))
    capfd.readouterr()
    train(opened(tmp_path / "run", epochs=4))
    shown = capfd.readouterr().err.replace("\r", "\n")
    assert "2/4" in shown
    assert "4/4" in shown
    assert "0/4" not in shown


@pytest.mark.parametrize("killed_at", [None, 6, 10])
def test_last_epoch_is_shorter_if_the_steps_are_no_multiple(tmp_path, killed_at):
    """Checkpoints and figures are written with the first log entry after their step."""
    drawn, config = [], RunConfig(runs=str(tmp_path), name="run")

    def new():
        return FitRun(config, make_model(), steps=11, steps_per_epoch=3, checkpoint_every=5)

    def fit(run, *callbacks):
        figures = LogFigures(run.log, lambda m: drawn.append(run.log.rows[-1]["step"]) or {}, 4)
        return train(run, [figures, *callbacks])

    if killed_at:
        with pytest.raises(MemoryError):
            fit(new(), At(killed_at, killed))
        run = new()
        assert run.step == {6: 0, 10: 6}[killed_at]
        drawn.clear()
    run = fit(new())
    assert run.step == int(run.model.optimizer.iterations) == 11
    assert [row["step"] for row in run.log.rows] == [3, 6, 9, 11]
    assert drawn == [step for step in (6, 9) if step > (6 if killed_at == 10 else 0)]
    assert new().step == 11 and new().is_over()


def test_run_continues_after_a_shorter_epoch(tmp_path):
    """The weights equal those of an uninterrupted run."""

    def run(name, steps):
        config = RunConfig(runs=str(tmp_path), name=name)
        return train(FitRun(config, make_model(), steps=steps, steps_per_epoch=3))

    run("two", 5)
    two, one = run("two", 11), run("one", 11)
    assert [row["step"] for row in two.log.rows] == [3, 5, 8, 11]
    for ours, theirs in zip(two.model.variables, one.model.variables):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_unbuilt_model_writes_nothing(tmp_path):
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("adam", "mse")
    with pytest.raises(InvalidInput, match="`model` must be built"):
        opened(tmp_path / "run", model=model)
    assert not list(tmp_path.iterdir())


def test_checkpoint_of_another_model_is_rejected(tmp_path):
    train(opened(tmp_path / "run", epochs=1))
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5)])
    other.compile("adam", "mse")
    weights = other.get_weights()
    with pytest.raises(InvalidInput, match="stored variables do not fit model 'seq"):
        opened(tmp_path / "run", model=other)
    np.testing.assert_array_equal(other.get_weights()[0], weights[0])


@pytest.mark.parametrize("content", ["{}", '{"variables": {"model/0": 1.0}}'])
def test_checkpoint_without_variables_is_rejected(tmp_path, content):
    run = train(opened(tmp_path / "run", epochs=1))
    checkpoint = run.folder.model_file.parent
    (checkpoint / "state.json").write_text(content)
    np.savez(checkpoint / "arrays.npz")
    with pytest.raises(InvalidInput, match=r"run/checkpoints/0000000003 cannot be read"):
        opened(tmp_path / "run", epochs=2)


@pytest.mark.parametrize(("factor", "received"), [(np.nan, "nan"), (1j, "complex")])
def test_checkpoint_with_nan_is_rejected(tmp_path, factor, received):
    run = train(opened(tmp_path / "run", epochs=1))
    file, model = run.folder.model_file.parent / "arrays.npz", make_model()
    with np.load(file) as stored:
        damaged = {k: a * factor if a.dtype.kind == "f" else a for k, a in stored.items()}
    np.savez(file, **damaged)
    before = model.get_weights()
    with pytest.raises(InvalidInput, match=rf"0000000003 does not fit .* contains {received}"):
        opened(tmp_path / "run", epochs=2, model=model)
    np.testing.assert_array_equal(model.get_weights()[0], before[0])


def test_rows_have_the_documented_names(whole):
    assert [row["step"] for row in whole.log.rows] == [3, 6, 9, 12]
    assert set(whole.log.rows[0]) == {
        "step",
        *("train/loss", "train/mae", "eval/loss", "eval/mae", "train/learning_rate"),
        *("time/epoch", "time/epoch_cpu", "time/steps_per_second"),
    }
    rates = [row["train/learning_rate"] for row in whole.log.rows]
    assert 1e-2 > rates[0] > rates[1] > rates[-1]


def test_measured_metrics_are_in_the_row_before_callbacks_read_it(tmp_path):
    read = []

    class Reader(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            read.append(run.log.rows[-1].get("eval/return"))

    run = opened(tmp_path / "run", epochs=2)
    train(run, [Reader()], measure=lambda step: {"eval/return": 0.5} if step == 6 else {})
    assert read == [None, 0.5]


def test_pictures_are_drawn_at_multiples_of_every(tmp_path):
    drawn = []

    def draw(model):
        drawn.append(int(model.optimizer.iterations))
        return {"nothing": Figure(figsize=(1, 1))}

    run = opened(tmp_path / "run", epochs=5)
    train(run, [LogFigures(run.log, draw, every=2 * EPOCH)])
    assert drawn == [2 * EPOCH, 4 * EPOCH]


@pytest.mark.parametrize(
    ("values", "mode", "expected"),
    [
        ([3, 2, 1], "min", False),
        ([1, 2, 3], "min", True),
        ([1, 2, 3], "max", False),
        ([], "min", False),
        ([1, np.nan, np.nan], "min", True),
        ([1, np.nan, np.inf], "max", True),
        ([-np.inf, 2, 1], "min", False),
        ([np.nan, np.nan, 5], "max", False),
    ],
)
def test_early_stop_depends_on_the_rows(values, mode, expected):
    rows = [{"step": 0}, *({"eval/loss": value} for value in values)]
    assert EarlyStop("eval/loss", 2, mode)(rows) == expected
    assert not EarlyStop("eval/loss", 0, mode)(rows)


def test_early_stop_ends_a_run_for_good(tmp_path):
    stop = EarlyStop("train/learning_rate", 2, "max")
    run = train(opened(tmp_path / "run", epochs=9, stop=stop))
    assert run.step == 3 * EPOCH and not run.is_finished()
    run.finish({})
    assert opened(tmp_path / "run", epochs=9, stop=stop).is_finished()
    assert not opened(tmp_path / "run", epochs=9).is_finished()
