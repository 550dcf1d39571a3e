"""Recordings of environments that a user registers: others can make them again, or are told."""

import sys

import gymnasium
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.recording import Player, record_episodes
from rrl_tf.offline.sources import load_episodes

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # h5py's and Minari's own

RANDOM = Player("random", level=1.0)

WORLDS = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv

class Swing(PendulumEnv):
    pass

class Heavy(PendulumEnv):
    def __init__(self, weights):
        super().__init__()

def wrapped():
    return gymnasium.wrappers.FlattenObservation(Swing())

class Swings:
    class Small(PendulumEnv):
        pass

gymnasium.register("Swing-v0", Swing, max_episode_steps=5)
gymnasium.register("Lambda-v0", lambda: Swing(), max_episode_steps=5)
gymnasium.register("Nested-v0", Swings.Small, max_episode_steps=5)
gymnasium.register("Late-v0", wrapped, max_episode_steps=5)
gymnasium.register("Odd-v0", Heavy, max_episode_steps=5, kwargs={"weights": range(3)})
"""


@pytest.fixture
def worlds(tmp_path, monkeypatch):
    """A file that registers environments, of which nothing is left afterwards."""
    (tmp_path / "worlds_to_record.py").write_text(WORLDS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    yield "worlds_to_record"
    sys.modules.pop("worlds_to_record", None)


def test_an_environment_registered_by_its_class_is_made_again(tmp_path, worlds):
    def make_env():
        return gymnasium.make(f"{worlds}:Swing-v0")

    path = record_episodes(tmp_path / "data", "me/swing-v0", make_env, [RANDOM], 2)
    data = load_episodes(f"minari:{path}")
    assert data.environment == "Swing-v0" and data.steps == 10
    again = data.make_env()
    assert again.spec.entry_point == f"{worlds}:Swing"
    assert type(again.unwrapped) is type(make_env().unwrapped)
    assert again.spec.max_episode_steps == 5


@pytest.mark.parametrize(
    ("name", "received"),
    [("Lambda-v0", "<function <lambda>"), ("Nested-v0", "<class .*Small'>"), ("Late-v0", "<func")],
)
def test_an_environment_that_nobody_could_make_again(tmp_path, worlds, name, received):
    message = f"{name} must be registered by .*'my_worlds:MyWorld'.* entry point {received}"
    with pytest.raises(InvalidInput, match=message):
        record_episodes(
            tmp_path / "data",
            "me/a-v0",
            lambda: gymnasium.make(f"{worlds}:{name}"),
            [RANDOM],
            10**9,
        )
    assert not (tmp_path / "data").exists()


def test_an_environment_of_other_things_than_numbers_is_recorded_without_it(tmp_path, worlds):
    def make_env():
        return gymnasium.make(f"{worlds}:Odd-v0")

    with pytest.warns(UserWarning, match="will not be able to recover the environment"):
        path = record_episodes(tmp_path / "data", "me/odd-v0", make_env, [RANDOM], 2)
    data = load_episodes(f"minari:{path}")
    assert data.environment == "unknown environment" and data.make_env is None
