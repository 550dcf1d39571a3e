"""Acting with a Decision Transformer in one or several episodes at the same time."""

import dataclasses

import gymnasium
import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.models import BehaviorCloning, DecisionTransformer
from rrl_tf.offline import Scaling, TrajectoryPolicy, play_episodes

pytestmark = pytest.mark.tf_only

S, A, K = 3, 2, 5


def transformer(discrete=False, **arguments):
    model = DecisionTransformer.from_preset(
        "fast",
        state_size=S,
        action_size=A,
        discrete=discrete,
        **{"width": 16, "num_blocks": 2, "context_length": K, **arguments},
    )
    model.build()
    return model


def scaling(discrete=False):
    bounds = (None, None) if discrete else (np.full(A, -2, "float32"), np.full(A, 6, "float32"))
    return Scaling(np.full(S, 0.5, "float32"), np.full(S, 2, "float32"), 10.0, *bounds)


class Countdown(gymnasium.Env):
    """An environment that ends after `seed` steps; the reward of step t is t."""

    observation_space = gymnasium.spaces.Box(-1, 1, (S,))
    action_space = gymnasium.spaces.Box(-2, 6, (A,))

    def reset(self, *, seed=None, options=None):
        self.left, self.steps, self.actions = seed, 0, []
        return self._observation(), {}

    def step(self, action):
        self.left, self.steps = self.left - 1, self.steps + 1
        self.actions.append(np.array(action))
        over = self.left == 0
        info = {"success": self.steps > 3} if over else {}
        return self._observation(), float(self.steps), over, False, info

    def _observation(self):
        return np.sin(np.arange(S) + self.steps + self.left).astype("float32")


def windows_by_hand(model, scaling, episode, target):
    """Return the actions of one episode, computed with a new window at every step."""
    states, rewards, actions = episode
    chosen = []
    for t in range(len(actions)):
        real = slice(max(0, t + 1 - K), t + 1)
        returns = target - np.concatenate([[0], np.cumsum(rewards)])
        raw = {
            "states": states[real],
            "actions": np.concatenate([actions[:t], np.zeros((1, A), "float32")])[real],
            "returns_to_go": returns[real, None].astype("float32"),
            "timesteps": np.arange(t + 1, dtype="int32")[real],
            "mask": np.ones(len(states[real]), "float32"),
        }
        window = scaling.window({name: values[None] for name, values in raw.items()})
        chosen.append(np.asarray(scaling.action(model(window, last_action=True)["action"]))[0])
    return np.array(chosen)


def test_actions_equal_those_of_windows_made_by_hand():
    model, scale = transformer(), scaling()
    envs = [Countdown() for _ in range(3)]
    policy = TrajectoryPolicy(model, scale)
    played = play_episodes(policy, envs, 30.0, seeds=[4, 9, 2])
    assert played["length"].tolist() == [4, 9, 2]
    assert played["return"].tolist() == [10.0, 45.0, 3.0]
    assert played["success"].tolist() == [1, 1, 0]
    for env, length in zip(envs, (4, 9, 2)):
        states = [np.sin(np.arange(S) + length)] * length  # steps + left is constant
        rewards = np.arange(1, length + 1)
        episode = np.array(states, "float32"), rewards, np.array(env.actions)
        expected = windows_by_hand(model, scale, episode, 30.0)
        np.testing.assert_allclose(env.actions, expected, atol=1e-4)


def test_discrete_actions_are_indices():
    policy = TrajectoryPolicy(transformer(discrete=True), scaling(discrete=True))
    policy.begin(np.array([1.0, 2.0]))
    for _ in range(3):
        action = policy.act(np.zeros((2, S), "float32"), np.zeros(2))
        assert action.shape == (2,) and set(action) <= {0, 1}


def test_begin_clears_the_window():
    policy = TrajectoryPolicy(transformer(), scaling())
    observations = np.random.default_rng(0).normal(size=(4, 1, S)).astype("float32")

    def play():
        policy.begin([5.0])
        return np.array([policy.act(o, [1.0]) for o in observations])

    np.testing.assert_array_equal(play(), play())


def test_actions_depend_on_the_target_return():
    policy = TrajectoryPolicy(transformer(), scaling())
    policy.begin([0.0, 30.0])
    low, high = policy.act(np.zeros((2, S), "float32"))
    assert np.abs(low - high).max() > 1e-4


def test_behavior_cloning_plays():
    model = BehaviorCloning(S, A, hidden_units=(8,))
    model.build()
    envs = [Countdown()]
    play_episodes(TrajectoryPolicy(model, scaling()), envs, 0.0, seeds=[3])
    np.testing.assert_allclose(envs[0].actions, [envs[0].actions[0]] * 3, atol=1e-6)


def test_invalid_arguments_are_errors():
    with pytest.raises(ValueError, match="`target_return` must be a number"):
        play_episodes(TrajectoryPolicy(transformer(), scaling()), [Countdown()], None, [1])
    with pytest.raises(ValueError, match="one seed per environment"):
        play_episodes(TrajectoryPolicy(transformer(), scaling()), [Countdown()], 0.0, [1, 2])


@pytest.fixture(scope="module")
def policy():
    return TrajectoryPolicy(transformer(), scaling())


@pytest.mark.parametrize("wrong", [-5.0, [[1.0], [2.0]], [], ["best"], [np.nan], None])
def test_target_returns_must_be_a_list_of_numbers(policy, wrong):
    with pytest.raises(InvalidInput, match=r"^target_returns .*received"):
        policy.begin(wrong)


@pytest.mark.parametrize("seed", [-1, 1.5])
def test_invalid_seeds_are_errors(policy, seed):
    with pytest.raises(InvalidInput, match=f"`seed` must be .*; received {seed}"):
        policy.begin([1.0], seed=seed)


def test_act_and_keep_need_begin():
    policy = TrajectoryPolicy(transformer(), scaling())
    for call in (lambda: policy.act(np.zeros((1, S))), lambda: policy.keep(np.array([True]))):
        with pytest.raises(InvalidInput, match=r"`begin` must be called .* before `act` or `keep`"):
            call()


@pytest.mark.parametrize(
    ("shape", "episodes"), [((S,), 1), ((S,), S), ((2,), 1), ((2, S), 1), ((2, 1), 2), ((), 1)]
)
def test_observations_of_another_shape_do_not_change_the_window(policy, shape, episodes):
    message = rf"^the observation must be ({episodes} values|finite float32 of shape \({S},\))"
    policy.begin(np.ones(episodes))
    for _ in range(2):
        with pytest.raises(InvalidInput, match=message):
            policy.act(np.zeros(shape, "float32"), np.zeros(episodes))
        policy.act(np.zeros((episodes, S), "float32"), np.zeros(episodes))


def test_preprocessed_observations_have_the_shape_of_the_first_step():
    scale = Scaling(np.zeros(S), np.ones(S), 1.0, preprocessor=lambda grids: grids[:, :, 0])
    policy = TrajectoryPolicy(transformer(discrete=True), scale)
    policy.begin([1.0])
    policy.act(np.zeros((1, S, 2), "float32"))
    message = r"of shape \(3, 2\); received .* of shape \(3, 1\) from episode 0 .* in step 1"
    with pytest.raises(InvalidInput, match=message):
        policy.act(np.zeros((1, S, 1), "float32"), [0.0])


@pytest.mark.parametrize(
    ("wrong", "received"),
    [
        ([[0, np.nan, 0]], "float64 .* with nan"),
        ([[0, 1e39, 0]], r"float64 .* with 1e\+39"),
        ([["left", "left", "left"]], "('left'|<U4)"),
        ([[0, 1j, 0]], "(0j|complex)"),
    ],
)
def test_observations_that_are_no_finite_numbers_do_not_change_the_window(policy, wrong, received):
    policy.begin([1.0])
    for _ in range(2):
        with pytest.raises(InvalidInput, match=f"observation.* must be .*; received .*{received}"):
            policy.act(wrong, [0.0])
        expected = policy.act(np.zeros((1, S), "float32"), [0.0])
    policy.begin([1.0])
    for _ in range(2):
        found = policy.act(np.zeros((1, S)), [[0.0]])  # float64, and a reward of shape (1,)
    np.testing.assert_array_equal(found, expected)


def test_preprocessed_observations_have_the_dtype_of_the_first_step():
    scale = Scaling(np.zeros(S), np.ones(S), 1.0, preprocessor=lambda grids: grids[:, :, 0])
    policy = TrajectoryPolicy(transformer(discrete=True), scale)
    policy.begin([1.0])
    policy.act(np.zeros((1, S, 2), "uint8"))
    policy.act(np.full((1, S, 2), 255), [0.0])
    for wrong in (256, -1, 0.5):
        with pytest.raises(InvalidInput, match=f"must be uint8 .* with {wrong} from episode 0"):
            policy.act(np.full((1, S, 2), wrong), [0.0])


@pytest.mark.parametrize("wrong", [[np.nan, 0.0], [0.0, np.inf], [1e39, 0.0], ["1", "2"]])
def test_rewards_must_be_finite_numbers(policy, wrong):
    observations = np.zeros((2, S), "float32")
    policy.begin([1.0, 2.0])
    policy.act(observations)
    with pytest.raises(InvalidInput, match=r"the reward must be finite float64 .* from episode"):
        policy.act(observations, wrong)


@pytest.mark.parametrize("wrong", [None, 0.0, [1.0], [1.0, 2.0, 3.0], [[1.0, 0.0], [2.0, 0.0]]])
def test_rewards_must_be_one_per_episode_after_the_first_step(policy, wrong):
    observations = np.zeros((2, S), "float32")
    policy.begin([1.0, 2.0])
    policy.act(observations, wrong)  # ignored in the first step
    with pytest.raises(InvalidInput, match=r"^the reward must be (2 values|finite float64 of)"):
        policy.act(observations, wrong)
    whole_return = TrajectoryPolicy(
        transformer(), dataclasses.replace(scaling(), condition="return")
    )
    whole_return.begin([1.0, 2.0])
    for _ in range(2):
        whole_return.act(observations, wrong)


@pytest.mark.parametrize(("envs", "seeds"), [(Countdown(), [1]), ([Countdown()], 1), ([], [])])
def test_play_episodes_needs_one_seed_per_environment(policy, envs, seeds):
    with pytest.raises(InvalidInput, match=r"one seed per environment; received"):
        play_episodes(policy, envs, 0.0, seeds)


class Whole(Countdown):
    """Accepts integer actions only."""

    action_space = gymnasium.spaces.Box(-2, 6, (A,), "int32")

    def step(self, action):
        assert self.action_space.contains(action)
        return super().step(action)


def test_actions_of_integer_bounds_are_integers():
    bounds = Whole.action_space.low, Whole.action_space.high
    model = transformer()
    whole = dataclasses.replace(scaling(), action_low=bounds[0], action_high=bounds[1])
    played, env = [], Whole()
    for each in (whole, scaling()):
        play_episodes(TrajectoryPolicy(model, each), [env], 5.0, [1])
        played.append(env.actions[0])
        env = Countdown()
    np.testing.assert_array_equal(played[0], np.rint(played[1]))
    play_episodes(TrajectoryPolicy(model, whole, exploration=0.5), [Whole()], 5.0, [9])
