"""Tests that need two devices. `test_devices.py` runs them in a separate process."""

import keras
import numpy as np
import pytest
import shared_runs
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.agents import DoubleDQN
from rrl_tf.errors import InvalidInput
from rrl_tf.models import dense_q_network
from rrl_tf.training import FitRun, Replicas, RunConfig, make_replicas
from rrl_tf.training.fit import train_function

ROWS, STEPS = 8, 6

shared_runs.make_logical_devices()


@pytest.fixture(scope="module")
def strategy():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


@settings(max_examples=3)
@given(parts=st.integers(1, 5), width=st.integers(1, 3), integers=st.booleans())
def test_sums_and_rows_equal_those_of_the_whole_batch(strategy, parts, width, integers):
    batch = np.random.default_rng(parts).normal(size=(2 * parts, width)).astype("float32")
    kind = "int32" if integers else "float32"

    def compute(part):
        return {"sum": tf.reduce_sum(part)}, (tf.cast(2 * part, kind), part[:, 0])

    sums, rows = tf.function(Replicas(strategy).spread(compute, []))(tf.constant(batch))
    np.testing.assert_allclose(sums["sum"], batch.sum(), atol=1e-5)
    np.testing.assert_array_equal(rows[0], (2 * batch).astype(kind))
    np.testing.assert_array_equal(rows[1], batch[:, 0])


def test_first_device_draws_the_numbers_of_a_single_device(strategy):
    one, two = (keras.layers.Dropout(0.5, seed=7) for _ in range(2))
    ones = tf.ones((4, 50))
    for layer in (one, two):
        layer.build(ones.shape)
    state = two.seed_generator.state
    parallel = Replicas(strategy).spread(lambda part: ((), two(part, training=True)), [state])
    shared = tf.function(lambda: parallel(tf.ones((8, 50)))[1])
    for _ in range(2):  # the second pass continues from the state of the first
        alone, (first, second) = one(ones, training=True), tf.split(shared(), 2)
        np.testing.assert_array_equal(first, alone)
        assert np.abs(second - alone).any()
    np.testing.assert_array_equal(state, one.seed_generator.state)


def dense(**options):
    return keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(16, "relu", **options), keras.layers.Dense(3)]
    )


def words():
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(4, 5),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )


def compiled(kind):
    """Return a compiled network of a kind and its batches."""
    keras.utils.set_random_seed(2)
    network = words() if kind == "embedding" else dense(kernel_regularizer="l2")
    optimizer = keras.optimizers.Adam(1e-3, global_clipnorm=0.1)
    if kind == "float16":
        network = dense(dtype="mixed_float16")
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**20)
    reduction = "mean_with_sample_weight" if kind == "weights" else "sum_over_batch_size"
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
    network.compile(optimizer, loss, metrics=["accuracy"], jit_compile=kind == "weights")
    optimizer.build(network.trainable_variables)
    return network, batches(kind)


def batches(kind, first=0):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(STEPS, ROWS, 6)).astype("float32")
    if kind == "embedding":
        inputs = rng.integers(4, size=inputs.shape)
    arrays = [inputs, rng.integers(3, size=(STEPS, ROWS))]
    if kind in ("weights", "embedding"):  # sample weights of the replicas differ a lot
        arrays.append(rng.random((STEPS, ROWS)) * (np.arange(ROWS) > 2))
    data = tf.data.Dataset.from_tensor_slices(tuple(a[first:] for a in arrays))
    return data.map(lambda *rows: rows)


@pytest.mark.parametrize("kind", ["dense", "embedding", "weights", "float16"])
def test_fit_equals_that_of_one_device(strategy, kind):
    logs = []
    networks = []
    for replicas in (None, Replicas(strategy)):
        network, data = compiled(kind)
        if replicas:
            network.train_function = train_function(network, replicas)
        history = network.fit(data, epochs=2, shuffle=False, verbose=0)
        logs.append(history.history)
        networks.append([np.asarray(v) for v in (*network.variables, *network.optimizer.variables)])
    atol = 1e-3 if kind == "float16" else 1e-6
    for ours, theirs in zip(*networks, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=atol)
    assert logs[0].keys() == logs[1].keys() == {"loss", "accuracy"}
    for name in logs[0]:
        np.testing.assert_allclose(logs[1][name], logs[0][name], rtol=1e-5)


def batch_of(size, seed):
    rng = np.random.default_rng(seed)
    floats = rng.normal(size=(2, size, 4)).astype("float32")
    return {
        "observation_t": tf.constant(floats[0]),
        "action_t": tf.constant(rng.integers(3, size=size), tf.int32),
        "return_t": tf.constant(rng.normal(size=size), tf.float32),
        "discount_t": tf.constant(rng.choice([0, 0.9], size=size), tf.float32),
        "return_lower_bound": tf.fill((size,), -np.inf),
        "observation_tpn": tf.constant(floats[1]),
        "weight_t": tf.constant(rng.random(size), tf.float32),
    }


def test_agent_update_equals_that_of_one_device(strategy):
    agents = []
    for spread in (None, Replicas(strategy).spread):
        keras.utils.set_random_seed(0)
        network = dense_q_network(3)
        network.build((None, 4))
        options = {"clip_norm": 0.5, "jit_compile": True, "spread": spread}
        agents.append(DoubleDQN(network, lambda x: x, **options))
    for seed in range(5):
        (metrics, error), (shared, shared_error) = (a.update(batch_of(8, seed)) for a in agents)
        np.testing.assert_allclose(shared_error, error, atol=1e-5)
        for name, value in metrics.items():
            np.testing.assert_allclose(shared[name], value, rtol=1e-4, err_msg=name)
    one, two = (agent.get_state() for agent in agents)
    for name, array in one.items():
        np.testing.assert_allclose(two[name], array, atol=1e-5, err_msg=name)


def run_of(path, devices, steps):
    network, _ = compiled("dense")
    config = RunConfig(runs=str(path), name="run", devices=devices)
    replicas = make_replicas(config, ROWS)
    return FitRun(
        config,
        network,
        steps=steps,
        steps_per_epoch=2,
        replicas=replicas,
    )


def test_run_resumes_with_another_number_of_devices(tmp_path):
    def weights(*runs):
        for path, devices, steps in runs:
            run = run_of(path, devices, steps)
            run.fit(batches("dense", run.step))
        assert [row["step"] for row in run.log.rows] == [2, 4, 6]
        return run.model.get_weights()

    one = weights((tmp_path / "one", 1, 6))
    two = weights((tmp_path / "two", 2, 2), (tmp_path / "two", 1, 4), (tmp_path / "two", 2, 6))
    for ours, theirs in zip(one, two):
        np.testing.assert_allclose(theirs, ours, atol=1e-6)


def test_missing_devices_are_one_clear_error(tmp_path):
    with pytest.raises(
        InvalidInput, match=r"`devices` must be at most 2, the number of CPU.*received 3"
    ):
        make_replicas(RunConfig(runs=str(tmp_path), devices=3), batch_size=9)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [1, 7])
def test_uneven_batch_is_one_clear_error(tmp_path, size):
    with pytest.raises(InvalidInput, match=f"multiple of the 2 devices; received {size}"):
        make_replicas(RunConfig(runs=str(tmp_path), devices=2), batch_size=size)


def test_weights_without_gradient_are_rejected(strategy):
    network = keras.Sequential([keras.Input((6,)), keras.layers.BatchNormalization()])
    network.compile("sgd", "mse")
    network.train_function = train_function(network, Replicas(strategy))
    data = tf.data.Dataset.from_tensors((tf.ones((8, 6)), tf.ones((8, 6))))
    with pytest.raises(InvalidInput, match=r"only train weights by gradients.*moving_"):
        network.fit(data, shuffle=False, verbose=0)
