"""Recipes of recordings, and built-in policies."""

import re

import gymnasium
import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.recipes import RECIPES, Recipe, balance, name_with_digest, swing_up


def leaning(observation):
    return int(observation[2] > 0)


HALVES = Recipe(
    "CartPole-v1",
    ((0.1, None, 1.0), (0.2, "a", 0.3), (0.3, leaning, 0.2), (0.4, "a", 0.1)),
    1000,
    "random",
)


def write(folder, *names):
    rng = np.random.default_rng(0)
    for name in names:
        np.savez(folder / f"{name}.npz", W0=rng.normal(size=(17, 6)), b0=np.zeros(6))


def values(players):
    return [
        (re.sub(" [0-9a-f]{8}$", "", p.name), p.noise, p.level, round(p.fraction, 9))
        for p in players
    ]


def test_players_of_a_recipe_are_its_lines(tmp_path):
    write(tmp_path, "a")
    assert values(HALVES.players(tmp_path)) == [
        ("random", "random", 1.0, 0.1),
        ("a", "random", 0.3, 0.2),
        ("leaning", "random", 0.2, 0.3),
        ("a", "random", 0.1, 0.4),
    ]
    assert {each[1] for each in values(HALVES.players(tmp_path, "tanh"))} == {"tanh"}
    assert values(HALVES.players(tmp_path, "none")) == [
        ("a", "random", 0.0, 0.6),
        ("leaning", "random", 0.0, 0.3),
    ]
    random, a, mine, _ = HALVES.players(tmp_path)
    assert random.make is None and mine.make() is leaning
    assert a.make()(np.ones(17)).shape == (6,)


def test_the_name_of_a_player_depends_on_its_weights(tmp_path):
    write(tmp_path, "a")
    before = HALVES.players(tmp_path)[1].name
    assert before == HALVES.players(tmp_path)[1].name
    np.savez(tmp_path / "a.npz", W0=np.ones((17, 6)), b0=np.zeros(6))
    assert before != HALVES.players(tmp_path)[1].name


def test_the_digest_of_a_name_stays_that_of_existing_recordings(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"weights")
    assert HALVES.players(tmp_path)[1].name == "a 9a129038"
    assert name_with_digest("a", [tmp_path / "a.npz"] * 2) != "a 9a129038"


def test_all_missing_files_are_named(tmp_path):
    write(tmp_path, "a2c", "ars")
    with pytest.raises(InvalidInput, match=r"hold trpo.npz and tqc.npz for .*dense layers"):
        RECIPES["walker2d-medium-replay"].players(tmp_path)
    with pytest.raises(InvalidInput, match=r"hold tqc.npz for Walker2d-v5.* received nowhere"):
        RECIPES["walker2d-medium"].players("nowhere")
    write(tmp_path, "trpo", "tqc")
    names = [player[0] for player in values(RECIPES["walker2d-medium-replay"].players(tmp_path))]
    assert names == ["random", "a2c", "ars", "trpo", "tqc"]


@pytest.mark.parametrize("name", RECIPES)
def test_the_fractions_of_a_recipe_sum_to_1(name):
    assert sum(fraction for fraction, _, _ in RECIPES[name].lines) == pytest.approx(1)
    assert all(fraction > 0 for fraction, _, _ in RECIPES[name].lines)


def returns(env, policy, episodes):
    reached = []
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        reached.append(0.0)
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            reached[-1] += float(reward)
            over = terminated or truncated
    return np.array(reached)


def test_swing_up_solves_pendulum():
    """A return below -400 means that the pendulum was not upright in time."""
    reached = returns(gymnasium.make("Pendulum-v1"), swing_up, 20)
    assert reached.min() > -400 and reached.mean() > -170


def test_balance_solves_cart_pole():
    assert (returns(gymnasium.make("CartPole-v1"), balance, 10) == 500).all()
