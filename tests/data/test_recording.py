"""Recordings: what is played is what is read, and nothing is there by half."""

import os
import signal
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.data.recording import Player, record_episodes
from rrl_tf.data.sources import load_episodes
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # h5py's and Minari's own

RANDOM = Player("random", random_shares=(1.0,))


def cart_pole():
    return gymnasium.make("CartPole-v1")


class Noise(gymnasium.Env):
    """Pictures of noise, and a reward of 1, for three steps; as large as Minari's JPEGs begin."""

    observation_space = gymnasium.spaces.Box(0, 255, (40, 40, 3), "uint8")
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3
        return self._picture(), {}

    def step(self, action):
        self.left -= 1
        return self._picture(), 1.0, self.left == 0, False, {}

    def _picture(self):
        return self.np_random.integers(0, 256, (40, 40, 3), np.uint8)


@settings(max_examples=3)
@given(seed=st.integers(0, 2**20), episodes=st.integers(1, 4))
def test_what_is_read_is_what_was_played(tmp_path_factory, seed, episodes):
    played = []

    def policy(observation):
        played.append(np.array(observation))
        return int(observation[2] > 0)

    players = [RANDOM, Player("leaning", lambda: policy, random_shares=(0.0, 0.5))]
    folder = tmp_path_factory.mktemp("data")
    data = load_episodes(
        f"minari:{record_episodes(folder, 'me/cart/mixed-v0', cart_pole, players, episodes, seed)}"
    )
    assert len(data.episodes) == 3 * episodes and data.environment == "CartPole-v1"
    np.testing.assert_array_equal(data.returns(), [len(e) for e in data.episodes])
    greedy = data.episodes[episodes : 2 * episodes]
    for episode in greedy:
        np.testing.assert_array_equal(episode.actions, episode.observations[:-1, 2] > 0)
    seen = np.concatenate([episode.observations[:-1] for episode in greedy])
    np.testing.assert_array_equal(played[1 : 1 + len(seen)], seen)  # the first was a trial
    assert sorted(path.name for path in folder.iterdir()) == ["me"]


def test_pictures_are_kept_as_they_were_seen(tmp_path):
    data = load_episodes(f"minari:{record_episodes(tmp_path, 'noise-v0', Noise, [RANDOM], 1)}")
    reset, _ = Noise().reset(seed=int(np.random.default_rng(0).integers(2**31)))
    np.testing.assert_array_equal(data.episodes[0].observations[0], reset)


def test_the_same_recording_stays_and_another_is_refused(tmp_path, capsys):
    arguments = tmp_path, "me/cart/random-v0", cart_pole, [RANDOM]
    folder = record_episodes(*arguments, episodes=2)
    before = (folder / "data" / "main_data.hdf5").read_bytes()
    assert record_episodes(*arguments, episodes=2) == folder
    assert "is there already" in capsys.readouterr().out
    with pytest.raises(InvalidInput, match=r"holds 2 episodes .* received 3 episodes"):
        record_episodes(*arguments, episodes=3)
    with pytest.raises(InvalidInput, match=r"seed 0.* received .*seed 1"):
        record_episodes(*arguments, episodes=2, seed=1)
    with pytest.raises(InvalidInput, match=r"in CartPole-v1.* received .* in Noise"):
        record_episodes(tmp_path, "me/cart/random-v0", Noise, [RANDOM], episodes=2)
    assert (folder / "data" / "main_data.hdf5").read_bytes() == before
    (tmp_path / "other-v0").mkdir()
    with pytest.raises(InvalidInput, match="other-v0 is no data set"):
        record_episodes(tmp_path, "other-v0", cart_pole, [RANDOM], episodes=2)


def failing():
    raise InvalidInput("no policy")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episodes": 0}, "`episodes` must be a positive integer"),
        ({"dataset_id": "me/cart"}, "dataset must be NAMESPACE/NAME-vN .* received 'me/cart'"),
        ({"dataset_id": "a b-v0"}, "received 'a b-v0'"),
        ({"dataset_id": "../up-v0"}, "received '../up-v0'"),
        ({"players": []}, "must have players; received none"),
        ({"players": [RANDOM, Player("broken", failing)]}, "no policy"),
        ({"players": [RANDOM, Player("lost", lambda: lambda o: 7)]}, "lost must choose .* 7"),
    ],
)
def test_mistakes_are_found_before_anything_is_played(tmp_path, changes, message):
    arguments = {"dataset_id": "me/cart-v0", "players": [RANDOM], "episodes": 10**9, **changes}
    with pytest.raises(InvalidInput, match=message):
        record_episodes(tmp_path / "data", make_env=cart_pole, **arguments)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("make", "shares"), [(None, (0.5,)), (failing, ()), (failing, (1.1,))])
def test_shares_that_nobody_plays_with(make, shares):
    with pytest.raises(InvalidInput, match="shares of random actions from"):
        Player("me", make, shares)


def test_a_missing_package_is_named_before_anything_is_played(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InvalidInput, match=r"needs h5py: pip install 'rrl_tf\[data\]'"):
        record_episodes(tmp_path / "data", "me/cart-v0", cart_pole, [RANDOM], 10**9)


KILLED = """
import os, signal, sys, gymnasium
from rrl_tf.data.recording import Player, record_episodes
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
steps = 0
def policy(observation):
    global steps
    steps += 1
    if steps == 200:
        os.kill(os.getpid(), int(sys.argv[2]))
    return 0
make_env = lambda: gymnasium.make("CartPole-v1")
record_episodes(sys.argv[1], "me/cart-v0", make_env, [Player("mortal", lambda: policy)], 10**6)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_recording_leaves_nothing_that_counts(tmp_path, number):
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(int(number))]
    ended = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONPATH": "."})
    assert ended.returncode in (-number, 130, 1), ended.stderr.decode()[-500:]
    left = [path.name for path in tmp_path.iterdir()]
    assert all(name.startswith(".recording-") for name in left)
    assert left or number == signal.SIGINT
    record_episodes(tmp_path, "me/cart-v0", cart_pole, [RANDOM], 1)
    assert [path.name for path in tmp_path.iterdir()] == ["me"]
