"""Dense policies in NumPy, compared with the same networks in Keras."""

import itertools

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.dense_policy import DensePolicy

sizes = st.lists(st.integers(1, 6), min_size=2, max_size=4)
seeds = st.integers(0, 2**20)


def layers_of(sizes, seed):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(m, n)), rng.normal(size=n)) for m, n in itertools.pairwise(sizes)]


def keras_network(layers, activation, end):
    """Return the network in Keras with float64 weights."""
    names = [activation] * (len(layers) - 1) + [end]
    dense = [
        keras.layers.Dense(len(bias), name, dtype="float64")
        for (_, bias), name in zip(layers, names)
    ]
    network = keras.Sequential([keras.Input((len(layers[0][0]),), dtype="float64"), *dense])
    network.set_weights([values for layer in layers for values in layer])
    return network


def torch_arrays(layers, hidden, last):
    """Return arrays as PyTorch saves them: only even layer numbers, weights (out, in)."""
    names = [f"{hidden}.{2 * i}" for i in range(len(layers) - 1)] + [last]
    arrays = {}
    for name, (weights, bias) in zip(names, layers):
        arrays |= {f"{name}.weight": weights.T, f"{name}.bias": bias}
    return arrays


def own_arrays(layers):
    names = [{f"W{i}": weights, f"b{i}": bias} for i, (weights, bias) in enumerate(layers)]
    return {name: value for each in names for name, value in each.items()}


FORMS = {
    "off policy": (
        lambda layers: torch_arrays(layers, "actor.latent_pi", "actor.mu"),
        ("relu", "tanh"),
    ),
    "on policy": (
        lambda layers: {
            **torch_arrays(layers, "mlp_extractor.policy_net", "action_net"),
            "mlp_extractor.value_net.0.weight": np.zeros((7, 7)),
            "log_std": np.zeros(9),
        },
        ("tanh", "linear"),
    ),
    "deterministic": (
        lambda layers: torch_arrays(layers, "actor.mu", f"actor.mu.{2 * len(layers) - 2}"),
        ("relu", "tanh"),
    ),
    "own": (own_arrays, ("tanh", "linear")),
}


@pytest.mark.parametrize("form", FORMS)
@given(sizes=sizes, seed=seeds)
def test_a_policy_equals_the_network_in_keras(form, sizes, seed):
    layers, (arrays, activations) = layers_of(sizes, seed), FORMS[form]
    policy = DensePolicy(arrays(layers))
    observations = np.random.default_rng(seed + 1).normal(size=(4, sizes[0]))
    expected = np.array(keras_network(layers, *activations)(observations))
    np.testing.assert_allclose([policy(each) for each in observations], expected, atol=1e-12)


def test_more_than_ten_layers_keep_their_order():
    layers = layers_of([2] * 14, 0)
    for form in ("off policy", "own"):
        arrays, activations = FORMS[form]
        expected = np.array(keras_network(layers, *activations)(np.ones((1, 2))))[0]
        np.testing.assert_allclose(DensePolicy(arrays(layers))(np.ones(2)), expected, atol=1e-12)


def test_a_linear_policy_may_have_no_bias():
    weights = np.arange(6.0).reshape(2, 3)
    for name in ("action_net.weight", "action_net.0.weight"):
        policy = DensePolicy({name: weights})
        np.testing.assert_array_equal(policy(np.array([1.0, 10.0, 100.0])), [210.0, 543.0])


def test_an_ars_policy_with_hidden_layers_ends_in_a_tanh():
    layers = layers_of([3, 4, 2], 0)
    policy = DensePolicy(torch_arrays(layers, "action_net", "action_net.2"))
    expected = np.array(keras_network(layers, "relu", "tanh")(np.ones((1, 3))))[0]
    np.testing.assert_allclose(policy(np.ones(3)), expected, atol=1e-12)


@given(seed=seeds)
def test_policy_standardises_observations(seed):
    rng = np.random.default_rng(seed)
    linear = {"W0": np.eye(3), "b0": np.zeros(3)}
    mean, deviation, observation = rng.normal(size=3), rng.uniform(0.1, 2, 3), rng.normal(size=3)
    own = DensePolicy({**linear, "obs_mean": mean, "obs_std": deviation})
    np.testing.assert_allclose(own(observation), (observation - mean) / (deviation + 1e-6))
    variance = {"obs_mean": mean, "obs_var": deviation, "epsilon": 0.5, "clip_obs": 0.3}
    expected = np.clip((observation - mean) / np.sqrt(deviation + 0.5), -0.3, 0.3)
    np.testing.assert_allclose(DensePolicy({**linear, **variance})(observation), expected)


def test_a_tanh_spans_the_action_bounds():
    """Stable-Baselines3 scales actions in the same way."""
    arrays = {"actor.mu.weight": np.array([[1.0], [1.0]]), "actor.mu.bias": np.array([0.0, 50.0])}
    bounds = {"action_low": np.array([-2.0, 0.0]), "action_high": np.array([2.0, 10.0])}
    policy = DensePolicy({**arrays, **bounds})
    np.testing.assert_allclose(policy(np.array([0.5])), [2 * np.tanh(0.5), 10.0])
    np.testing.assert_allclose(DensePolicy(arrays)(np.array([0.5])), [np.tanh(0.5), 1.0])


def test_load_returns_the_policy_of_a_file(tmp_path):
    layers = layers_of([3, 4, 2], 0)
    arrays = {name: value.astype("float32") for name, value in own_arrays(layers).items()}
    np.savez(tmp_path / "mine.npz", **arrays)
    observation = np.array([0.1, -0.2, 0.3], "float32")
    expected = DensePolicy(arrays)(observation)
    np.testing.assert_array_equal(DensePolicy.load(tmp_path / "mine.npz")(observation), expected)
    assert expected.dtype == "float64"


WHOLE = own_arrays(layers_of([3, 4, 2], 0))


@pytest.mark.parametrize(
    "changes",
    [
        {"b1": None},
        {"W0": None},
        {"W1": np.zeros((5, 2))},
        {"W1": np.full((4, 2), np.nan)},
        {"obs_mean": np.zeros(2), "obs_std": np.ones(2)},
        {"obs_mean": np.zeros(3)},
        {"W0": np.zeros(3)},
        {"W0": np.array(1.0)},
        {"b0": np.array(1.0)},
        {"b0": np.array(["a"])},
        {"b0": np.zeros(4, "complex64")},
        {"W0": np.ones((3, 4), "complex64"), "obs_mean": np.zeros(3)},
    ],
)
def test_invalid_weights_are_errors(tmp_path, changes):
    arrays = {**WHOLE, **changes}
    arrays = {name: value for name, value in arrays.items() if value is not None}
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(
        InvalidInput, match=r"mine\.npz must hold finite .*weights.*; received .*b0"
    ):
        DensePolicy.load(tmp_path / "mine.npz")


def test_complex_weights_are_named_by_their_dtype():
    with pytest.raises(InvalidInput, match=r"received W0 complex128\(3, 4\), b0 float64\(4,\)"):
        DensePolicy({**WHOLE, "W0": WHOLE["W0"] + 1j})


def test_invalid_files_are_errors(tmp_path):
    np.save(tmp_path / "array.npz.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("no weights")
    (tmp_path / "empty.npz").write_text("")
    for name in ("array.npz.npy", "text.npz", "empty.npz", "none.npz"):
        with pytest.raises(InvalidInput, match=f"{name} must be a file of np.savez that contains"):
            DensePolicy.load(tmp_path / name)


def test_an_observation_of_another_shape_is_an_error():
    policy = DensePolicy(WHOLE, "mine.npz")
    with pytest.raises(
        InvalidInput, match=r"mine.npz must have .* \(3,\); received the shape \(4,\)"
    ):
        policy(np.zeros(4))
