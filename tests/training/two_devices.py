"""What two devices do together, for a process that has two: see `test_devices.py`."""

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
from rrl_tf.training.data_parallel import DataParallel
from rrl_tf.training.train_function import train_function

ROWS, STEPS = 8, 6

shared_runs.make_logical_devices()


@pytest.fixture(scope="module")
def strategy():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


@settings(max_examples=3)
@given(parts=st.integers(1, 5), width=st.integers(1, 3), integers=st.booleans())
def test_sums_and_rows_are_those_of_the_whole_batch(strategy, parts, width, integers):
    batch = np.random.default_rng(parts).normal(size=(2 * parts, width)).astype("float32")
    kind = "int32" if integers else "float32"

    def compute(part):
        return {"sum": tf.reduce_sum(part)}, (tf.cast(2 * part, kind), part[:, 0])

    sums, rows = tf.function(DataParallel(strategy, compute, []))(tf.constant(batch))
    np.testing.assert_allclose(sums["sum"], batch.sum(), atol=1e-5)
    np.testing.assert_array_equal(rows[0], (2 * batch).astype(kind))
    np.testing.assert_array_equal(rows[1], batch[:, 0])


def test_each_device_draws_numbers_of_its_own_and_the_first_those_of_one_device(strategy):
    one, two = (keras.layers.Dropout(0.5, seed=7) for _ in range(2))
    ones = tf.ones((4, 50))
    for layer in (one, two):
        layer.build(ones.shape)
    state = two.seed_generator.state
    parallel = DataParallel(
        strategy, lambda part: ((), two(part, training=True)), [state], jit_compile=False
    )
    shared = tf.function(lambda: parallel(tf.ones((8, 50)))[1])
    for _ in range(2):  # the second time from the state after the first
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
    """A network of a kind, trained as that needs it, and its batches."""
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
    if kind in ("weights", "embedding"):  # the parts' weights differ a lot
        arrays.append(rng.random((STEPS, ROWS)) * (np.arange(ROWS) > 2))
    data = tf.data.Dataset.from_tensor_slices(tuple(a[first:] for a in arrays))
    return data.map(lambda *rows: rows)


@pytest.mark.parametrize("kind", ["dense", "embedding", "weights", "float16"])
def test_fit_is_that_of_one_device(strategy, kind):
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
        "observation_t": floats[0],
        "action_t": rng.integers(3, size=size).astype("int32"),
        "return_t": rng.normal(size=size).astype("float32"),
        "discount_t": rng.choice([0, 0.9], size=size).astype("float32"),
        "return_lower_bound": np.full(size, -np.inf, "float32"),
        "observation_tpn": floats[1],
        "weight_t": rng.random(size).astype("float32"),
    }


def test_an_update_is_that_of_one_device(strategy):
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
        for name in metrics:
            np.testing.assert_allclose(shared[name], metrics[name], rtol=1e-4)
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
        may_change=("steps",),
        replicas=replicas,
    )


def test_another_number_of_devices_goes_on_with_a_run(tmp_path):
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


def test_more_devices_than_there_are_is_one_clear_error(tmp_path):
    with pytest.raises(InvalidInput, match=r"devices must be at most 2.*CPU.*received 3"):
        make_replicas(RunConfig(runs=str(tmp_path), devices=3), batch_size=9)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [1, 7])
def test_a_batch_that_cannot_be_shared_is_one_clear_error(tmp_path, strategy, size):
    with pytest.raises(InvalidInput, match=f"multiple of 2 rows.*received {size}"):
        make_replicas(RunConfig(runs=str(tmp_path), devices=2), batch_size=size)
    parallel = DataParallel(strategy, lambda part: (tf.reduce_mean(part), ()), [])
    with pytest.raises(InvalidInput, match=f"multiple of 2 rows.*received {size}"):
        tf.function(parallel, autograph=False)(tf.ones(size))


def test_weights_that_no_gradient_moves_are_refused(strategy):
    network = keras.Sequential([keras.Input((6,)), keras.layers.BatchNormalization()])
    network.compile("sgd", "mse")
    network.train_function = train_function(network, Replicas(strategy))
    data = tf.data.Dataset.from_tensors((tf.ones((8, 6)), tf.ones((8, 6))))
    with pytest.raises(InvalidInput, match=r"learned by gradients.*moving_"):
        network.fit(data, shuffle=False, verbose=0)
