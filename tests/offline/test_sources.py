"""Small files of every real format, written by its own library and read back."""

import sys

import gymnasium
import h5py
import numpy as np
import pytest
from made_up_episodes import made_up, write_minari, write_rlds
from made_up_episodes import write_hdf5 as write_hdf5_file

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.sources import load_episodes

pytestmark = [
    pytest.mark.tf_only,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # the recorders' own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def minari_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def record(env, dataset_id, episodes=3, steps=6):
    """Random play as a Minari data set, and what was played."""
    import minari

    collector = minari.DataCollector(env)
    collector.action_space.seed(0)
    played = []
    for i in range(episodes):
        observation, _ = collector.reset(seed=i)
        part = {"observations": [observation], "actions": [], "rewards": []}
        for _ in range(steps):
            action = collector.action_space.sample()
            observation, reward, terminated, truncated, _ = collector.step(action)
            part["observations"].append(observation)
            part["actions"].append(action)
            part["rewards"].append(reward)
            if terminated or truncated:
                break
        played.append(({k: np.array(v) for k, v in part.items()}, terminated))
    collector.create_dataset(dataset_id=dataset_id, algorithm_name="random")
    collector.close()
    return played


def check(data, played):
    assert len(data.episodes) == len(played)
    for episode, (part, terminated) in zip(data.episodes, played):
        for name, values in part.items():
            np.testing.assert_allclose(getattr(episode, name), values, rtol=1e-6)
        assert (episode.terminated, episode.truncated) == (terminated, not terminated)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_minari(name, minari_folder):
    played = record(gymnasium.make(name), "tests/small-v0")
    for source in ("minari:tests/small-v0", f"minari:{minari_folder}/tests/small-v0"):
        data = load_episodes(source)
        check(data, played)
        assert data.environment == name
        assert data.discrete == (name == "CartPole-v1")
        env = data.make_env()
        assert env.action_space == data.action_space
        env.close()
        assert data.reference_returns is None


def flat_episodes(seed=0, lengths=(4, 1, 7)):
    rng = np.random.default_rng(seed)
    return [
        (
            {
                "observations": rng.normal(size=(n + 1, 3)).astype("float32"),
                "actions": rng.uniform(-1, 1, size=(n, 2)).astype("float32"),
                "rewards": rng.normal(size=n).astype("float32"),
            },
            bool(i % 2),
        )
        for i, n in enumerate(lengths)
    ]


def test_rlds_of_tensorflow_datasets(tmp_path):
    played = flat_episodes()
    source = write_rlds(tmp_path, [{**part, "terminated": end} for part, end in played])
    data = load_episodes(source)
    order = [
        next(i for i, (p, _) in enumerate(played) if len(p["rewards"]) == len(e))
        for e in data.episodes
    ]
    assert sorted(order) == [0, 1, 2]
    check(data, [played[i] for i in order])
    assert data.make_env is None


@pytest.mark.parametrize("write", [write_minari, write_rlds, write_hdf5_file])
def test_what_the_benchmark_writes_is_what_is_loaded(write, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    data = load_episodes(write(tmp_path, made_up(episodes=2, steps=5)))
    played = {e["rewards"].tobytes(): e for e in made_up(episodes=2, steps=5)}
    assert len(data.episodes) == 2
    for episode in data.episodes:  # TensorFlow Datasets shuffles them
        expected = played[episode.rewards.tobytes()]
        np.testing.assert_array_equal(episode.observations, expected["observations"])
        np.testing.assert_array_equal(episode.actions, expected["actions"])
        assert episode.terminated == expected["terminated"]


def write_hdf5(path, played, next_observations=True, unfinished=True, **more):
    parts = played + ([flat_episodes(1, (3,))[0]] if unfinished else [])
    flat = {
        "observations": np.concatenate([p["observations"][:-1] for p, _ in parts]),
        "actions": np.concatenate([p["actions"] for p, _ in parts]),
        "rewards": np.concatenate([p["rewards"] for p, _ in parts]),
        "terminals": np.zeros(sum(len(p["rewards"]) for p, _ in parts), bool),
    }
    flat["timeouts"] = flat["terminals"].copy()
    if next_observations:
        flat["next_observations"] = np.concatenate([p["observations"][1:] for p, _ in parts])
    ends = np.cumsum([len(p["rewards"]) for p, _ in played]) - 1
    for end, (_, terminated) in zip(ends, played):
        flat["terminals" if terminated else "timeouts"][end] = True
    with h5py.File(path, "w") as file:
        for name, values in {**flat, **more}.items():
            if values is not None:
                file[name] = values


def test_hdf5_of_d4rl(tmp_path):
    played = flat_episodes()
    write_hdf5(tmp_path / "walker2d_medium-v2.hdf5", played)
    data = load_episodes(f"hdf5:{tmp_path}/walker2d_medium-v2.hdf5")
    check(data, played)
    assert data.environment == "Walker2d-v4"
    assert data.score(4592.3) == pytest.approx(100) and data.score(1.629008) == pytest.approx(0)


def test_hdf5_without_next_observations_repeats_the_last(tmp_path):
    played = flat_episodes()
    for part, _ in played:
        part["observations"][-1] = part["observations"][-2]
    write_hdf5(tmp_path / "own.hdf5", played, next_observations=False, unfinished=False)
    data = load_episodes(f"hdf5:{tmp_path}/own.hdf5")
    check(data, played)
    assert data.reference_returns is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"rewards": np.full(15, np.nan, "float32")},
            "episode 0: rewards must be finite in float32; received nan",
        ),
        ({"rewards": np.zeros(3, "float32")}, "differ in length"),
        (
            {"actions": np.full((15, 2), 3.0, "float32")},
            r"episode 0: actions must be of the space Box\(-1.0, 1.0.* received 3.0 in dimension 0",
        ),
        (
            {"terminals": np.zeros(15, bool), "timeouts": np.zeros(15, bool)},
            "must have episodes that end; received 15 steps, none of which has a terminal or a tim",
        ),
        (
            {"observations": np.zeros((15, 4), "float32")},
            r"next_observations must have the shape of observations, \(15, 4\); rec.* \(15, 3\)",
        ),
        ({"terminals": np.full(15, np.nan)}, "terminals must be 0 or 1; received nan"),
        ({"timeouts": np.full((15, 1), 0.5)}, "timeouts must be 0 or 1; received 0.5"),
        ({"observations": np.full((15, 3), 1e300)}, r"in float32; received 1e\+300 at \[0, 0\]"),
        ({"actions": None}, "it lacks actions"),
        (
            {"rewards": np.zeros((15, 2), "float32")},
            r"rewards must have the shape \(15,\) or \(15, 1\); received \(15, 2\)",
        ),
        ({"timeouts": np.zeros((15, 3), bool)}, r"timeouts must have the shape .*\(15, 3\)"),
        ({"terminals": [b"False"] * 15}, "terminals must be numbers or booleans .* dtype"),
        ({"rewards": ["1.0"] * 15}, "rewards must be numbers or booleans .* dtype object"),
        ({"rewards": np.float32(0)}, r"rewards must be .* shape \(\)"),
        ({"actions": np.zeros((15, 0), "float32")}, r"actions must be .* shape \(15, 0\)"),
        ({"actions": np.full(15, -1)}, r"of the space Discrete\(1\); received -1 in step 0"),
        ({"actions": np.full(15, 2**40)}, "received 1099511627776 in step 0"),
        ({"actions": np.full(15, 2**63, "uint64")}, "received 9223372036854775808 in step 0"),
        ({"actions": np.ones((15, 1), int)}, r"Discrete\(2\), \(T,\) integers; .* \(4, 1\)"),
        ({"actions": np.zeros(15, "float32")}, r"\(T, A\) floats; .* float32 and the shape \(4,\)"),
        ({"rewards": h5py.Empty("f")}, "rewards must be numbers"),
    ],
)
def test_bad_hdf5(tmp_path, more, message):
    write_hdf5(tmp_path / "bad.hdf5", flat_episodes(), **more)
    with pytest.raises(ValueError, match=message):
        load_episodes(f"hdf5:{tmp_path}/bad.hdf5")


def test_actions_of_hdf5_may_be_rounded(tmp_path):
    actions = np.full((15, 2), 1.0000001, "float32")
    write_hdf5(tmp_path / "own.hdf5", flat_episodes(), actions=actions)
    data = load_episodes(f"hdf5:{tmp_path}/own.hdf5")
    assert data.episodes[0].actions.max() > 1


@pytest.mark.parametrize("begin", range(0, 2000, 100))
def test_damaged_hdf5(tmp_path, begin):
    file = tmp_path / "bad.hdf5"
    write_hdf5(file, flat_episodes())
    content = file.read_bytes()
    file.write_bytes(content[:begin] + bytes([7] * 400) + content[begin + 400 :])
    try:
        load_episodes(f"hdf5:{file}")  # numbers may have become other numbers
    except InvalidInput as error:
        assert str(error).startswith(f"hdf5:{file}")


def test_a_group_in_the_place_of_an_hdf5_array(tmp_path):
    write_hdf5(tmp_path / "bad.hdf5", flat_episodes(), observations=None)
    with h5py.File(tmp_path / "bad.hdf5", "a") as file:
        file["observations/left"] = np.zeros(15)
    with pytest.raises(InvalidInput, match="observations must be an array; received a group"):
        load_episodes(f"hdf5:{tmp_path}/bad.hdf5")


def test_hdf5_with_columns_and_booleans(tmp_path):
    """Booleans that were seen are 0 and 1: a policy that is exported is asked with numbers."""
    played = flat_episodes()
    seen = np.arange(15 * 3).reshape(15, 3) % 2 == 0
    rewards = np.arange(15.0)[:, None]
    write_hdf5(tmp_path / "own.hdf5", played, False, observations=seen, rewards=rewards)
    episodes = load_episodes(f"hdf5:{tmp_path}/own.hdf5").episodes
    assert episodes[0].observations.dtype == np.uint8
    np.testing.assert_array_equal(episodes[0].observations[:4], seen[:4])
    assert [e.rewards.tolist() for e in episodes] == [[0, 1, 2, 3], [4], list(range(5, 12))]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("walker2d", "a source is minari:ID"),
        ("d4rl:walker2d", "a source is minari:ID"),
        ("hdf5:", "a source is minari:ID"),
        ("hdf5:/nowhere.hdf5", "cannot be read as a file of D4RL"),
    ],
)
def test_unknown_sources(source, message):
    with pytest.raises(ValueError, match=message):
        load_episodes(source)


def test_a_text_file_is_no_hdf5(tmp_path):
    (tmp_path / "text.hdf5").write_text("no such thing")
    with pytest.raises(ValueError, match="cannot be read as a file of D4RL"):
        load_episodes(f"hdf5:{tmp_path}/text.hdf5")


def test_folders_without_data(minari_folder):
    with pytest.raises(ValueError, match="MINARI_DATASETS_PATH"):
        load_episodes(f"minari:{minari_folder}")
    with pytest.raises(ValueError, match="TFDS_DATA_DIR"):
        load_episodes(f"tfds:{minari_folder}")


@pytest.mark.parametrize(
    ("source", "package"),
    [
        ("minari:any/data-v0", "minari"),
        ("tfds:any", "tensorflow_datasets"),
        ("hdf5:any.hdf5", "h5py"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(source, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidInput, match=rf"needs {package}: pip install '\.\[data\]'; rec"):
        load_episodes(source)


def test_what_downloads_from_hugging_face_is_named_too(minari_folder, monkeypatch):
    """Minari asks for it only when it downloads."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delitem(sys.modules, "minari.storage.remotes.huggingface", raising=False)
    with pytest.raises(InvalidInput, match=r"pip install '\.\[data\]'; received .*huggingface_hub"):
        load_episodes("minari:mujoco/walker2d/medium-v0")
