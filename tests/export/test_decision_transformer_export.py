"""An exported Decision Transformer acts like the trained one."""

import dataclasses
import functools

import numpy as np
import pytest

from rrl_tf.envs import doorkey_task
from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_decision_transformer, load_policy
from rrl_tf.models import BehaviorCloning, DecisionTransformer
from rrl_tf.offline.scaling import Scaling
from rrl_tf.offline.trajectory_policy import TrajectoryPolicy
from serving.sessions import WindowSession

pytestmark = pytest.mark.tf_only
K = 4


def policy(discrete, state_size, **arguments):
    model = DecisionTransformer.from_preset(
        "fast",
        state_size=state_size,
        action_size=3,
        discrete=discrete,
        width=16,
        num_blocks=2,
        context_length=K,
        **arguments,
    )
    model.build()
    return model


def continuous():
    rng = np.random.default_rng(0)
    low, high = np.array([-1, 0, 2], "float32"), np.array([1, 4, 3], "float32")
    scaling = Scaling(*rng.normal(size=(2, 5)).astype("float32"), 100.0, low, high)
    observations = rng.normal(size=(7, 2, 5)).astype("float32")
    return policy(False, 5), scaling, observations


def discrete():
    preprocess = doorkey_task().preprocessor
    size = 7 * 7 * 24
    scaling = Scaling(
        np.zeros(size, "float32"), np.ones(size, "float32"), 1.0, preprocessor=preprocess
    )
    observations = np.random.default_rng(0).integers(0, 3, size=(7, 2, 7, 7, 4)).astype("uint8")
    return policy(True, size, positions="window"), scaling, observations


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Function that returns the results of `continuous` or `discrete` and the export folder."""

    @functools.cache
    def export(make):
        model, scaling, observations = make()
        shape, dtype = observations.shape[2:], observations.dtype
        folder, details = tmp_path_factory.mktemp("dt"), {"environment": "x"}
        version = export_decision_transformer(folder, model, scaling, shape, dtype, details)
        return model, scaling, observations, version

    return export


@pytest.mark.parametrize("make", [continuous, discrete])
def test_a_session_equals_the_trained_policy(make, exported):
    model, scaling, observations, version = exported(make)
    served = load_policy(version)
    assert served.details["context_length"] == K and served.details["environment"] == "x"
    session = WindowSession(served, target_return=50.0, num_envs=2)
    local = TrajectoryPolicy(model, scaling)
    local.begin([50.0, 50.0])
    for t, observation in enumerate(observations):  # longer than the window
        reward = np.array([1.0, 2.0]) * t
        action, attention = session.act(observation, reward, return_attention_scores=True)
        np.testing.assert_allclose(action, local.act(observation, reward), atol=1e-5)
        assert attention["block_1"].shape == (2, 1, 3 * K, 3 * K)
        np.testing.assert_allclose(attention["block_2"].sum(-1), 1.0, atol=1e-5)
    with pytest.raises(ValueError, match=r"the inputs \['actions'.*serving\.sessions"):
        served.act(observations[0])
    with pytest.raises(ValueError, match="needs a policy whose signature 'classify'"):
        served.classify(observations[0])
    served.close()


def test_discrete_actions_have_probabilities(exported):
    model, scaling, observations, version = exported(discrete)
    served = load_policy(version)
    rng = np.random.default_rng(1)
    window = {
        "states": observations[:K].swapaxes(0, 1),
        "actions": np.eye(3, dtype="float32")[rng.integers(0, 3, (2, K))],
        "returns_to_go": np.ones((2, K, 1), "float32"),
        "timesteps": np.tile(np.arange(K, dtype="int32"), (2, 1)),
        "mask": np.ones((2, K), "float32"),
    }
    answer = served.predict(window, "act")
    for name in ("actions", "returns_to_go", "mask"):
        values = window[name].copy()
        values[1, -1] = np.nan
        with pytest.raises(InvalidInput, match=f"^{name} must be finite .* received nan"):
            served.predict({**window, name: values}, "act")
    logits = np.asarray(model(scaling.window(window), last_action=True)["action"])
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    expected = odds / odds.sum(-1, keepdims=True)
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
    np.testing.assert_array_equal(answer["action"], expected.argmax(-1))
    served.close()


def test_the_default_target_is_the_best_return(tmp_path):
    """With `condition="return"`, rewards are not subtracted from the target."""
    _, scaling, observations = continuous()
    scaling = dataclasses.replace(scaling, condition="return", target_return=70.0)
    model = BehaviorCloning(5, 3, (8,), return_conditioned=True, distribution="censored_normal")
    model.build()
    served = load_policy(export_decision_transformer(tmp_path, model, scaling, (5,)))
    asked = WindowSession(served, target_return=70.0, num_envs=2)
    unasked, local = WindowSession(served, num_envs=2), TrajectoryPolicy(model, scaling)
    local.begin([70.0, 70.0])
    for t, observation in enumerate(observations):
        reward = np.array([1.0, 2.0]) * t
        action = unasked.act(observation, reward)
        np.testing.assert_allclose(action, local.act(observation, reward), atol=1e-5)
        np.testing.assert_array_equal(action, asked.act(observation, reward))
    other = WindowSession(served, target_return=0.0, num_envs=2).act(observations[-1])
    assert not np.allclose(action, other)
    served.close()


@pytest.fixture(scope="module")
def with_default_target(tmp_path_factory):
    model, scaling, _ = continuous()
    scaling = dataclasses.replace(scaling, target_return=70.0)
    return export_decision_transformer(tmp_path_factory.mktemp("dt"), model, scaling, (5,))


@pytest.mark.parametrize("packaged", [False, True])
@pytest.mark.parametrize("batch_size", [-1, 4097])
def test_the_batch_size_of_default_targets_is_limited(with_default_target, packaged, batch_size):
    served = load_policy("dt-doorkey" if packaged else with_default_target)
    with pytest.raises(InvalidInput, match="batch_size must be 0 to 4096"):
        served.predict({"batch_size": np.array(batch_size, np.int32)}, "default_target")
    most = served.predict({"batch_size": np.array(4096, np.int32)}, "default_target")
    assert len(most["target_return"]) == 4096
    served.close()


def test_a_policy_without_default_needs_a_target_return(exported):
    served = load_policy(exported(continuous)[-1])
    with pytest.raises(ValueError, match="the policy has no default"):
        WindowSession(served)
    served.close()
