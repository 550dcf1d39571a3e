"""Where a life is lost nothing more is expected, and the episode goes on."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.agents import GraphLoop, PythonEnvs, ReplayBuffer
from rrl_tf.agents.actor import Actor, Order
from rrl_tf.agents.loop import Loop
from rrl_tf.agents.timeline import Timeline
from rrl_tf.envs import SeededVectorEnv

LENGTH, LOST_AFTER = 7, (3, 5)


class Lives(gymnasium.Env):
    """Seven steps with a reward of 1 each, and three lives; what is seen is the step."""

    observation_space = gymnasium.spaces.Box(0, LENGTH, (1,), np.int64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.array([0]), {}

    def step(self, action):
        self.steps += 1
        info = {"life_lost": self.steps in LOST_AFTER}
        return np.array([self.steps]), 1.0, self.steps == LENGTH, False, info


class Still:
    network = None

    def act(self, observation, epsilon, rng):
        return np.zeros(len(observation), int)


def test_nothing_is_expected_beyond_a_lost_life():
    replay = ReplayBuffer(100, (1,), "int64", num_envs=1, n_step=3, discount=0.5)
    numbers = {"updates_per_step": 0, "batch_size": 1, "learning_starts": 0, "seed": 0}
    loop = Loop(Still(), SeededVectorEnv(Lives, 1, 0), replay, epsilon=lambda _: 0.0, **numbers)
    episodes = [episode for record in loop.run(LENGTH) for episode in record.episodes]
    assert episodes == [{"return": LENGTH, "length": LENGTH}]
    state = replay.get_state()
    seen = state["observation_t"][:, 0]
    ends = np.array([min(end for end in (*LOST_AFTER, LENGTH) if end > step) for step in seen])
    steps = np.minimum(ends - seen, 3)
    np.testing.assert_array_equal(sorted(seen), range(LENGTH))
    np.testing.assert_array_equal(state["observation_tpn"][:, 0], seen + steps)
    np.testing.assert_allclose(state["return_t"], 2 - 0.5 ** (steps - 1))
    np.testing.assert_allclose(state["discount_t"], np.where(seen + steps == ends, 0, 0.5**3))


@pytest.mark.parametrize("num_envs", [1, 3])
def test_actors_tell_of_lost_lives_as_well(num_envs):
    class Agent(Still):
        network = type("Network", (), {"set_weights": lambda self, weights: None})()

    actor = Actor(Agent(), SeededVectorEnv(Lives, num_envs, 0), seed=0)
    rollout = actor.play(Order(LENGTH, 0.0, None, 0), list)
    expected = np.isin(np.arange(1, LENGTH + 1), (*LOST_AFTER, LENGTH))
    np.testing.assert_array_equal(rollout.terminated, np.tile(expected[:, None], num_envs))


class Counting:
    """Remembers how many steps of the episode there were, for the loop in the graph."""

    jit_compile = False

    def initial_recall(self, num_envs):
        return {"steps": tf.zeros((num_envs,), tf.int32)}

    def next_recall(self, recall, memory, action, reward, over):
        return {"steps": tf.where(over, 0, recall["steps"] + 1)}

    def act_in_graph(self, observation, recall, epsilon, seed):
        return tf.zeros_like(recall["steps"]), ()

    def update_in_graph(self, observation_t, *_):
        return dict.fromkeys(("loss", "q_mean", "gradient_norm"), 0.0), tf.zeros(len(observation_t))


@pytest.mark.tf_only
def test_the_loop_in_the_graph_is_told_of_lost_lives_and_remembers_beyond_them():
    kept = {"discount": 0.5, "observe_returns": True, "recall": {"steps": ((), "int32")}}
    replay = Timeline(100, (1,), "int64", num_envs=1, jit_compile=False, **kept)
    numbers = {"updates_per_step": 0, "batch_size": 1, "learning_starts": 0, "seed": 0}
    env = PythonEnvs(SeededVectorEnv(Lives, 1, 0))
    loop = GraphLoop(Counting(), env, replay, epsilon=lambda _: 0.0, pauses=(LENGTH,), **numbers)
    episodes = [episode for record in loop.run(LENGTH + 2) for episode in record.episodes]
    assert episodes == [{"return": LENGTH, "length": LENGTH}]  # nobody tells of a success
    state = replay.get_state()
    np.testing.assert_array_equal(state["steps"], [*range(LENGTH), 0, 1])
    terminated = np.isin(np.arange(1, LENGTH + 3), (*LOST_AFTER, LENGTH))
    np.testing.assert_array_equal(state["terminated"], terminated)
    np.testing.assert_array_equal(state["over"], terminated)
    # Returns up to the next lost life: 1 + 0.5 + ... over so many steps.
    lengths = np.array([3, 2, 1, 2, 1, 2, 1])
    np.testing.assert_allclose(state["floor_t"][:LENGTH], 2 - 0.5 ** (lengths - 1))
