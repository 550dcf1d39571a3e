"""A recorded profile has step markers and the documented names."""

import functools
import importlib.util

import keras
import numpy as np
import pytest
import shared_runs
import tensorflow as tf

from rrl_tf.training import FitRun, Profile, RunConfig, profiled
from rrl_tf.training.fit import train_step

pytestmark = pytest.mark.tf_only


def recorded(folder):
    """Return the plane of the CPU in a profile, and its events."""
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace  # private in TensorFlow 2.21

    (file,) = folder.rglob("*.xplane.pb")
    planes = {plane.name: plane for plane in XSpace.FromString(file.read_bytes()).planes}
    host = planes["/host:CPU"]
    return host, [event for line in host.lines for event in line.events]


def recorded_names(folder):
    """Return the names of all CPU events of a profile, split at slashes."""
    host, events = recorded(folder)
    names = [host.event_metadata[event.metadata_id].name for event in events]
    return [part for name in names for part in name.split("/")]


def compiled(**options):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(2, **options)]
    )
    optimizer = keras.optimizers.Adam(1e-2, global_clipnorm=0.1)
    if options:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "mse", metrics=["mae"], weighted_metrics=["mse"], jit_compile=False)
    return model


def test_private_argument_of_trace_is_recorded_by_tensorflow_2_21(tmp_path):
    """Check `Profile` before you add a version here and in pyproject.toml.

    TensorBoard takes an event with `_r` and `step_num` as the marker of a step.
    """
    assert tf.__version__.startswith("2.21.")
    profile = Profile(tmp_path, 0, count=1)
    profile.on_train_batch_begin(0)
    profile.on_train_batch_end(0)
    host, events = recorded(tmp_path)
    (step,) = (e for e in events if host.event_metadata[e.metadata_id].name == "train")
    assert {"_r", "step_num"} <= {host.stat_metadata[s.metadata_id].name for s in step.stats}


def test_fit_run_records_steps_and_scopes(tmp_path, capsys):
    config = RunConfig(runs=str(tmp_path), name="run", profile=True)
    run = FitRun(config, compiled(), steps=30, steps_per_epoch=15)
    run.fit(tf.data.Dataset.from_tensors((tf.ones((8, 4)), tf.ones((8, 2)))).repeat())
    names = recorded_names(tmp_path)
    assert names.count("train") == 20
    assert {"forward", "gradient_tape", "optimizer"} <= set(names)
    assert f"tensorboard --logdir {tmp_path / 'run'}" in capsys.readouterr().out


@pytest.mark.usefixtures("few_pictures")
def test_agent_records_a_step_and_scopes(tmp_path):
    shared_runs.train(tmp_path, "double_dqn", 1, "run", profile=True)
    names = recorded_names(tmp_path)
    assert names.count("train") == 1
    scopes = {"act", "replay", "update", "target", "forward", "gradient_tape", "optimizer"}
    assert scopes <= set(names)


@pytest.mark.parametrize("count", [3, 4, 100])
def test_items_from_the_start_on_are_recorded(tmp_path, count):
    def work():
        for i in range(6):
            yield tf.reduce_sum(tf.ones((i + 1, 8))).numpy()

    items = list(profiled(work(), tmp_path, lambda number: number == 2, count=count))
    assert items == [8.0 * (i + 1) for i in range(6)]
    # The end of the iterator counts as a step.
    assert recorded_names(tmp_path).count("train") == min(count, 5)


def test_profile_is_complete_if_the_caller_stops_early(tmp_path):
    for item in profiled(range(10), tmp_path, 2):
        if item == 4:
            break
    assert recorded_names(tmp_path).count("train") == 3


def test_without_a_start_nothing_is_recorded(tmp_path):
    assert list(profiled(range(3), tmp_path, lambda number: False)) == [0, 1, 2]
    assert not list(tmp_path.iterdir())


def test_callback_records_steps_of_any_fit(tmp_path):
    profile = Profile(tmp_path, 3, count=2)
    data = np.ones((12, 4)), np.ones((12, 2))
    compiled().fit(*data, batch_size=2, verbose=0, callbacks=[profile])
    assert recorded_names(tmp_path).count("train") == 2


@pytest.mark.parametrize("installed", [True, False])
def test_missing_profiler_page_is_named(tmp_path, capsys, monkeypatch, installed):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed or None)
    list(profiled(range(2), tmp_path, 0))
    assert ("pip install '.[profile]'" in capsys.readouterr().out) != installed


@pytest.mark.parametrize("options", [{}, {"dtype": "mixed_float16"}], ids=["float32", "float16"])
def test_train_step_equals_that_of_keras(options):
    rng = np.random.default_rng(0)
    data = rng.normal(size=(24, 4)), rng.normal(size=(24, 2)), rng.uniform(size=24)
    logs = []
    for named in (False, True):
        model = compiled(**options)
        if named:
            model.train_step = functools.partial(train_step, model)
        history = model.fit(data[0], data[1], 8, 2, sample_weight=data[2], verbose=0)
        logs.append((history.history, model.get_weights()))
    (expected, weights), (history, own) = logs
    assert history == expected
    for mine, theirs in zip(own, weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
