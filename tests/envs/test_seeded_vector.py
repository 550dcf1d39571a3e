"""SeededVectorEnv equals single environments and can be restored from its state."""

import functools
import json

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.envs import DoorKeyStart, SeededVectorEnv, enumerate_starts, make_doorkey
from rrl_tf.errors import InvalidInput

START = DoorKeyStart(size=5, wall=2, door=1, key=(1, 2), agent=(1, 1), direction=1)
SOLUTION = (3, 0, 4, 2, 2, 1, 2, 2)  # pick up, left, toggle, ahead, ahead, right, ahead, ahead


def assert_same(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (tuple, list)):
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("reset_on_truncation", [True, False])
def test_equals_environments_stepped_one_by_one(reset_on_truncation):
    # Long enough for random play to reach the goal sometimes, short enough for truncations.
    make_env = functools.partial(make_doorkey, 5, frames=2, reward="book", max_steps=150)
    vector = SeededVectorEnv(make_env, 5, seed=1, reset_on_truncation=reset_on_truncation)
    singles = [make_env() for _ in range(5)]
    rng = np.random.default_rng(0)
    observation, _ = vector.reset()
    assert vector.observation_space.contains(observation)
    returns, lengths, ended = np.zeros(5), np.zeros(5, int), {"terminated": 0, "truncated": 0}
    for i, single in enumerate(singles):
        single.reset(options={"start": vector.envs[i].unwrapped.start})
    for _ in range(2000):
        actions = rng.integers(5, size=5)
        observation, reward, terminated, truncated, info = vector.step(actions)
        assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float32, bool, bool)
        assert not np.any(terminated & truncated)
        for i, single in enumerate(singles):
            final, r, termination, timeout, _ = single.step(int(actions[i]))
            returns[i] += np.float32(r)
            lengths[i] += 1
            timeout = timeout and reset_on_truncation and not termination
            np.testing.assert_array_equal(info["final_obs"][i], final)
            assert (reward[i], terminated[i], truncated[i]) == (np.float32(r), termination, timeout)
            assert info["_episode"][i] == (termination or timeout)
            if termination or timeout:
                assert info["episode"]["return"][i] == pytest.approx(returns[i])
                assert info["episode"]["length"][i] == lengths[i]
                assert info["episode"]["success"][i] == termination
                returns[i] = lengths[i] = 0
                ended["terminated" if termination else "truncated"] += 1
                final, _ = single.reset(options={"start": vector.envs[i].unwrapped.start})
            else:
                assert all(info["episode"][key][i] == 0 for key in info["episode"])
            np.testing.assert_array_equal(observation[i], final)
    assert ended["terminated"] > 5
    assert (ended["truncated"] > 5) == reset_on_truncation


class Spoilt(gymnasium.Env):
    """Environment with rewards of 1, except for a given reward in the third step of an episode."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reward):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), self.reward if self.steps == 3 else 1.0, False, False, {}


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_raises(reward):
    envs = iter([Spoilt(1.0), Spoilt(reward)])
    vector = SeededVectorEnv(lambda: next(envs), 2, seed=0)
    vector.reset()
    vector.reset()
    vector.step([0, 0])
    vector.step([0, 0])
    told = rf"with {reward} from environment 1 in step 3 of episode 1$"
    with pytest.raises(InvalidInput, match=told):
        vector.step([0, 0])


class OldSeeds(gymnasium.Env):
    """Environment that uses NumPy's legacy generator, whose seeds have 32 bits."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.random = np.random.RandomState(seed)
        return self.random.rand(1), {}

    def step(self, action):
        return self.random.rand(1), 0.0, bool(self.random.rand() < 0.3), False, {}


def test_an_environment_of_short_seeds_is_played_and_restored():
    vector, twin = (SeededVectorEnv(OldSeeds, 3, seed=5) for _ in range(2))
    first, _ = vector.reset()
    assert len(np.unique(first)) == 3
    for _ in range(20):
        observation, *_ = vector.step([0, 0, 0])
    np.testing.assert_array_equal(twin.set_state(vector.get_state()), observation)


def test_errors_of_reset_are_passed_on():
    class Broken(OldSeeds):
        def reset(self, *, seed=None, options=None):
            raise ValueError("the world is on fire")

    with pytest.raises(ValueError, match="the world is on fire"):
        SeededVectorEnv(Broken, 1, seed=0).reset()


@given(
    num_envs=st.integers(1, 4),
    before=st.integers(0, 60),
    seed=st.integers(0, 2**63),
    frames=st.integers(1, 2),
    reset_on_truncation=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_a_restored_environment_continues_identically(
    num_envs, before, seed, frames, reset_on_truncation
):
    def make():
        make_env = functools.partial(make_doorkey, 5, frames=frames, max_steps=9, reward="book")
        return SeededVectorEnv(make_env, num_envs, 7, reset_on_truncation=reset_on_truncation)

    rng = np.random.default_rng(seed)
    vector, restored = make(), make()
    observation, _ = vector.reset(seed=seed)
    for actions in rng.integers(5, size=(before, num_envs)):
        observation = vector.step(actions)[0]
    state = json.loads(json.dumps(vector.get_state()))
    assert_same(restored.set_state(state), observation)
    assert restored.get_state() == state
    for actions in rng.integers(5, size=(40, num_envs)):
        assert_same(restored.step(actions), vector.step(actions))
    assert_same(restored.reset(), vector.reset())


def test_an_episode_depends_on_seed_index_and_number_only():
    """Other environments and the lengths of episodes have no influence."""
    small = SeededVectorEnv(functools.partial(make_doorkey, 6, max_steps=5), 2, seed=3)
    large = SeededVectorEnv(functools.partial(make_doorkey, 6, max_steps=11), 4, seed=3)
    starts = []
    for vector in (small, large):
        vector.reset()
        starts.append([[env.unwrapped.start] for env in vector.envs])
        for _ in range(120):
            *_, info = vector.step([0] * vector.num_envs)
            for i in np.flatnonzero(info["_episode"]):
                starts[-1][i].append(vector.envs[i].unwrapped.start)
    for few, many in zip(starts[1], starts[0]):
        assert few == many[: len(few)] and len(few) > 9
    assert len({tuple(few) for few in starts[1]}) == 4
    assert len(set(starts[0][0])) > 15


def test_reset_continues_and_a_seed_restarts():
    vector = SeededVectorEnv(functools.partial(make_doorkey, 6), 3, seed=0)
    first, second = vector.reset()[0], vector.reset()[0]
    assert np.any(first != second)
    assert_same(vector.reset(seed=0)[0], first)
    assert_same(vector.reset()[0], second)
    assert np.any(vector.reset(seed=1)[0] != first)


def test_success_in_the_last_step_is_a_termination():
    vector = SeededVectorEnv(functools.partial(make_doorkey, 5, max_steps=8), 1, seed=0)
    vector.reset(options={"start": START})
    for action in SOLUTION[:-1]:
        assert not vector.step([action])[-1]["_episode"].any()
    _, reward, terminated, truncated, info = vector.step(SOLUTION[-1:])
    assert terminated.all() and not truncated.any()
    assert reward[0] == pytest.approx(0.1)
    assert {key: value.tolist() for key, value in info["episode"].items()} == {
        "return": [pytest.approx(0.1)],
        "length": [8],
        "success": [True],
        "_success": [True],
    }


def test_returned_observations_are_not_overwritten():
    vector = SeededVectorEnv(functools.partial(make_doorkey, 5, max_steps=3), 2, seed=0)
    kept = [vector.reset()[0]]
    copies = [kept[0].copy()]
    for _ in range(10):
        observation, *_, info = vector.step([0, 2])
        kept += [observation, info["final_obs"]]
        copies += [observation.copy(), info["final_obs"].copy()]
    assert_same(kept, copies)


def test_a_state_of_another_environment_raises():
    vector = SeededVectorEnv(functools.partial(make_doorkey, 5), 2, seed=0)
    vector.reset()
    for _ in range(5):
        vector.step([1, 2])
    state = vector.get_state()
    other = SeededVectorEnv(
        functools.partial(make_doorkey, 5, starts=enumerate_starts(5)[-1:]), 2, seed=0
    )
    with pytest.raises(ValueError, match=r"environment \d cannot be restored: after 5 replayed"):
        other.set_state(state)
    with pytest.raises(ValueError, match="`state` must have 3 environments; received 2"):
        SeededVectorEnv(make_doorkey, 3, seed=0).set_state(state)


def test_wrong_use_raises():
    for count in (0, 1.5):
        with pytest.raises(InvalidInput, match=f"`num_envs` must be a positive .*received {count}"):
            SeededVectorEnv(make_doorkey, count, seed=0)
    for seed in (-1, 1.5):  # regression: 1.5 became 1
        with pytest.raises(InvalidInput, match=f"seed.* must be .*; received {seed}"):
            SeededVectorEnv(make_doorkey, 1, seed)
    vector = SeededVectorEnv(make_doorkey, 2, seed=0)
    for unready in (lambda: vector.step([0, 0]), vector.get_state):
        with pytest.raises(ResetNeeded):
            unready()
    vector.reset()
    for actions in ([0], [0, 0, 0], 0):
        with pytest.raises(ValueError, match=r"`actions` must be 2 values, .*; received"):
            vector.step(actions)


def test_options_that_json_cannot_store_raise():
    """Regression: such options raised only when the file was written."""
    vector = SeededVectorEnv(make_doorkey, 2, seed=0)
    for vector.reset_options, options in ((None, {"start": START}), ({"start": START}, None)):
        vector.reset(options=options)
        with pytest.raises(
            InvalidInput, match=r"JSON must be able to store .*; received .*{'start': DoorKeyStar"
        ):
            vector.get_state()


def test_render_returns_an_image_per_environment_and_close_closes_all():
    vector = SeededVectorEnv(functools.partial(make_doorkey, render_mode="rgb_array"), 2, seed=0)
    vector.reset()
    assert [picture.shape for picture in vector.render()] == [(160, 160, 3)] * 2
    vector.close()
    assert vector.closed


class Halves(gymnasium.Env):
    """Environment that observes integers at resets, and one half and a random number in a step."""

    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.drawn = self.np_random.random()
        return np.array([0, 0]), {}

    def step(self, action):
        return np.array([0.5, self.drawn]), 0.0, True, False, {}


def test_observations_have_the_dtype_of_their_space():
    vector = SeededVectorEnv(Halves, 2, seed=0)
    first, _ = vector.reset()
    _, _, _, _, info = vector.step([0, 0])
    assert first.dtype == info["final_obs"].dtype == np.float32
    assert (info["final_obs"][:, 0] == 0.5).all()


def test_a_curriculum_leaves_the_draws_of_its_environments_alone():
    from rrl_tf.agents import CurriculumEnv

    easy, hard = Halves(), Halves()
    env = CurriculumEnv([easy, hard])
    drawn = {id(easy): [], id(hard): []}
    for seed in range(1500):
        env.reset(seed=seed, options={"level": 1})
        drawn[id(env.env)].append(env.env.drawn)
    assert len(drawn[id(hard)]) / 1500 == pytest.approx(0.7, abs=0.05)
    for values in drawn.values():
        np.testing.assert_allclose(np.histogram(values, 4)[0] / len(values), 0.25, atol=0.06)
