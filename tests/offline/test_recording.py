"""Recordings equal the played episodes; errors; atomic writes."""

import functools
import itertools
import os
import signal
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.offline import Player, load_episodes, record_episodes

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # from h5py and Minari

RANDOM = Player("random", level=1.0)


def cart_pole():
    return gymnasium.make("CartPole-v1")


def pendulum():
    return gymnasium.make("Pendulum-v1")


class Noise(gymnasium.Env):
    """Three images of noise, large enough for Minari's default compression."""

    observation_space = gymnasium.spaces.Box(0, 255, (40, 40, 3), "uint8")
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3
        return self._image(), {}

    def step(self, action):
        self.left -= 1
        return self._image(), 1.0, self.left == 0, False, {}

    def _image(self):
        return self.np_random.integers(0, 256, (40, 40, 3), np.uint8)


@settings(max_examples=3)
@given(seed=st.integers(0, 2**20), episodes=st.integers(1, 4))
def test_loaded_episodes_equal_played_episodes(tmp_path_factory, seed, episodes):
    played = []

    def policy(observation):
        played.append(np.array(observation))
        return int(observation[2] > 0)

    players = [RANDOM, *(Player("leaning", lambda: policy, level=level) for level in (0.0, 0.5))]
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
    np.testing.assert_array_equal(played[2 : 2 + len(seen)], seen)  # two calls check the policies
    assert sorted(path.name for path in folder.iterdir()) == ["me"]


def turned(observation):
    return 1.5 * observation[1:2]


@settings(max_examples=3)
@given(seed=st.integers(0, 2**20))
def test_noisy_actions_follow_the_random_generator(tmp_path_factory, seed):
    """The generator draws the seed of an episode, then one normal number per action."""
    players = [
        Player("random", None, "clipped", 1.0, fraction=0.25),
        Player("turned", lambda: turned, "clipped", 0.4, fraction=0.75),
    ]
    folder = tmp_path_factory.mktemp("data")
    path = record_episodes(folder, "me/turned-v0", pendulum, players, seed=seed, steps=1000)
    data = load_episodes(f"minari:{path}")
    assert len(data.episodes) == 2 + 4  # 250 and 750 steps in episodes of 200
    rng = np.random.default_rng(seed)
    env = pendulum()
    for number, episode in enumerate(data.episodes):
        policy, noise = (lambda observation: 0.0, 2.0) if number < 2 else (turned, 0.8)
        observation, _ = env.reset(seed=int(rng.integers(2**31)))
        for step, action in enumerate(episode.actions):
            np.testing.assert_array_equal(episode.observations[step], observation)
            expected = np.clip(policy(observation) + rng.normal(size=1) * noise, -2, 2)
            np.testing.assert_array_equal(action, expected.astype("float32"))
            observation, *_ = env.step(action)


@settings(max_examples=3)
@given(steps=st.integers(5, 200), fractions=st.lists(st.floats(0.1, 9.0), min_size=1, max_size=3))
def test_every_player_plays_its_fraction_of_the_steps(tmp_path_factory, steps, fractions):
    actions = [0, 1, 0]  # consecutive players take different actions
    players = [
        Player(f"player {i}", lambda action=action: lambda observation: action, fraction=fraction)
        for i, (fraction, action) in enumerate(zip(fractions, actions))
    ]
    folder = tmp_path_factory.mktemp("data")
    path = record_episodes(folder, "me/cart-v0", cart_pole, players, steps=steps)
    episodes = list(load_episodes(f"minari:{path}").episodes)
    for fraction, action in zip(fractions, actions):
        needed = max(1, int(fraction / sum(fractions) * steps))
        while needed > 0:
            episode = episodes.pop(0)
            np.testing.assert_array_equal(episode.actions, action)
            needed -= len(episode)
    assert not episodes


def test_images_are_stored_without_loss(tmp_path):
    data = load_episodes(f"minari:{record_episodes(tmp_path, 'noise-v0', Noise, [RANDOM], 1)}")
    reset, _ = Noise().reset(seed=int(np.random.default_rng(0).integers(2**31)))
    np.testing.assert_array_equal(data.episodes[0].observations[0], reset)


def test_an_existing_recording_stays_and_another_is_an_error(tmp_path, capsys):
    arguments = tmp_path, "me/cart/random-v0", cart_pole, [RANDOM]
    folder = record_episodes(*arguments, episodes=2)
    before = (folder / "data" / "main_data.hdf5").read_bytes()
    assert record_episodes(*arguments, episodes=2) == folder
    assert "exists already" in capsys.readouterr().out
    with pytest.raises(InvalidInput, match=r"recording: 3 episodes .* received 2 episodes"):
        record_episodes(*arguments, episodes=3)
    with pytest.raises(InvalidInput, match=r"recording: 90 steps .* received 2 episodes"):
        record_episodes(*arguments, steps=90)
    with pytest.raises(InvalidInput, match=r"seed 1.* received .*seed 0"):
        record_episodes(*arguments, episodes=2, seed=1)
    with pytest.raises(InvalidInput, match=r"in Noise.* received .* in CartPole-v1"):
        record_episodes(tmp_path, "me/cart/random-v0", Noise, [RANDOM], episodes=2)
    assert (folder / "data" / "main_data.hdf5").read_bytes() == before
    (tmp_path / "other-v0").mkdir()
    with pytest.raises(InvalidInput, match="other-v0 is not a dataset"):
        record_episodes(tmp_path, "other-v0", cart_pole, [RANDOM], episodes=2)


def failing():
    raise InvalidInput("no policy")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episodes": 0}, "`episodes` must be a positive integer"),
        ({"steps": 10}, "either episodes or steps; received 1000000000 and 10"),
        ({"episodes": None}, "either episodes or steps; received None and None"),
        ({"episodes": None, "steps": 0}, "`steps` must be a positive integer; received 0"),
        ({"dataset_id": "me/cart"}, "ID must be NAMESPACE/NAME-vN .* received 'me/cart'"),
        ({"dataset_id": "a b-v0"}, "received 'a b-v0'"),
        ({"dataset_id": "../up-v0"}, "received '../up-v0'"),
        ({"players": []}, "must have players; received none"),
        ({"players": [RANDOM, Player("broken", failing)]}, "no policy"),
        ({"players": [RANDOM, Player("lost", lambda: lambda o: 7)]}, "lost must return .* 7"),
        # Even if nearly all of its actions are random.
        ({"players": [Player("lost", lambda: lambda o: 7, level=0.99)]}, "lost must return .* 7"),
        (
            {"players": [Player("noisy", None, "tanh", 1.0)]},
            "for noise; received Discrete",
        ),
    ],
)
def test_errors_before_the_recording_leave_no_folder(tmp_path, changes, message):
    arguments = {"dataset_id": "me/cart-v0", "players": [RANDOM], "episodes": 10**9, **changes}
    with pytest.raises(InvalidInput, match=message):
        record_episodes(tmp_path / "data", make_env=cart_pole, **arguments)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("noise", ["clipped", "tanh"])
def test_a_policy_with_invalid_means_is_an_error(tmp_path, noise):
    for action, message in [
        (np.zeros(3), r"must have the shape \(1,\); received \(3,\)"),
        (np.array([np.nan]), "mine must return actions in .*nan"),
    ]:
        players = [Player("mine", lambda action=action: lambda observation: action, noise, 0.1)]
        with pytest.raises(InvalidInput, match=message):
            record_episodes(tmp_path / "data", "me/mine-v0", pendulum, players, 10**9)
    assert not (tmp_path / "data").exists()


def fourth_action(good, bad):
    """Return a maker of a policy whose fourth action is `bad`."""

    def make():
        played = itertools.count()
        return lambda observation: good if next(played) < 3 else bad

    return make


NOTHING = np.zeros(1)


@pytest.mark.parametrize(
    ("make_env", "good", "bad", "noise", "message"),
    [
        (cart_pole, 0, 9, "random", r"in Discrete\(2\); received 9"),
        (cart_pole, 0, 1.0, "random", r"in Discrete\(2\); received 1.0"),
        (cart_pole, 0, np.nan, "random", r"in Discrete\(2\); received nan"),
        (pendulum, NOTHING, np.array([np.nan]), "random", r"in Box.*; received .*nan"),
        (pendulum, NOTHING, np.zeros(2), "random", r"in Box.*; received array\(\[0., 0.\]\)"),
    ],
)
def test_an_invalid_action_ends_the_recording(tmp_path, make_env, good, bad, noise, message):
    players = [RANDOM, Player("fickle", fourth_action(good, bad), noise)]
    with pytest.raises(InvalidInput, match=f"fickle must return actions {message}"):
        record_episodes(tmp_path, "me/fickle-v0", make_env, players, 2)
    assert not list(tmp_path.iterdir())


class Custom(gymnasium.Env):
    """An environment of three steps with given spaces, last observation and last reward."""

    def __init__(self, observation=0.0, reward=1.0, observations=None, actions=None):
        self.observation, self.reward = observation, reward
        self.observation_space = observations or gymnasium.spaces.Box(-1, 1, (2,))
        self.action_space = actions or gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3
        return self.observation_space.sample(), {}

    def step(self, action):
        self.left -= 1
        if self.left:
            return self.observation_space.sample(), 1.0, False, False, {}
        return np.full(2, self.observation, "float32"), self.reward, True, False, {}


@pytest.mark.filterwarnings("ignore:Observation is not in observation space")  # from Minari
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"observation": np.nan},
            "must be finite float32 .* with nan from Custom in step 3",
        ),
        ({"reward": 1e39}, r"the reward must be finite .* with 1e\+39 from Custom in step 3"),
    ],
)
def test_numbers_that_are_not_finite_end_the_recording(tmp_path, changes, message):
    with pytest.raises(InvalidInput, match=message):
        record_episodes(tmp_path, "me/custom-v0", lambda: Custom(**changes), [RANDOM], 2)
    assert not list(tmp_path.iterdir())


box, discrete = gymnasium.spaces.Box, gymnasium.spaces.Discrete


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"observations": gymnasium.spaces.Dict({"at": discrete(3)})},
            r"Custom must have array observations, .*; received Dict\('at': Discrete\(3\)\)",
        ),
        ({"observations": box(-1, 1, (0,))}, r"array .*; received Box\("),
        (
            {"actions": gymnasium.spaces.MultiDiscrete([2, 3])},
            r"Custom: the action space .*; received Multi",
        ),
        ({"actions": discrete(2, start=1)}, r"starts at 0.*; received Discrete\(2, start=1\)"),
        ({"actions": box(-np.inf, np.inf, (2,))}, r"bounded Box .*; received Box\(-inf, inf"),
    ],
)
def test_spaces_that_load_episodes_does_not_support_are_errors(tmp_path, changes, message):
    with pytest.raises(InvalidInput, match=message):
        record_episodes(tmp_path / "data", "me/g-v0", lambda: Custom(**changes), [RANDOM], 10**9)
    assert not (tmp_path / "data").exists()


def test_integer_actions_are_recorded_and_loaded_as_floats(tmp_path):
    space = box(0, 9, (2,), "int64")
    players = [Player("any", noise="clipped", level=1.0), RANDOM]
    folder = record_episodes(tmp_path, "me/w-v0", lambda: Custom(actions=space), players, 2)
    data = load_episodes(f"minari:{folder}")
    assert data.action_space == space
    actions = np.concatenate([episode.actions for episode in data.episodes])
    assert actions.dtype == "float32" and (actions == np.rint(actions)).all()
    rounded = [Player("fraction", lambda: lambda observation: np.array([1.9, 0.0]))]
    with pytest.raises(
        InvalidInput, match=r"fraction must return actions in Box.*; received .*1.9"
    ):
        record_episodes(tmp_path, "me/f-v0", lambda: Custom(actions=space), rounded, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, "random", 0.5), "`level of me` must be from 1 to 1; received 0.5"),
        ((failing, "random", 1.1), "`level of me` must be from 0 to 1; received 1.1"),
        ((failing, "clipped", -0.1), "`level of me` must be at least 0 and finite; received -0.1"),
        ((failing, "tanh", np.inf), "`level of me` must be at least 0 and finite; received inf"),
        ((failing, "loud", 1.0), "`noise` must be one of .*'tanh'.*; received 'loud'"),
        ((failing, "tanh", 1.0, 0.0), "me: `fraction` must be greater than 0; received 0"),
    ],
)
def test_invalid_players_are_errors(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        Player("me", *arguments)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InvalidInput, match=r"needs the package h5py, .*pip install '\.\[data\]'"):
        record_episodes(tmp_path / "data", "me/cart-v0", cart_pole, [RANDOM], 10**9)


KILLED = """
import os, signal, sys, gymnasium
from rrl_tf.offline import Player, record_episodes
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it
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
def test_a_killed_recording_leaves_no_data_set(tmp_path, number):
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(int(number))]
    ended = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONPATH": "."})
    assert ended.returncode in (-number, 130, 1), ended.stderr.decode()[-500:]
    left = [path.name for path in tmp_path.iterdir()]
    assert all(name.startswith(".rrl_tf-draft-") for name in left)
    assert left or number == signal.SIGINT
    record_episodes(tmp_path, "me/cart-v0", cart_pole, [RANDOM], 1)
    assert [path.name for path in tmp_path.iterdir()] == ["me"]


def changed_cart_pole(**options):
    return lambda: gymnasium.make("CartPole-v1", **options)


@pytest.mark.parametrize(
    ("level", "make_env", "message"),
    [
        (0.505, cart_pole, r"mine \(50.5% random\); received .*mine \(49.5% random\)"),
        (0.495, changed_cart_pole(max_episode_steps=5), "CartPole-v1 with max_episode_steps=5,"),
        (0.495, changed_cart_pole(sutton_barto_reward=True), "with sutton_barto_reward=True,"),
    ],
)
def test_a_similar_recording_is_another_recording(tmp_path, level, make_env, message):
    record = functools.partial(record_episodes, tmp_path, "me/cart-v0", episodes=1)
    record(cart_pole, [Player("mine", lambda: lambda _: 0, level=0.495)])
    with pytest.raises(InvalidInput, match=message):
        record(make_env, [Player("mine", lambda: lambda _: 0, level=level)])
    record(
        changed_cart_pole(render_mode="rgb_array"),
        [Player("mine", lambda: lambda _: 0, level=0.495)],
    )


REGISTRATIONS = """
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
def registered(tmp_path, monkeypatch):
    """Create a module that registers environments, for one test."""
    (tmp_path / "envs_to_record.py").write_text(REGISTRATIONS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    yield "envs_to_record"
    sys.modules.pop("envs_to_record", None)


def test_load_episodes_makes_an_environment_registered_by_its_class(tmp_path, registered):
    def make_env():
        return gymnasium.make(f"{registered}:Swing-v0")

    path = record_episodes(tmp_path / "data", "me/swing-v0", make_env, [RANDOM], 2)
    data = load_episodes(f"minari:{path}")
    assert data.environment == "Swing-v0" and data.steps == 10
    again = data.make_env()
    assert again.spec.entry_point == f"{registered}:Swing"
    assert type(again.unwrapped) is type(make_env().unwrapped)
    assert again.spec.max_episode_steps == 5


@pytest.mark.parametrize(
    ("name", "received"),
    [("Lambda-v0", "<function <lambda>"), ("Nested-v0", "<class .*Small'>"), ("Late-v0", "<func")],
)
def test_an_entry_point_that_cannot_be_imported_is_an_error(tmp_path, registered, name, received):
    message = f"{name} must be registered with .*'my_envs:MyEnv'.* entry point {received}"
    with pytest.raises(InvalidInput, match=message):
        record_episodes(
            tmp_path / "data",
            "me/a-v0",
            lambda: gymnasium.make(f"{registered}:{name}"),
            [RANDOM],
            10**9,
        )
    assert not (tmp_path / "data").exists()


def test_an_environment_that_minari_cannot_store_is_unknown(tmp_path, registered):
    def make_env():
        return gymnasium.make(f"{registered}:Odd-v0")

    with pytest.warns(UserWarning, match="will not be able to recover the environment"):
        path = record_episodes(tmp_path / "data", "me/odd-v0", make_env, [RANDOM], 2)
    data = load_episodes(f"minari:{path}")
    assert data.environment == "unknown environment" and data.make_env is None
