"""Evaluation: outcomes of episodes, in Python and in the graph, and their scores."""

import dataclasses
import functools
import types

import gymnasium
import keras
import numpy as np
import pytest

from rrl_tf.agents import DoubleDQN, GraphEvaluation, evaluate
from rrl_tf.agents.evaluation import (
    first_perfect_step,
    format_summary,
    is_solved,
    make_play,
    zero_shot_scores,
)
from rrl_tf.envs import DoorKeyGraph, doorkey_task, enumerate_starts, make_doorkey

RESETS = [{"options": {"start": start}} for start in enumerate_starts(5)]


def optimal_actions(start):
    """Return a shortest solution of a start, by breadth-first search in real environments."""
    from collections import deque

    env = make_doorkey(5)

    def replay(actions):
        env.reset(options={"start": start})
        result = None
        for action in actions:
            result = env.step(action)
        return result

    replay(())
    queue, seen = deque([()]), {env.get_wrapper_attr("state_key")()}
    while queue:
        actions = queue.popleft()
        for action in range(5):
            result = replay((*actions, action))
            if result[2]:
                return (*actions, action)
            key = env.get_wrapper_attr("state_key")()
            if key not in seen:
                seen.add(key)
                queue.append((*actions, action))
    raise AssertionError("no solution")


def test_scripted_solution_is_solved_in_its_length():
    start = enumerate_starts(5)[7]
    solution = optimal_actions(start)
    script = iter(solution)
    result = evaluate(
        lambda observation: [next(script)],
        lambda: make_doorkey(5, reward="success"),
        [{"options": {"start": start}}],
    )
    assert result.success.tolist() == [True]
    assert result.length.tolist() == [len(solution)]
    assert result.returns.tolist() == [1.0]
    assert result.loop.tolist() == [False]
    summary = result.summary()
    assert summary["episode_length"] == summary["solved_length"] == len(solution)


def test_turning_in_place_is_a_failed_loop_of_four_steps():
    result = evaluate(lambda observation: np.zeros(len(observation), int), make_doorkey, RESETS)
    assert result.loop.all()
    assert not result.success.any()
    assert (result.length == 4).all()
    assert result.summary()["episode_length"] == 4.0
    assert "solved_length" not in result.summary()


def test_random_episodes_have_successes_and_no_loops():
    rng = np.random.default_rng(0)
    result = evaluate(
        lambda observation: rng.integers(5, size=len(observation)),
        make_doorkey,
        RESETS,
        epsilon=0.5,
    )
    assert not result.loop.any()
    # About 29 % of random episodes are solved within the time limit of 250 steps.
    assert 0.1 < result.success.mean() < 0.5
    assert (result.length[~result.success] == 250).all()
    assert (result.returns[result.success] > 0).all()
    assert (result.returns[~result.success] == 0).all()


def test_seed_decides_the_random_actions():
    def play(seed):
        return evaluate(
            lambda o: np.full(len(o), 2), make_doorkey, RESETS[:5], epsilon=0.9, seed=seed
        ).length.tolist()

    assert play(1) == play(1)
    assert play(1) != play(2)


class Counter(gymnasium.Env):
    """Environment without success and state key; the seed is the length of the episode."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        self.left = seed
        return np.array([self.left], "float32"), {}

    def step(self, action):
        self.left -= 1
        return np.array([self.left], "float32"), 0.5, self.left == 0, False, {}


def test_any_environment_can_be_evaluated():
    result = evaluate(
        lambda o: np.zeros(len(o), int), Counter, [{"seed": seed} for seed in (2, 4, 9)]
    )
    assert result.success is None and result.loop is None
    assert result.returns.tolist() == [1.0, 2.0, 4.5]
    assert result.summary() == {"return": 2.5, "episode_length": 5.0}


def test_episode_without_reported_success_is_a_failure():
    class Lucky(Counter):
        def step(self, action):
            *result, info = super().step(action)
            return *result, {"success": True} if self.first == 4 and result[2] else info

        def reset(self, *, seed=None, options=None):
            self.first = seed
            return super().reset(seed=seed)

    result = evaluate(
        lambda o: np.zeros(len(o), int), Lucky, [{"seed": seed} for seed in (2, 4, 9)]
    )
    assert result.success.tolist() == [False, True, False]
    # The mean length of solved episodes alone would look too short.
    assert result.summary()["episode_length"] == 5.0
    assert result.summary()["solved_length"] == 4.0


def test_evaluation_without_a_start_is_rejected():
    with pytest.raises(ValueError, match="at least one element"):
        evaluate(lambda o: o, make_doorkey, [])


TASK = doorkey_task((5,))


def make_agent(seed, jit_compile=True):
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    network = keras.Sequential(
        [layers.Flatten(), layers.Dense(16, "relu"), layers.Dense(TASK.num_actions)]
    )
    network.build((None, *TASK.preprocessor.shape))
    return DoubleDQN(network, TASK.preprocessor, jit_compile=jit_compile)


@pytest.mark.tf_only
@pytest.mark.parametrize(("seed", "jit_compile"), [(0, True), (1, False)])
def test_greedy_episodes_in_the_graph_equal_those_in_python(seed, jit_compile):
    agent, starts = make_agent(seed, jit_compile), enumerate_starts(6)[::9]
    make = functools.partial(make_doorkey, 6, "compass", max_steps=40)
    found = GraphEvaluation(agent, DoorKeyGraph(6, max_steps=40), starts)()
    expected = evaluate(agent.greedy, make, [{"options": {"start": start}} for start in starts])
    for name in ("success", "length", "returns", "loop"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.loop.any()


@pytest.mark.tf_only
def test_random_episodes_in_the_graph_succeed_as_often_as_in_python():
    # All actions are random, so the network has no influence and no loop is counted.
    agent, starts = make_agent(0), enumerate_starts(5) * 4
    play = GraphEvaluation(agent, DoorKeyGraph(5), starts)
    found = play(epsilon=1.0)
    expected = evaluate(
        agent.greedy,
        functools.partial(make_doorkey, 5, "compass"),
        [{"options": {"start": start}} for start in starts],
        epsilon=1.0,
    )
    assert not found.loop.any()
    assert found.success.mean() == pytest.approx(expected.success.mean(), abs=0.12)
    np.testing.assert_array_equal(found.length[~found.success], 250)
    np.testing.assert_array_equal(found.returns > 0, found.success)
    assert (play(epsilon=1.0, seed=1).length != found.length).any()
    np.testing.assert_array_equal(play(epsilon=1.0).length, found.length)


@pytest.mark.tf_only
def test_evaluation_in_the_graph_uses_the_training_environment_by_default():
    level = dataclasses.replace(TASK.levels[0], make_test_graph=None)
    task = dataclasses.replace(TASK, levels=(level,))
    assert make_play(make_agent(0), task, 3, in_graph=True)(0, 0.0).length.shape == (3,)


SUCCESSES = (0.9, 0.5, 0.25)


@pytest.mark.parametrize("level", [1, 2])
def test_zero_shot_scores_are_of_the_next_and_the_last_level(level):
    calls = []

    def play(level, epsilon):
        calls.append((level, epsilon))
        success = SUCCESSES[level] - epsilon
        return types.SimpleNamespace(summary=lambda: {"return": success, "success": success})

    assert zero_shot_scores(play, level, len(SUCCESSES)) == {
        "zero_shot/success": SUCCESSES[level],
        "zero_shot/success_epsilon_0.05": pytest.approx(SUCCESSES[level] - 0.05),
        "zero_shot/level": level + 1,
        "zero_shot/last_success": SUCCESSES[-1],
    }
    assert len(calls) == len(set(calls))  # no level is played twice


def test_summary_lines_report_successes_loops_and_returns():
    found = {"eval/return": 0.5, "eval/success": 0.5, "eval/success_epsilon_0.05": 0.25}
    line = format_summary(found | {"eval/loops": 0.25}, episodes=8, levels=2)
    assert line == (
        "greedy (level 2 of 2): 4/8 solved, mean return 0.50, 2 loops; "
        "with 5 % random actions: 25.0 % solved"
    )
    line = format_summary({"eval/return": 9.5, "eval/return_epsilon_0.05": 9}, 2, 1)
    assert (
        line == "greedy: mean return 9.50 in 2 episodes; with 5 % random actions: mean return 9.00"
    )


def test_run_is_solved_after_enough_perfect_evaluations_of_the_last_level():
    rows = [
        {"step": step, "eval/success": success, "eval/level": level}
        for step, success, level in [(1, 1, 1), (2, 0.5, 2), (3, 1, 2), (4, 1, 2)]
    ]
    assert first_perfect_step(rows, levels=2) == 3
    assert first_perfect_step(rows[:2], levels=2) is None
    assert is_solved(rows, 2, 2) and not is_solved(rows, 2, 3) and not is_solved(rows, 2, 0)
    assert not is_solved(rows[:1], 2, 1)
