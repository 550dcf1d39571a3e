"""Returns that are asked for, the weights that did best, and errors on recorded episodes."""

import contextlib
import dataclasses

import gymnasium
import numpy as np
import pytest
from counting_episodes import offline
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.models import BehaviorCloning
from rrl_tf.offline import Scaling, TrajectoryPolicy, Windows
from rrl_tf.offline.evaluation import (
    BestWeights,
    TargetReturns,
    action_error_by_return,
    default_targets,
    is_among,
    make_envs,
    validation_windows,
)

pytestmark = pytest.mark.tf_only


def imitator(discrete=False, seed=0):
    model = BehaviorCloning(2, 3 if discrete else 2, hidden_units=(4,), discrete=discrete)
    model.build()
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
    return model


@given(returns=st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_targets_go_from_the_worst_return_to_the_best(returns):
    returns = np.array(returns)
    targets = default_targets(returns)
    assert list(targets) == sorted(set(targets))
    expected = np.linspace(returns.min(), returns.max(), 5) if len(targets) > 1 else returns[:1]
    if len(targets) in (1, 5):  # or there are fewer numbers between
        np.testing.assert_allclose(targets, expected, rtol=5.1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("returns", "targets"),
    [
        ([-100_050, -100_010], (-100_050, -100_040, -100_030, -100_020, -100_010)),
        ([5.0, 5.0], (5.0,)),
        ([-2.8214, 4171.8], (-2.82, 1040, 2080, 3130, 4170)),
    ],
)
def test_targets_differ(returns, targets):
    assert default_targets(np.array(returns)) == targets


@pytest.mark.parametrize(
    ("target", "targets", "found"),
    [
        (-0.0632314, [-0.0632], True),
        (4171.8, [2080.0, 4170.0], True),
        (20.12345678, [20.12345612], True),  # six digits are shown
        (-100_012.0, [-100_010.0], False),
        (0.9748, [0.95], False),
    ],
)
def test_a_return_is_one_that_is_asked_for_if_it_is_shown_alike(target, targets, found):
    assert is_among(target, targets) == found


class Lasting(gymnasium.Env):
    """Lasts as many steps as the last digit of its seed says; a step earns 1."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-2, 4, (2,))

    def __init__(self, reports):
        self.reports = reports

    def reset(self, *, seed=None, options=None):
        self.left = self.steps = seed % 10 + 1
        return np.zeros(2, "float32"), {}

    def step(self, action):
        self.left -= 1
        info = {"success": self.steps > 5} if self.reports else {}
        return np.zeros(2, "float32"), 1.0, self.left == 0, False, info


@pytest.mark.parametrize("reports", [True, False])
def test_means_are_those_of_the_episodes_played(reports):
    policy = TrajectoryPolicy(imitator(), Scaling.of(offline([4])))
    play = TargetReturns(policy, [Lasting(reports) for _ in range(10)], [1.0, 2.0])
    expected = {"return": 5.5, "return_deviation": np.arange(1, 11).std(), "length": 5.5}
    expected |= {"success": 0.5} if reports else {}
    assert play.table(play.targets, seed=20) == {"1": expected, "2": expected}
    alike = play.table([1234567.0, 1234569.0, 1234567.0], seed=20)
    assert alike == {"1234567.0": expected, "1234569.0": expected}
    few = play.means(1.0, seed=3, episodes=2)
    assert few["return"] == 4.5 and few["return_deviation"] == 0.5


def test_an_environment_that_cannot_be_made_is_named_with_its_extra():
    def broken():
        raise ImportError("no module named mujoco")

    data = dataclasses.replace(offline([3]), environment="Walker2d-v5", make_env=broken)
    with pytest.raises(InvalidInput, match=r"Walker2d-v5 .*'gymnasium\[mujoco\]'.*; received "):
        make_envs(data, 2)
    assert make_envs(offline([3]), 2) == []


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"observation_space": gymnasium.spaces.Box(-1, 1, (7,))}, r"observations \(7,\)"),
        ({"action_space": gymnasium.spaces.Box(-1, 1, (1,))}, r"actions of Box\(.*\(1,\)"),
        ({"action_space": gymnasium.spaces.Discrete(4)}, r"actions of Discrete\(4\)"),
    ],
)
def test_data_of_another_environment_are_refused_before_anything_is_trained(space, said):
    recorded = offline([3])
    data = dataclasses.replace(recorded, make_env=lambda: Lasting(False))
    assert len(make_envs(data, 2)) == 2
    other = type("Other", (Lasting,), space)
    data = dataclasses.replace(recorded, make_env=lambda: other(False))
    with pytest.raises(InvalidInput, match=said + r".*received observations \(2,\) and actions"):
        make_envs(data, 2)


@pytest.mark.parametrize(("actions", "fits"), [(2, False), (3, True), (4, True)])
def test_an_environment_may_have_actions_that_were_not_recorded(actions, fits):
    space = {"action_space": gymnasium.spaces.Discrete(actions)}
    other = type("Other", (Lasting,), space)
    data = dataclasses.replace(offline([3], discrete=True), make_env=lambda: other(False))
    assert data.action_space.n == 3
    with contextlib.nullcontext() if fits else pytest.raises(InvalidInput, match="Discrete"):
        assert len(make_envs(data, 2)) == 2


@settings(max_examples=8)
@given(scores=st.lists(st.integers(0, 5), min_size=1, max_size=8), first=st.integers(-1, 5))
def test_the_best_weights_are_kept_and_given_back(tmp_path_factory, scores, first):
    model = imitator()
    best = BestWeights(tmp_path_factory.mktemp("run") / "best.npz", model, first)
    kept = None
    for i, score in enumerate(scores):
        model.set_weights([np.full(w.shape, i) for w in model.get_weights()])
        best.offer(score)
        if score >= max([first, *scores[:i]]):
            kept = i
    assert best.exist() == (kept is not None)
    if kept is None:
        return
    with pytest.raises(KeyError), best.in_place():
        assert all((w == kept).all() for w in model.get_weights())
        raise KeyError
    assert all((w == len(scores) - 1).all() for w in model.get_weights())


@pytest.mark.parametrize("discrete", [True, False])
def test_errors_are_those_of_the_last_actions_by_return(discrete):
    data = offline([3, 8, 5, 12], discrete)
    scaling, model = Scaling.of(data), imitator(discrete)
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


def test_validation_is_the_same_every_time():
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


def test_best_weights_that_cannot_be_read_are_one_error(tmp_path):
    (tmp_path / "best.npz").write_bytes(b"PK none")
    with pytest.raises(InvalidInput, match=r"best.npz cannot be read .*remove it"):
        BestWeights(tmp_path / "best.npz", imitator())


def test_who_is_asked_for_another_return_has_not_been_best_yet(tmp_path):
    model = imitator()
    BestWeights(tmp_path / "best.npz", model, target=20.0).offer(5.0)
    again = BestWeights(tmp_path / "best.npz", model, -np.inf, 20.0)
    assert (again.score, again.kept_target) == (5.0, 20.0)
    other = BestWeights(tmp_path / "best.npz", model, 7.0, 30.0)
    assert (other.score, other.kept_target) == (-np.inf, 20.0)
    other.offer(1.0)
    assert (other.score, other.kept_target) == (1.0, 30.0)
