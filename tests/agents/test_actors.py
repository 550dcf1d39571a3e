"""Actors without Ray: in this process each plays when it is asked, or is lost on the way."""

import concurrent.futures
import itertools

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.agents import Actor, ActorLoop, Actors, ReplayBuffer
from rrl_tf.agents.actor import Order
from rrl_tf.agents.actors import LOSSES, actor_epsilon
from rrl_tf.envs import SeededVectorEnv
from rrl_tf.errors import InvalidInput

DISCOUNT = 0.9


class Counting(gymnasium.Env):
    """Shows which episode this is, by its seed, and the steps since it began; rewards are those."""

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


class Player:
    """Acts at random, and counts what it learns."""

    def __init__(self):
        self.network = self
        self.weights = [np.zeros(1)]
        self.updates = 0

    def act(self, observation, epsilon, rng):
        return rng.integers(4, size=len(observation))

    def get_weights(self):
        return [np.array([self.updates])]

    def set_weights(self, weights):
        self.weights = weights

    def update(self, batch):
        self.updates += 1
        return {"loss": 0.0}, np.ones(len(batch.index))

    def get_state(self):
        return {"updates": self.updates}

    def set_state(self, state):
        self.updates = state["updates"]


class InThisProcess:
    """Plays at once; the answers of the first `losses` draws that come up true are lost."""

    def __init__(self, num_envs=1, losses=()):
        self.num_envs = num_envs
        self.losses = iter(losses)
        self.actors, self.seeds, self.orders = {}, [], []
        self.unanswered = set()
        self.entered = 0

    def __enter__(self):
        self.entered += 1

    def __exit__(self, *exception):
        self.actors = {}
        self.unanswered = set()

    def start(self, index, seed):
        self.seeds.append(seed)
        env = SeededVectorEnv(Counting, self.num_envs, seed)
        self.actors[index] = Actor(Player(), env, seed)

    def publish(self, weights):
        self.weights = weights

    def ask(self, index, order):
        assert index not in self.unanswered
        self.unanswered.add(index)
        self.orders.append((index, order))
        future = concurrent.futures.Future()
        lost = next(self.losses, False)
        weights = self.weights
        rollout = None if lost else self.actors[index].play(order, lambda: weights)
        future.set_result((index, rollout))
        return future

    def take(self, future):
        index, rollout = future.result()
        self.unanswered.remove(index)
        return rollout


def make_loop(launcher, count=2, num_envs=1, length=3, n_step=2, rate=0.5, capacity=5000):
    replay = ReplayBuffer(
        *(capacity, (3,), np.int64),
        num_envs=count * num_envs,
        n_step=n_step,
        discount=DISCOUNT,
        observe_returns=True,
    )
    actors = Actors(launcher, count, num_envs=num_envs, seed=0, rollout_length=length)
    return ActorLoop(
        *(Player(), actors, replay),
        epsilon=lambda step: 0.5,
        updates_per_step=rate,
        batch_size=4,
        learning_starts=20,
        seed=0,
    )


def order(**changes):
    return Order(**{"steps": 4, "epsilon": 0.5, "reset_options": None, "version": 0, **changes})


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(1, 3))
def test_rollouts_are_what_the_environments_did(lengths, num_envs):
    actor = Actor(Player(), SeededVectorEnv(Counting, num_envs, 5), seed=5)
    rollouts = [actor.play(order(steps=steps), lambda: [np.zeros(1)]) for steps in lengths]
    assert [len(rollout) for rollout in rollouts] == lengths
    assert [rollout.begins for rollout in rollouts] == [True] + [False] * (len(lengths) - 1)
    env, rng = SeededVectorEnv(Counting, num_envs, 5), np.random.default_rng(5)
    observation, _ = env.reset()
    for rollout in rollouts:
        for t in range(len(rollout)):
            np.testing.assert_array_equal(rollout.observation_t[t], observation)
            action = rng.integers(4, size=num_envs)
            np.testing.assert_array_equal(rollout.action_t[t], action)
            observation, reward, terminated, truncated, info = env.step(action)
            np.testing.assert_array_equal(rollout.reward_t[t], reward)
            np.testing.assert_array_equal(rollout.terminated[t], terminated)
            np.testing.assert_array_equal(rollout.truncated[t], truncated)
            np.testing.assert_array_equal(rollout.observation_tp1[t], info["final_obs"])
            lengths_told = [episode["length"] for episode in rollout.episodes[t]]
            assert lengths_told == info["episode"]["length"][terminated].tolist()


def test_weights_are_fetched_only_where_the_version_is_another_one():
    actor = Actor(Player(), SeededVectorEnv(Counting, 1, 0), seed=0)
    fetched = []

    def weights(version):
        fetched.append(version)
        return [np.array([version])]

    for version in (3, 3, 7, 7, 7, 8):
        rollout = actor.play(order(version=version), lambda version=version: weights(version))
        assert rollout.version == version
        assert actor.agent.weights[0] == version
    assert fetched == [3, 7, 8]


def test_reset_options_are_those_of_the_order():
    actor = Actor(Player(), SeededVectorEnv(Counting, 1, 0), seed=0)
    actor.play(order(steps=20), lambda: [])
    rollout = actor.play(order(steps=20, reset_options={"level": 2}), lambda: [])
    first = np.flatnonzero(rollout.terminated)[0] + 1
    assert (rollout.observation_t[first:, 0, 2] == 2).all()


@given(
    st.lists(st.booleans(), max_size=12),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 4),
)
@settings(max_examples=40)
def test_transitions_stay_within_an_episode_whoever_is_lost(losses, count, num_envs, length, n):
    loop = make_loop(InThisProcess(num_envs, losses), count, num_envs, length, n)
    try:
        last = list(loop.run(150))[-1]
    except ConnectionError:
        assert sum(losses) >= LOSSES * count
        return
    assert last.gauges["actor_restarts"] == loop.env.restarts <= sum(losses)
    rows = loop.replay.get_state()
    before, after = rows["observation_t"], rows["observation_tpn"]
    np.testing.assert_array_equal(before[:, 0], after[:, 0])
    steps = after[:, 1] - before[:, 1]
    assert (steps >= 1).all() and (steps <= n).all()
    ended = rows["discount_t"] == 0
    assert (steps[~ended] == n).all()
    for t, k, found in zip(before[:, 1], steps, rows["return_t"]):
        assert found == pytest.approx(sum(DISCOUNT**i * (t + 1 + i) for i in range(k)))
    known = np.isfinite(rows["floor_t"])
    assert (rows["floor_t"][known] >= rows["return_t"][known] - 1e-4).all()


@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.sampled_from((0.1, 0.25, 1, 2.5))
)
def test_updates_keep_to_the_environment_steps(count, num_envs, length, rate):
    loop = make_loop(InThisProcess(num_envs), count, num_envs, length, rate=rate)
    records = list(loop.run(200))
    assert [record.step for record in records] == list(range(num_envs, 200 + num_envs, num_envs))
    assert len({record.epsilon for record in records}) == 1
    learning = [record for record in records if record.updates]
    begun = learning[0].step - num_envs if rate * num_envs >= 1 else None
    for record in learning:
        if begun is not None:
            owed = rate * (record.step - begun)
            assert owed - 1 < record.updates <= owed + 1e-9
        assert record.gauges["actor_lag"] >= 0
    assert loop.agent.updates == records[-1].updates


def test_nobody_plays_further_ahead_than_one_rollout():
    launcher = InThisProcess(num_envs=2)
    loop = make_loop(launcher, count=3, num_envs=2, length=5, rate=1.0)
    for record in loop.run(400):  # `ask` refuses a second order of one actor
        steps = sum(order.steps * 2 for _, order in launcher.orders)
        assert steps <= record.step + (3 + 1) * 5 * 2
        lag_bound = (3 + 1) * 5 * 2 * 1.0
        assert record.gauges["actor_lag"] <= lag_bound
    versions = [order.version for _, order in launcher.orders]
    assert versions == sorted(versions) and versions[-1] > 300
    players = [index for index, _ in launcher.orders]
    assert players == [0, 1, 2] * (len(players) // 3) + [0, 1, 2][: len(players) % 3]


def test_every_actor_explores_by_its_own_share():
    launcher = InThisProcess()
    loop = make_loop(launcher, count=3)
    list(loop.run(30))
    shares = {index: order.epsilon for index, order in launcher.orders}
    assert shares == {0: 0.5, 1: 0.5**4.5, 2: 0.5**8}


@given(st.floats(0, 1), st.integers(1, 50))
def test_shares_fall_from_the_schedule_s_to_its_eighth_power(epsilon, count):
    shares = [actor_epsilon(epsilon, i, count) for i in range(count)]
    assert shares[0] == epsilon
    assert all(0 <= after <= before for before, after in itertools.pairwise(shares))
    if count > 1:
        assert shares[-1] == pytest.approx(epsilon**8)


def test_who_is_lost_again_and_again_is_told():
    launcher = InThisProcess(losses=[True] * 1000)
    loop = make_loop(launcher, count=2)
    with pytest.raises(ConnectionError, match="lost 20 times in a row"):
        list(loop.run(100))
    assert loop.step == 0 and not launcher.actors


def test_one_that_plays_keeps_a_run_with_lost_ones_going():
    class Unlucky(InThisProcess):
        def take(self, future):
            index = future.result()[0]
            rollout = super().take(future)
            return rollout if index == 0 else None

    loop = make_loop(Unlucky(), count=2)
    records = list(loop.run(600))
    assert records[-1].step == 600 and records[-1].gauges["actor_restarts"] > 100


def test_a_state_goes_on_with_new_actors_and_other_episodes():
    launcher = InThisProcess(num_envs=2)
    loop = make_loop(launcher, num_envs=2, length=7, n_step=3)
    loop.env.reset_options = {"level": 1}
    list(loop.run(100))
    state = loop.get_state()
    assert state["environment"] == {"reset_options": {"level": 1}}
    assert not launcher.actors
    again = make_loop(other := InThisProcess(num_envs=2), num_envs=2, length=7, n_step=3)
    again.set_state(state)
    assert again.step == 100 and len(again.replay) == len(loop.replay)
    records = list(again.run(200))
    assert records[0].step == 102 and records[0].updates >= state["loop"]["updates"]
    assert not {*launcher.seeds} & {*other.seeds}
    rows = again.replay.get_state()
    np.testing.assert_array_equal(rows["observation_t"][:, 0], rows["observation_tpn"][:, 0])
    assert (rows["observation_t"][-50:, 2] == 1).all()


def test_a_run_that_is_over_starts_no_actors():
    launcher = InThisProcess()
    loop = make_loop(launcher)
    assert list(loop.run(0)) == [] and launcher.entered == 0


def test_actors_end_when_nobody_asks_for_more():
    launcher = InThisProcess()
    for _ in make_loop(launcher).run(100):
        assert launcher.actors
        break
    assert not launcher.actors and launcher.entered == 1


@pytest.mark.parametrize("number", ["count", "num_envs", "rollout_length"])
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_numbers_of_actors_are_positive_integers(number, value):
    sizes = {"count": 1, "num_envs": 1, "rollout_length": 1, number: value}
    with pytest.raises(InvalidInput, match=f"`{number}` must be a positive integer"):
        Actors(InThisProcess(), sizes.pop("count"), seed=0, **sizes)


def test_reset_options_that_are_none_are_refused():
    with pytest.raises(InvalidInput, match=r"options must be a dict or None; received 'easy'"):
        make_loop(InThisProcess()).env.set_state({"reset_options": "easy"})
