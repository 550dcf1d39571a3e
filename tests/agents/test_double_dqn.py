"""The update of the double DQN equals its definition, for any Keras model and precision."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.agents import DoubleDQN
from rrl_tf.envs import doorkey_task
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RelationalQNetwork, dense_q_network

pytestmark = pytest.mark.tf_only

PREPARE = doorkey_task(observation="view").preprocessor


def make_agent(seed=0, dtype="float32", **arguments):
    keras.utils.set_random_seed(seed)
    network = RelationalQNetwork.from_preset(
        "fast", PREPARE, num_actions=5, num_rounds=1, dtype=dtype
    )
    network.build((None, 7, 7, 20))
    return DoubleDQN(network, PREPARE, **{"jit_compile": False, **arguments})


def make_batch(seed=0, size=8):
    rng = np.random.default_rng(seed)
    return {
        "observation_t": rng.integers(3, size=(size, 7, 7, 3)).astype("uint8"),
        "action_t": rng.integers(5, size=size).astype("int32"),
        "return_t": rng.normal(size=size).astype("float32"),
        "discount_t": rng.choice([0, 0.9], size=size).astype("float32"),
        "return_lower_bound": np.full(size, -np.inf, "float32"),
        "observation_tpn": rng.integers(3, size=(size, 7, 7, 3)).astype("uint8"),
        "weight_t": np.ones(size, "float32"),
    }


def update(agent, batch):
    """Do one update; return its metrics as floats and its errors."""
    metrics, error = agent.update(batch)
    return {name: float(value) for name, value in metrics.items()}, error.numpy()


def q_values(agent, observation):
    return agent.values(agent.network, tf.constant(observation), {})[0].numpy()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_updates_fit_a_fixed_batch(jit_compile):
    agent = make_agent(jit_compile=jit_compile, learning_rate=3e-3)
    batch = make_batch()
    losses = [update(agent, batch)[0]["loss"] for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0]


def test_errors_are_those_of_the_pure_target_and_loss():
    agent, batch = make_agent(), make_batch()
    q_t, q_tpn = q_values(agent, batch["observation_t"]), q_values(agent, batch["observation_tpn"])
    target = batch["return_t"] + batch["discount_t"] * q_tpn.max(
        -1
    )  # both networks are still equal
    _, error = update(agent, batch)
    np.testing.assert_allclose(error, target - q_t[np.arange(8), batch["action_t"]], atol=1e-5)


@pytest.mark.parametrize(("period", "rate"), [(3, 1.0), (1, 0.25)])
def test_target_network_moves_by_its_rate_at_its_period(period, rate):
    agent = make_agent(target_period=period, target_rate=rate)
    target = {k: v for k, v in agent.get_state().items() if k.startswith("target")}
    for update in range(1, 7):
        agent.update(make_batch(update))
        state = agent.get_state()
        for name in target:
            online = state[name.replace("target", "online", 1)]
            if update % period == 0:
                target[name] = target[name] + rate * (online - target[name])
            np.testing.assert_allclose(state[name], target[name], atol=1e-6)


def test_gradient_is_clipped_by_its_global_norm():
    batch = make_batch()
    free, clipped = make_agent(clip_norm=None), make_agent(clip_norm=1e-12)
    before = clipped.get_state()
    for agent in (free, clipped):
        norm = update(agent, batch)[0]["gradient_norm"]
        assert norm > 0.01  # the norm before clipping
    moved = {
        name: max(
            np.abs(agent.get_state()[name] - before[name]).max()
            for name in before
            if name.startswith("online")
        )
        for name, agent in (("free", free), ("clipped", clipped))
    }
    # Adam divides by |gradient| + 1e-7, so only gradients far below 1e-7 reduce the step.
    assert moved["clipped"] < 1e-2 * moved["free"]


def test_epsilon_one_is_uniform_and_zero_is_greedy():
    agent = make_agent()
    observation = make_batch(size=2000)["observation_t"]
    greedy, _ = agent.act(tf.constant(observation), {}, 0.0, (0, 0))
    np.testing.assert_array_equal(greedy, q_values(agent, observation).argmax(-1))
    random, _ = agent.act(tf.constant(observation), {}, 1.0, (0, 0))
    np.testing.assert_allclose(np.bincount(random, minlength=5) / 2000, 0.2, atol=0.04)


def test_selecting_at_t_changes_the_update():
    right, wrong = make_agent(), make_agent(select_at_t=True)
    batch = make_batch(size=64)
    _, right_error = update(right, batch)
    _, wrong_error = update(wrong, batch)
    bootstrapped = batch["discount_t"] > 0
    assert np.abs(right_error - wrong_error)[bootstrapped].max() > 1e-4
    np.testing.assert_allclose(right_error[~bootstrapped], wrong_error[~bootstrapped], atol=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_learns_and_answers_in_float32(dtype):
    agent = make_agent(dtype=dtype)
    losses = [update(agent, make_batch())[0]["loss"] for _ in range(30)]
    assert losses[-1] < losses[0]
    assert q_values(agent, make_batch()["observation_t"]).dtype == np.float32


def identity(observation):
    return keras.ops.cast(observation, "float32")


def vectors(seed=0, size=8):
    batch = make_batch(seed, size)
    rng = np.random.default_rng(seed)
    changes = {
        name: rng.normal(size=(size, 4)).astype("float32")
        for name in ("observation_t", "observation_tpn")
    }
    return batch | changes | {"action_t": batch["action_t"] % 2}


class Subclassed(keras.Model):
    """A model without the arguments `num_actions` and `training`."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(2)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x)


def functional():
    x = keras.Input((4,))
    return keras.Model(x, keras.layers.Dense(2)(keras.layers.LayerNormalization()(x)))


def with_dropout():
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Dense(32, "relu"),
            layers.Dropout(0.5),
            layers.BatchNormalization(),
            layers.Dense(2),
        ]
    )


@pytest.mark.parametrize(
    ("make", "jit_compile"),
    [
        (lambda: dense_q_network(2), False),
        (functional, False),
        (with_dropout, True),
        (Subclassed, False),
    ],
)
def test_any_keras_model_can_be_trained(make, jit_compile):
    network = make()
    network.build((None, 4))
    agent = DoubleDQN(network, identity, jit_compile=jit_compile, learning_rate=1e-2)
    actions, _ = agent.act(vectors(size=500)["observation_t"], {}, 1.0, (0, 0))
    assert set(actions.numpy()) == {0, 1}
    batch = vectors()
    losses = [update(agent, batch)[0]["loss"] for _ in range(40)]
    assert np.mean(losses[-5:]) < 0.7 * losses[0]
    network = make()
    network.build((None, 4))
    twin = DoubleDQN(network, identity, jit_compile=jit_compile, learning_rate=1e-2)
    twin.set_state(agent.get_state())
    np.testing.assert_array_equal(
        twin.greedy(batch["observation_t"]), agent.greedy(batch["observation_t"])
    )
    assert update(twin, batch)[0] == update(agent, batch)[0]  # dropout's random state is restored


def test_half_precision_only_scales_the_loss():
    agent = make_agent(dtype="mixed_float16")
    full = make_agent()
    batch = make_batch()
    # Without loss scaling, the gradients of such a small loss are zero in half precision.
    tiny = batch | {"weight_t": np.full(8, 1e-7, "float32")}
    names = [name for name in agent.get_state() if name.startswith("online")]
    before = agent.get_state()
    metrics, errors = update(agent, tiny)
    expected, expected_errors = update(full, tiny)
    np.testing.assert_allclose(errors, expected_errors, atol=2e-2)
    assert metrics["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=0.1)
    moved = [np.abs(agent.get_state()[name] - before[name]).max() > 0 for name in names]
    assert np.mean(moved) > 0.8


def test_state_of_another_network_is_rejected_and_changes_nothing():
    agent = make_agent()
    before = agent.get_state()
    keras.utils.set_random_seed(0)
    other = RelationalQNetwork.from_preset("book", num_actions=5)
    other.build((None, 7, 7, 3))
    with pytest.raises(ValueError, match=r"not fit the agent.*; and \d+ more"):
        agent.set_state(DoubleDQN(other, PREPARE).get_state())
    for spoiled, received in ((np.nan, "nan"), (1j, "complex64")):
        kernel = before["online/000"] * spoiled
        with pytest.raises(InvalidInput, match=f"online/000 contains {received}, expected finite"):
            agent.set_state(before | {"online/000": kernel})
    for name, value in agent.get_state().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize(
    ("argument", "value"),
    [("loss", "l1"), ("target_period", 0), ("target_period", 2.5), ("target_rate", 0.0)],
)
def test_invalid_argument_is_named(argument, value):
    with pytest.raises(ValueError, match=rf"{argument}.*received {value!r}"):
        make_agent(**{argument: value})


def test_network_without_weights_is_rejected():
    with pytest.raises(ValueError, match="build"):
        DoubleDQN(RelationalQNetwork.from_preset("fast", PREPARE, num_actions=5), PREPARE)


def test_muon_moves_a_matrix_as_far_in_every_direction():
    network = dense_q_network(3, hidden_units=(8, 8))
    network.build((None, 8))
    agent = DoubleDQN(network, identity, learning_rate=0.1, optimizer="muon")
    kernel = network.layers[1].kernel
    before, rng = kernel.numpy(), np.random.default_rng(0)
    gradients = [rng.normal(size=v.shape).astype("float32") for v in network.trainable_variables]
    uneven = gradients[2] * (8.0 ** -np.arange(8)).astype("float32")  # one direction dominates
    gradients[2] = uneven
    agent._apply([tf.constant(gradient) for gradient in gradients])
    sizes = np.linalg.svd(kernel.numpy() - before, compute_uv=False)
    steps = np.linalg.svd(uneven, compute_uv=False)
    assert steps[0] / steps[3] > 100
    assert sizes[0] / sizes[3] < 3


def test_unknown_optimizer_is_rejected():
    network = dense_q_network(3)
    network.build((None, 8))
    with pytest.raises(InvalidInput, match=r"optimizer.*'sgd'"):
        DoubleDQN(network, identity, optimizer="sgd")
