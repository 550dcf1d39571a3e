"""Target returns, best weights, the noise scale and errors on recorded episodes."""

import contextlib
import dataclasses

import gymnasium
import numpy as np
import pytest
from counting_episodes import offline, with_open_envs
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.models import BehaviorCloning
from rrl_tf.offline import Scaling, TrajectoryPolicy, Windows
from rrl_tf.offline.evaluation import (
    ReturnEvaluator,
    action_error_by_return,
    choose_noise_scale,
    default_targets,
    make_envs,
    set_noise_scale,
    target_following,
    validation_windows,
)

pytestmark = pytest.mark.tf_only


def behavior_cloning(discrete=False, seed=0):
    model = BehaviorCloning(2, 3 if discrete else 2, hidden_units=(4,), discrete=discrete)
    model.build()
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
    return model


@given(returns=st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_default_targets_span_the_returns(returns):
    returns = np.array(returns)
    targets = default_targets(returns)
    assert list(targets) == sorted(set(targets))
    expected = np.linspace(returns.min(), returns.max(), 5) if len(targets) > 1 else returns[:1]
    if len(targets) in (1, 5):  # float64 may have fewer than 5 numbers in the range
        np.testing.assert_allclose(targets, expected, rtol=5.1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("returns", "targets"),
    [
        ([-100_050, -100_010], (-100_050, -100_040, -100_030, -100_020, -100_010)),
        ([5.0, 5.0], (5.0,)),
        ([0.1 + 0.2, 0.3], (0.1 + 0.2,)),
        ([-2.8214, 4171.8], (-2.82, 1040, 2080, 3130, 4170)),
    ],
)
def test_default_targets_have_three_digits_if_these_differ(returns, targets):
    assert default_targets(np.array(returns)) == targets


class Lasting(gymnasium.Env):
    """The last digit of the seed plus 1 is the number of steps; each reward is 1."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-2, 4, (2,))

    def __init__(self, reports=False):
        self.reports = reports

    def reset(self, *, seed=None, options=None):
        self.left = self.steps = seed % 10 + 1
        return np.zeros(2, "float32"), {}

    def step(self, action):
        self.left -= 1
        info = {"success": self.steps > 5} if self.reports else {}
        return np.zeros(2, "float32"), 1.0, self.left == 0, False, info


@pytest.mark.parametrize("reports", [True, False])
def test_means_are_those_of_the_played_episodes(reports):
    policy = TrajectoryPolicy(behavior_cloning(), Scaling.of(offline([4])))
    evaluator = ReturnEvaluator(policy, [Lasting(reports) for _ in range(10)], [1.0, 2.0])
    expected = {"return": 5.5, "return_deviation": np.arange(1, 11).std(), "length": 5.5}
    expected |= {"success": 0.5} if reports else {}
    assert evaluator.table(evaluator.targets, seed=20) == {"1": expected, "2": expected}
    similar = evaluator.table([1234567.0, 1234569.0, 1234567.0], seed=20)
    assert similar == {"1234567.0": expected, "1234569.0": expected}
    two = evaluator.means(1.0, seed=3, episodes=2)
    assert two["return"] == 4.5 and two["return_deviation"] == 0.5


def table(returns):
    return {f"{target:g}": {"return": float(value)} for target, value in returns.items()}


@pytest.mark.parametrize(
    ("returns", "correlation", "error", "followed"),
    [
        ({0: 1, 5: 5, 10: 9}, 1.0, 0.667, True),
        ({8: 491, 37: 400, 66: 300, 95: 200, 124: 159}, -1.0, 244, False),  # random CartPole
        ({0: 7, 5: 7, 10: 7}, 0.0, 4.0, False),
        ({0: 480, 250: 490, 500: 500}, 1.0, 240, False),  # in order, but almost equal
        # Spearman's correlation with ties: ranks of the returns are 2.5 four times, 5, 6, 7.
        ({0: 0, 0.3: 0, 0.5: 0, 0.7: 0, 0.8: 0.8, 0.9: 0.9, 0.95: 0.95}, 0.906, 0.214, True),
    ],
)
def test_target_following_is_rank_correlation_and_mean_error(returns, correlation, error, followed):
    found = target_following(table(returns))
    assert found["rank_correlation"] == correlation
    assert found["mean_error"] == error
    assert found["followed"] is followed


def test_two_targets_do_not_show_whether_a_policy_follows_them():
    assert target_following(table({0: 1, 5: 0})) == {}


@given(returns=st.lists(st.floats(-100, 100), min_size=3, max_size=6), shift=st.floats(-5, 5))
def test_rank_correlation_does_not_depend_on_the_order_or_the_scale(returns, shift):
    rows = list(enumerate(returns))
    found = target_following(table(dict(rows)))["rank_correlation"]
    assert target_following(table(dict(rows[::-1])))["rank_correlation"] == found
    opposite = {-target: value for target, value in rows}
    assert target_following(table(opposite))["rank_correlation"] == -found
    assert -1 <= found <= 1


def test_an_environment_that_cannot_be_made_is_named_with_its_extra():
    def broken():
        raise ImportError("no module named mujoco")

    data = dataclasses.replace(offline([3]), environment="Walker2d-v5", make_env=broken)
    message = r"Walker2d-v5; .*'gymnasium\[mujoco\]', or evaluation"
    with pytest.raises(InvalidInput, match=message), make_envs(data, 2):
        pass
    with make_envs(offline([3]), 2) as envs:
        assert envs == []


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"observation_space": gymnasium.spaces.Box(-1, 1, (7,))}, r"observations \(7,\)"),
        ({"action_space": gymnasium.spaces.Box(-1, 1, (1,))}, r"actions of Box\(.*\(1,\)"),
        ({"action_space": gymnasium.spaces.Discrete(4)}, r"actions of Discrete\(4\)"),
    ],
)
def test_an_environment_with_other_spaces_is_an_error(space, message):
    data = dataclasses.replace(offline([3]), make_env=Lasting)
    with make_envs(data, 2) as envs:
        assert len(envs) == 2
    data = dataclasses.replace(data, make_env=type("Other", (Lasting,), space))
    message += r".*received observations \(2,\) and actions"
    with pytest.raises(InvalidInput, match=message), make_envs(data, 2):
        pass


@pytest.mark.parametrize(("actions", "matches"), [(2, False), (3, True), (4, True)])
def test_an_environment_may_have_actions_that_were_not_recorded(actions, matches):
    other = type("Other", (Lasting,), {"action_space": gymnasium.spaces.Discrete(actions)})
    data = dataclasses.replace(offline([3], discrete=True), make_env=other)
    assert data.action_space.n == 3
    expected = (
        contextlib.nullcontext() if matches else pytest.raises(InvalidInput, match="Discrete")
    )
    with expected, make_envs(data, 2) as envs:
        assert len(envs) == 2


def test_environments_are_closed_if_a_later_one_cannot_be_made():
    data, opened = with_open_envs(dataclasses.replace(offline([3]), make_env=Lasting))
    broken = iter([data.make_env, data.make_env])
    data = dataclasses.replace(data, make_env=lambda: next(broken)())
    with pytest.raises(InvalidInput, match="cannot make the environment"), make_envs(data, 3):
        pass
    assert not opened


class Distance(gymnasium.Env):
    """An environment of one step; the reward is minus the distance of the action to `goal`."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, goal):
        self.goal = goal

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, "float32"), {}

    def step(self, action):
        return np.zeros(2, "float32"), -abs(float(action[0]) - self.goal), True, False, {}


@pytest.mark.parametrize(("goal", "scale"), [(1.0, 0.0), (0.84, 1.0)])
def test_choose_noise_scale_sets_the_best_scale(goal, scale):
    model = BehaviorCloning(2, 1, (4,), distribution="censored_normal", noise_scale=0.0)
    model.build()
    model.networks[0].layers[-1].bias.assign([1.0])  # action 1 at noise scale 0, 0.84 at 1
    scaling = Scaling(np.zeros(2, "float32"), np.ones(2, "float32"), 1.0, -np.ones(1), np.ones(1))
    evaluator = ReturnEvaluator(TrajectoryPolicy(model, scaling), [Distance(goal)] * 2, [0.0])
    evaluator.means(0.0)  # traces the policy with the old scale
    tried = choose_noise_scale(evaluator, (0.0, 0.5, 1.0), episodes=2)
    assert float(max(tried, key=tried.get)) == scale == model.noise_scale
    assert evaluator.means(0.0)["return"] == pytest.approx(0.0, abs=0.01)
    again = BehaviorCloning.from_config(model.get_config())
    assert again.action_distribution.noise_scale == scale
    with pytest.raises(InvalidInput, match=r"`noise_scale` must be from 0 to 1; received 1.5"):
        set_noise_scale(model, 1.5)


@pytest.mark.parametrize("discrete", [True, False])
def test_action_errors_are_those_of_the_last_actions(discrete):
    data = offline([3, 8, 5, 12], discrete)
    scaling, model = Scaling.of(data), behavior_cloning(discrete)
    found = action_error_by_return(model, data, scaling, count=40)
    window = scaling.window(Windows(data, 1).batch(40, seed=0))
    predicted = np.asarray(model(window, last_action=True)["action"])
    actual = np.asarray(window["actions"])[:, -1]
    if discrete:
        errors = (predicted.argmax(-1) != actual.argmax(-1)).astype(float)
    else:
        errors = ((predicted - actual) ** 2).mean(-1)
    order = np.argsort(np.asarray(window["returns_to_go"])[:, -1, 0], kind="stable")
    expected = errors[order].reshape(4, 10).mean(axis=1)
    assert list(found) == ["quarter_1", "quarter_2", "quarter_3", "quarter_4"]
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-5)


def test_validation_windows_are_always_the_same():
    data = offline([3, 8])
    scaling = Scaling.of(data)
    first, again = (validation_windows(data, scaling, 4, count=5) for _ in range(2))
    for one, other in zip(first, again):
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])
    inputs, targets, weights = first
    assert inputs["states"].shape == (5, 4, 2)
    np.testing.assert_array_equal(targets["action"], inputs["actions"])
    np.testing.assert_array_equal(weights["action"], inputs["mask"])
