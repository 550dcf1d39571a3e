"""What the network gets to see of raw values, and what becomes of its answers."""

import numpy as np
import pytest
from counting_episodes import BOX, offline

from rrl_tf.data.episodes import Episode, OfflineData
from rrl_tf.data.scaling import Scaling
from rrl_tf.data.windows import Windows


def test_scaling_standardises_states_and_returns_and_maps_actions_back():
    data = offline([5, 9])
    scaling = Scaling.of(data)
    states = np.concatenate([e.observations[:-1] for e in data.episodes])
    scaled = np.asarray(scaling.states(states[None]))[0]
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(scaled.std(0), 1, atol=1e-4)
    window = scaling.window(Windows(data, 5).windows([1], [8]))
    assert np.asarray(window["returns_to_go"]).max() <= 1
    actions = np.asarray(window["actions"])
    assert np.abs(actions).max() <= 1
    np.testing.assert_allclose(
        np.asarray(scaling.action(actions[0])), data.episodes[1].actions[4:9], atol=1e-5
    )
    beyond = np.asarray(scaling.action(np.array([[9.0, -9.0]], "float32")))
    np.testing.assert_allclose(beyond, [[4.0, -2.0]])


def test_scaling_of_prepared_and_discrete_data():
    data = offline([4], discrete=True)
    scaling = Scaling.of(data, prepare=lambda states: states[..., None] * np.ones(3, "float32"))
    assert scaling.state_size == 6
    window = scaling.window(Windows(data, 4).windows([0], [3]))
    assert tuple(window["states"].shape) == (1, 4, 6)
    np.testing.assert_array_equal(
        np.asarray(window["states"])[0, :, :3], np.arange(4)[:, None] * np.ones(3)
    )
    logits = np.array([[0.1, 0.9, 0.3], [5.0, 1.0, 2.0]], "float32")
    assert np.asarray(scaling.action(logits)).tolist() == [1, 0]


def test_a_state_that_never_changes_is_no_division_by_zero():
    constant = Episode(
        np.ones((4, 2), "float32"), np.zeros((3, 2), "float32"), np.ones(3), True, False
    )
    scaling = Scaling.of(OfflineData("test", (constant,), BOX, "none"))
    assert np.abs(np.asarray(scaling.states(np.full((1, 1, 2), 1.001, "float32")))).max() < 0.01


class Doubled:
    """A preparation that also tells its shape."""

    shape = (2, 2)

    def __call__(self, states):
        return np.stack([states, 2 * states], axis=-1)


def test_any_callable_prepares():
    """A function, or a value with more to tell: the numbers are the same."""
    data = offline([4])
    scalings = [Scaling.of(data, prepare=each) for each in (Doubled(), Doubled().__call__)]
    assert [each.state_size for each in scalings] == [4, 4]
    states = data.episodes[0].observations[None]
    one, other = (np.asarray(each.states(states)) for each in scalings)
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(one[..., 1::2], 2 * states)


def test_observations_that_are_no_vectors_need_a_preparation():
    images = Episode(np.zeros((3, 7, 7)), np.zeros((2, 2), "float32"), np.zeros(2), True, False)
    with pytest.raises(ValueError, match="need a `prepare`"):
        Scaling.of(OfflineData("test", (images,), BOX, "none"))


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf")])
def test_returns_are_divided_by_a_positive_number(value):
    with pytest.raises(ValueError, match=f"return_scale must be greater than 0; received {value}"):
        Scaling.of(offline([4]), return_scale=value)
