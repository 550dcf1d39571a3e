"""Atari games follow the protocol of Atari 100k."""

import itertools
import sys

import numpy as np
import pytest

from rrl_tf.envs import SeededVectorEnv, atari_task
from rrl_tf.errors import InvalidInput

GAME = "ALE/Alien-v5"


@pytest.fixture(scope="module")
def task():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    return atari_task(GAME)


def played(env, seed, steps):
    """Play at random; return rows of observation, reward, reported life loss, lives, terminated."""
    rng = np.random.default_rng(seed)
    rows = [(env.reset(seed=seed)[0], 0.0, None, None, False)]
    while len(rows) <= steps and not rows[-1][-1]:
        seen, reward, terminated, _, info = env.step(int(rng.integers(env.action_space.n)))
        rows.append((seen, float(reward), info.get("life_lost"), info["lives"], terminated))
    return rows


def test_atari_task_has_stacked_pictures_and_the_games_actions(task):
    assert task.observation_space.shape == task.preprocessor.shape == (84, 84, 4)
    assert task.observation_space.dtype == np.uint8
    assert (task.num_actions, task.action_names[:3]) == (18, ("NOOP", "FIRE", "UP"))
    assert (task.frames, task.success_return) == (4, None)
    env = task.make_env().unwrapped
    assert env.ale.getFloat("repeat_action_probability") == 0
    assert env.spec.kwargs["max_num_frames_per_episode"] == 108_000


def test_a_step_adds_one_picture_of_four_frames(task):
    env = task.make_test_env()
    rows = played(env, 1, 30)
    for (before, *_), (after, *_) in itertools.pairwise(rows):
        np.testing.assert_array_equal(before[..., 1:], after[..., :-1])
    frames = env.unwrapped.ale.getEpisodeFrameNumber()
    assert 4 * 30 + 1 <= frames <= 4 * 30 + 30  # a reset adds 1 to 30 no-ops


def test_training_sees_the_same_game_with_signs_of_rewards_and_lives_lost(task):
    training, testing = (played(make(), 3, 10_000) for make in (task.make_env, task.make_test_env))
    assert len(training) == len(testing)
    lives = 3
    for (seen, reward, lost, left, terminated), (other, score, told, *_) in zip(
        training[1:], testing[1:]
    ):
        np.testing.assert_array_equal(seen, other)
        assert reward == np.sign(score) and told is None
        assert lost == (left < lives and not terminated)
        lives = left
    assert training[-1][-1] and sum(row[2] for row in training[1:]) == 2
    assert max(row[1] for row in testing) > 1


def test_a_game_is_restored_in_another_process(task):
    """Episodes are full games, which continue after the loss of a life."""
    env = SeededVectorEnv(task.make_env, 1, seed=5)
    env.reset()
    rng, lost = np.random.default_rng(0), 0
    while lost == 0:
        observation, *_, info = env.step(rng.integers(18, size=1))
        lost += np.sum(info.get("life_lost", 0))
    again = SeededVectorEnv(task.make_env, 1, seed=0)
    np.testing.assert_array_equal(again.set_state(env.get_state()), observation)


def test_unknown_games_raise(task):
    wrong = ("ALE/Aliens-v5", "CartPole-v1", "nopkg:Foo-v0", "phys2d/CartPole-v1", ":", "a:b:c", 3)
    for game in wrong:
        with pytest.raises(InvalidInput, match=rf"`game` must be.*; received {game!r}$"):
            atari_task(game)
    with pytest.raises(InvalidInput, match=r"frames.*received 0"):
        atari_task(GAME, frames=0)


@pytest.mark.parametrize("package", ["ale_py", "cv2"])
def test_a_missing_package_is_named(monkeypatch, package):
    pytest.importorskip("ale_py")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidInput, match=rf"need {package}.*pip install '\.\[atari\]'"):
        atari_task(GAME)
