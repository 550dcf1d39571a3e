import gymnasium
import numpy as np
import pytest

from rrl_tf.agents import Curriculum, CurriculumEnv
from rrl_tf.envs import SeededVectorEnv, make_doorkey
from rrl_tf.errors import InvalidInput


def sizes_of(env):
    return [each.unwrapped.width for each in env.envs]


def make():
    return CurriculumEnv([make_doorkey(5), make_doorkey(6), make_doorkey(8)])


def test_levels_are_drawn_with_their_probabilities():
    env = make()
    widths = []
    for seed in range(1000):
        env.reset(seed=seed, options={"level": 2})
        widths.append(env.unwrapped.width)
    share = [widths.count(width) / 1000 for width in (5, 6, 8)]
    np.testing.assert_allclose(share, [0.15, 0.15, 0.7], atol=0.04)


def test_without_a_level_only_the_easiest_is_played():
    env = make()
    for seed in range(20):
        env.reset(seed=seed)
        assert env.unwrapped.width == 5


def test_restored_vector_replays_episodes_of_both_levels():
    env = SeededVectorEnv(make, num_envs=6, seed=3)
    env.reset()
    env.reset_options = {"level": 1}
    rng = np.random.default_rng(0)
    for _ in range(400):  # some episodes reach their time limit, others keep the old level
        env.step(rng.integers(5, size=6))
    assert set(sizes_of(env)) == {5, 6}
    twin = SeededVectorEnv(make, num_envs=6, seed=3)
    twin.set_state(env.get_state())
    assert sizes_of(twin) == sizes_of(env)
    for _ in range(300):
        action = rng.integers(5, size=6)
        for left, right in zip(env.step(action)[:4], twin.step(action)[:4]):
            np.testing.assert_array_equal(left, right)


def test_promotion_needs_the_success_and_a_next_level():
    curriculum = Curriculum(levels=2)
    assert not curriculum.report(0.89)
    assert curriculum.report(0.9)
    assert curriculum.level == 1
    assert not curriculum.report(1.0)
    twin = Curriculum(levels=2)
    twin.set_state(curriculum.get_state())
    assert twin.level == 1


@pytest.mark.parametrize("level", [3, -1, 1.0, True, "x"])
def test_unknown_level_is_rejected(level):
    with pytest.raises(InvalidInput, match=f"level.* must be .*; received {level!r}"):
        make().reset(seed=0, options={"level": level})
    curriculum = Curriculum(levels=3)
    with pytest.raises(InvalidInput, match=f"level.* must be .*; received {level!r}"):
        curriculum.set_state({"level": level})
    assert curriculum.level == 0


def test_unknown_reset_option_is_rejected():
    with pytest.raises(InvalidInput, match=r"only option .*'level'; received \['lvel'\]"):
        make().reset(options={"lvel": 1})


def test_different_observation_spaces_are_rejected():
    with pytest.raises(ValueError, match=r"\(7, 7, 3\).*\(7, 7, 4\)"):
        CurriculumEnv([make_doorkey(5), make_doorkey(6, observation="compass")])
    with pytest.raises(ValueError, match="none"):
        CurriculumEnv([])


def test_different_action_spaces_are_rejected():
    few, many = gymnasium.make("MiniGrid-Empty-5x5-v0"), gymnasium.make("MiniGrid-Empty-5x5-v0")
    many.action_space = gymnasium.spaces.Discrete(9)
    with pytest.raises(InvalidInput, match=r"equal spaces .* Discrete\(7\); .*9\)"):
        CurriculumEnv([few, many])


def test_curriculum_without_a_level_is_rejected():
    with pytest.raises(InvalidInput, match=r"levels.* must .*; received 0"):
        Curriculum(0)


def test_close_closes_the_environments_of_all_levels():
    class Closing(gymnasium.Wrapper):
        closed = False

        def close(self):
            self.closed = True

    envs = [Closing(make_doorkey(5)) for _ in range(3)]
    CurriculumEnv(envs).close()
    assert [env.closed for env in envs] == [True] * 3
