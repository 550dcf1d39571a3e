"""Actors without Ray: a pool plays requests in this process and can lose actors."""

import concurrent.futures

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.agents import Actor, ActorCollector, Loop, ReplayBuffer
from rrl_tf.agents.actors import RolloutRequest
from rrl_tf.envs import SeededVectorEnv
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only
DISCOUNT = 0.5


class Counting(gymnasium.Env):
    """Environment that observes (episode number, step, level); the reward is the step."""

    observation_space = gymnasium.spaces.Box(0, 2**31, (3,), np.int64)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        rng = np.random.default_rng(seed)
        self.episode, self.length = int(rng.integers(2**31)), int(rng.integers(1, 9))
        self.level = (options or {}).get("level", 0)
        self.t = 0
        return self._observation(), {}

    def step(self, action):
        self.t += 1
        return self._observation(), float(self.t), self.t >= self.length, False, {}

    def _observation(self):
        return np.array([self.episode, self.t, self.level])


class CountingAgent:
    """Agent whose only weight is its number of updates; the action is this number modulo 4."""

    jit_compile = False

    def __init__(self):
        self.network = self
        self.updates = tf.Variable(0)

    def initial_state(self, num_envs):
        return {}

    def next_state(self, memory, action, reward, over):
        return {}

    def act(self, observation, state, epsilon, seed):
        action = tf.fill(observation.shape[:1], self.updates % 4)
        return action, tf.zeros((*observation.shape[:1], 0))

    def get_weights(self):
        return [self.updates.numpy()]

    def set_weights(self, weights):
        self.updates.assign(weights[0])

    def update(self, batch):
        self.updates.assign_add(1)
        zeros = dict.fromkeys(("loss", "q_mean", "gradient_norm"), tf.constant(0.0))
        return zeros, tf.ones(batch["action_t"].shape)

    def get_state(self):
        return {"updates": self.updates.numpy()}

    def set_state(self, state):
        self.updates.assign(state["updates"])


class LocalPool:
    """Pool that plays requests at once and loses an actor before each request in `losses`."""

    def __init__(self, num_envs=1, losses=()):
        self.num_envs, self.losses = num_envs, set(losses)
        self.actors, self.requests = {}, []
        self.entered = 0

    def __enter__(self):
        self.entered += 1
        return self

    def __exit__(self, *exception):
        self.actors = {}

    def publish(self, weights):
        self.weights = weights

    def submit(self, index, request):
        if len(self.requests) in self.losses:
            self.actors.pop(index, None)
        self.requests.append((index, request))
        if index not in self.actors:
            self.actors[index] = Actor(
                CountingAgent,
                lambda seed: SeededVectorEnv(Counting, self.num_envs, seed),
                (0, index),
            )
        weights = self.weights
        future = concurrent.futures.Future()
        future.set_result(self.actors[index].play(request, lambda: weights))
        return future


def make_loop(pool, count=2, length=3, n_step=2, rate=0.5, capacity=5000):
    agent = CountingAgent()
    replay = ReplayBuffer(
        *(capacity, (3,), np.int64),
        num_envs=count * pool.num_envs,
        n_step=n_step,
        discount=DISCOUNT,
        use_return_lower_bound=True,
        jit_compile=False,
    )
    collector = ActorCollector(agent, pool, count, pool.num_envs)
    collector.rollout_length = length
    return Loop(
        agent,
        collector,
        replay,
        epsilon=lambda step: 0.5,
        updates_per_step=rate,
        batch_size=4,
        learning_starts=20,
        seed=0,
        pauses=(50,),
    )


def new_request(steps=4, num_envs=1, **changes):
    epsilon = np.full(num_envs, 0.5, np.float32)
    options = {"reset_options": None, "version": 0, "step": 0, **changes}
    return RolloutRequest(steps, epsilon, **options)


def make_actor(num_envs=1):
    return Actor(CountingAgent, lambda seed: SeededVectorEnv(Counting, num_envs, seed), (0, 1))


def test_rollouts_equal_the_steps_of_the_environments():
    actor = make_actor(num_envs=2)
    rollouts = [actor.play(new_request(steps, 2), lambda: [0]) for steps in (3, 1, 6)]
    columns = {
        name: np.concatenate([rollout.transitions[name] for rollout in rollouts])
        for name in ("observation_t", "observation_tp1", "reward_t", "terminated", "episode_step")
    }
    terminated = columns["terminated"]
    seen, after = columns["observation_t"], columns["observation_tp1"]
    np.testing.assert_array_equal(columns["episode_step"], seen[..., 1])
    np.testing.assert_array_equal(columns["reward_t"], after[..., 1])
    np.testing.assert_array_equal(seen[1:][~terminated[:-1]], after[:-1][~terminated[:-1]])
    assert (seen[1:][terminated[:-1]][:, 1] == 0).all() and terminated.any()
    episodes = np.concatenate([rollout.episodes for rollout in rollouts])
    np.testing.assert_array_equal(episodes[:, 0].astype(bool), terminated)
    np.testing.assert_array_equal(episodes[:, 2], after[..., 1])


def test_weights_are_fetched_only_where_the_version_differs():
    actor, fetched = make_actor(), []
    for version in (3, 3, 7, 7, 7, 8):
        rollout = actor.play(
            new_request(version=version),
            lambda version=version: fetched.append(version) or [version],
        )
        assert rollout.version == version
        assert (rollout.transitions["action_t"] == version % 4).all()
    assert fetched == [3, 7, 8]


def test_new_episodes_begin_with_the_options_of_the_request():
    actor = make_actor()
    actor.play(new_request(20), lambda: [0])
    transitions = actor.play(new_request(20, reset_options={"level": 2}), lambda: [0]).transitions
    first = np.flatnonzero(transitions["terminated"])[0] + 1
    assert (transitions["observation_t"][first:, 0, 2] == 2).all()


@given(
    st.sets(st.integers(0, 40), max_size=8),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 5),
    st.integers(1, 3),
)
@settings(max_examples=8, deadline=None)
def test_transitions_stay_within_an_episode_when_actors_are_lost(
    losses, count, num_envs, length, n_step
):
    pool = LocalPool(num_envs, losses)
    loop = make_loop(pool, count, length, n_step)
    last = list(loop.run(80))[-1]
    # Neither the first request of an actor nor a loss in an unused rollout counts as a restart.
    assert last.gauges["actor_restarts"] <= len(losses)
    state = loop.replay.get_state()
    (rows,) = np.nonzero(state["weight"])
    rows = tf.constant(rows, tf.int32)
    return_t, discount_t, after = loop.replay._n_steps(rows)
    before = state["observation_t"][rows]
    end = state["observation_tp1"][after]
    np.testing.assert_array_equal(before[:, 0], end[:, 0])  # the episode number
    steps = end[:, 1] - before[:, 1]
    assert (steps >= 1).all() and (steps <= n_step).all()
    rewards = [
        sum(DISCOUNT**k * (t + k + 1) for k in range(s)) for t, s in zip(before[:, 1], steps)
    ]
    np.testing.assert_allclose(return_t, rewards, rtol=1e-6)
    terminated = state["terminated"][after]
    np.testing.assert_allclose(discount_t, np.where(terminated, 0, DISCOUNT**steps))


def test_requests_are_one_rollout_ahead_and_carry_epsilons_and_versions():
    pool = LocalPool(num_envs=2)
    loop = make_loop(pool, count=2, length=3)
    records = list(loop.run(60))  # 5 rollouts of 2 * 2 * 3 steps
    assert pool.entered == 1
    assert [index for index, _ in pool.requests] == [0, 1] * 6
    assert all(each.epsilon.shape == (2,) and each.steps == 3 for _, each in pool.requests)
    versions = [each.version for _, each in pool.requests]
    assert versions == sorted(versions) and versions[-1] > 0
    assert records[-1].updates == pytest.approx((60 - 24) * 0.5, abs=2)
    assert records[-1].gauges["actor_lag"] > 0


def test_state_of_actors_holds_their_options_and_resumes():
    loop = make_loop(LocalPool())
    loop.collector.reset_options = {"level": 1}
    for _ in loop.run(60):
        pass
    state = loop.get_state()
    assert state["environment"] == {"reset_options": {"level": 1}}
    second = make_loop(LocalPool())
    second.set_state(state)
    last = list(second.run(120))[-1]
    assert last.step == 120 and second.collector.reset_options == {"level": 1}
    state["environment"]["reset_options"] = 3
    with pytest.raises(InvalidInput, match="dict or None; received 3"):
        second.set_state(state)


def test_state_taken_between_rollouts_does_not_reset_the_version_of_the_weights():
    pool = LocalPool()
    loop = make_loop(pool, length=3)
    for _ in loop.run(60):
        loop.get_state()
    versions = [request.version for _, request in pool.requests]
    assert versions == sorted(versions) and versions[-1] > 0


@pytest.mark.parametrize("error", [ZeroDivisionError, TimeoutError])
def test_error_of_an_actor_reaches_the_caller(error):
    class Failing(LocalPool):
        def submit(self, index, request):
            future = concurrent.futures.Future()
            future.set_exception(error("in the environment"))
            self.publish([0])
            return future

    with pytest.raises(error, match="in the environment"):
        list(make_loop(Failing()).run(20))
