"""BehaviorCloning, and predictions that it shares with DecisionTransformer."""

import keras
import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.models import BehaviorCloning, DecisionTransformer


def test_states_alone_suffice():
    model = BehaviorCloning(state_size=4, action_size=3, hidden_units=(6,))
    real = model({"states": np.ones((2, 5, 4), "float32")})["action"]
    symbol = model({"states": keras.Input((5, 4))})["action"]
    shape = model.compute_output_shape({"states": (2, 5, 4)})["action"]
    assert tuple(real.shape) == shape == (2, 5, 3)
    assert symbol.shape == (None, 5, 3)


def windows(steps, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "states": rng.normal(size=(2, steps, 4)).astype("float32"),
        "actions": rng.normal(size=(2, steps, 3)).astype("float32"),
        "returns_to_go": rng.normal(size=(2, steps, 1)).astype("float32"),
        "timesteps": np.tile(np.arange(steps, dtype="int32"), (2, 1)),
        "mask": np.ones((2, steps), "float32"),
    }


@pytest.mark.parametrize("return_conditioned", [False, True])
def test_return_matters_if_conditioned(return_conditioned):
    model = BehaviorCloning(4, 3, (6,), return_conditioned=return_conditioned)
    window = windows(5)
    other = {**window, "returns_to_go": window["returns_to_go"] + 1.0}
    action, changed = (
        keras.ops.convert_to_numpy(model(each)["action"]) for each in (window, other)
    )
    same = np.array_equal(action, changed)
    assert same is not return_conditioned


def test_noise_scale_outside_0_to_1_is_an_error():
    with pytest.raises(InvalidInput, match=r"`noise_scale` must be from 0 to 1; received 7"):
        BehaviorCloning(3, 2, noise_scale=7)


@pytest.mark.parametrize("last_action", [False, True])
@pytest.mark.parametrize("model", [BehaviorCloning, DecisionTransformer])
def test_distribution_and_action_are_returned(model, last_action):
    network = model(4, 3, distribution="censored_normal", noise_scale=0.0)
    window = windows(5)
    predicted = network(window, last_action=last_action)
    rows = (2,) if last_action else (2, 5)
    action, distribution = (
        keras.ops.convert_to_numpy(predicted[name]) for name in ("action", "distribution")
    )
    assert action.shape == (*rows, 3) and distribution.shape == (*rows, 6)
    np.testing.assert_allclose(action, np.clip(distribution[..., :3], -1, 1))
    symbols = network.compute_output_spec(
        {name: keras.KerasTensor((None, *value.shape[1:])) for name, value in window.items()},
        last_action=last_action,
    )
    assert symbols["distribution"].shape == (None, *rows[1:], 6)


def test_members_train_on_parts_of_a_batch_and_play_their_mean():
    model, window = BehaviorCloning(4, 3, (6,), dropout=0.0, members=2), windows(5)
    model.build()
    states = window["states"].reshape(-1, 4)
    apart = [keras.ops.convert_to_numpy(member(states)) for member in model.networks]
    assert not np.allclose(*apart)
    played = keras.ops.convert_to_numpy(model(window)["action"]).reshape(-1, 3)
    np.testing.assert_allclose(played, np.mean(apart, axis=0), atol=1e-6)
    trained = keras.ops.convert_to_numpy(model(window, training=True)["action"]).reshape(-1, 3)
    np.testing.assert_allclose(trained, np.concatenate([apart[0][:5], apart[1][5:]]), atol=1e-6)
    with pytest.raises(InvalidInput, match="multiple of members=3"):
        BehaviorCloning(4, 3, members=3)(window, training=True)


def test_bad_distributions_are_errors():
    with pytest.raises(InvalidInput, match="discrete actions; received 'censored_normal'"):
        BehaviorCloning(4, 3, discrete=True, distribution="censored_normal")
    with pytest.raises(InvalidInput, match=r"`distribution` must be one of .*received 'normal'"):
        DecisionTransformer(4, 3, distribution="normal")
