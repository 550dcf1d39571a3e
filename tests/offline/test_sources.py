"""Local data sets of every format: loaded values, and errors for damaged or missing files."""

import json
import pathlib
import sys

import gymnasium
import h5py
import numpy as np
import pytest
from made_up_episodes import made_up, write_minari, write_rlds

from rrl_tf.errors import InvalidInput
from rrl_tf.offline import Episode, load_episodes
from rrl_tf.offline.sources import _rlds_data

pytestmark = [
    pytest.mark.tf_only,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # from the packages that write the data
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def minari_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def record(env, dataset_id, episodes=3, steps=6):
    """Record random actions with Minari and return the episodes."""
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


@pytest.mark.parametrize("write", [write_minari, write_rlds])
def test_every_format_returns_the_written_episodes(write, minari_folder):
    data = load_episodes(write(minari_folder, made_up(episodes=2, steps=5)))
    played = {e["rewards"].tobytes(): e for e in made_up(episodes=2, steps=5)}
    assert len(data.episodes) == 2
    for episode in data.episodes:  # TensorFlow Datasets shuffles them
        expected = played[episode.rewards.tobytes()]
        np.testing.assert_array_equal(episode.observations, expected["observations"])
        np.testing.assert_array_equal(episode.actions, expected["actions"])
        assert episode.terminated == expected["terminated"]


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_minari_by_id_and_by_folder(name, minari_folder, monkeypatch):
    played = record(gymnasium.make(name), "tests/small-v0")
    monkeypatch.setenv("HOME", str(minari_folder))
    for source in ("tests/small-v0", f"{minari_folder}/tests/small-v0", "~/tests/small-v0"):
        data = load_episodes(f"minari:{source}")
        check(data, played)
        assert data.environment == name
        assert data.discrete == (name == "CartPole-v1")
        assert data.make_env().action_space == data.action_space
        assert data.reference_returns is None


@pytest.mark.parametrize("name", ["nope", "no/where", "a b-v0", "n" * 5000, "./cart-v0", "/no-v0"])
def test_a_name_that_is_neither_a_folder_nor_a_minari_id_is_an_error(minari_folder, name):
    with pytest.raises(InvalidInput, match=r"must be a folder that exists, or an ID NAMESPACE/"):
        load_episodes(f"minari:{name}")


def test_a_mistyped_folder_is_not_downloaded(minari_folder, monkeypatch):
    from minari.storage import hosting

    def download(name, *_, **__):
        raise RuntimeError(f"download of {name}")

    monkeypatch.setattr(hosting, "download_dataset", download)
    monkeypatch.chdir(minari_folder)
    write_minari(minari_folder / "runs/datasets", made_up(episodes=2, steps=5))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(minari_folder / "elsewhere"))
    with pytest.raises(InvalidInput, match="must be a folder that exists"):
        load_episodes("minari:runs/datasets/benchmarks/maad-up-v0")
    with pytest.raises(InvalidInput, match="Use minari:runs/datasets/benchmarks/made-up-v0"):
        load_episodes("minari:benchmarks/made-up-v0")
    with pytest.raises(InvalidInput, match="download of mujoco/walker2d/medium-v0"):
        load_episodes("minari:mujoco/walker2d/medium-v0")


def minari_source(folder, storage, extra, dtype="float32"):
    """Write two episodes of three steps and 3 + `extra` observations in a Minari format."""
    import minari

    end = np.arange(3) == 2
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=i,
            observations=np.arange(3.0 + extra, dtype="float32")[:, None],
            actions=np.array([[0, 2], [1, 1], [2, i]], dtype),
            rewards=np.arange(1, 4),
            terminations=end & (i == 1),
            truncations=end & (i == 0),
        )
        for i in range(2)
    ]
    minari.create_dataset_from_buffers(
        "tests/small-v0",
        buffers,
        observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (1,), "float32"),
        action_space=gymnasium.spaces.Box(0, 4, (2,), dtype),
        data_format=storage,
    )
    return f"minari:{folder}/tests/small-v0"


@pytest.mark.parametrize("storage", ["hdf5", "arrow", "parquet"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_every_minari_format_returns_all_steps(storage, dtype, minari_folder):
    data = load_episodes(minari_source(minari_folder, storage, extra=1, dtype=dtype))
    for i, episode in enumerate(data.episodes):
        assert episode.observations[:, 0].tolist() == [0, 1, 2, 3]
        assert episode.actions.tolist() == [[0, 2], [1, 1], [2, i]]
        assert episode.actions.dtype == "float32"
        assert episode.rewards.tolist() == [1, 2, 3]
        assert (episode.terminated, episode.truncated) == (i == 1, i == 0)
    assert data.action_space.dtype == dtype


@pytest.mark.parametrize("storage", ["hdf5", "arrow", "parquet"])
@pytest.mark.parametrize("extra", [0, 2])
def test_minari_data_without_exactly_one_final_observation_is_an_error(
    storage, extra, minari_folder
):
    source = minari_source(minari_folder, storage, extra)
    message = f"an episode of 3 recorded steps must have 4 observations, .* received {3 + extra}"
    with pytest.raises(InvalidInput, match=f"{source}, episode 0: {message}"):
        load_episodes(source)


def remove(name):
    def change(folder):
        with h5py.File(folder / "main_data.hdf5", "a") as file:
            del file[name]

    return change


def put(name, values):
    def change(folder):
        remove(name)(folder)
        with h5py.File(folder / "main_data.hdf5", "a") as file:
            file[name] = values

    return change


def count_more(folder):
    metadata = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").write_text(json.dumps({**metadata, "total_episodes": 5}))


def truncate(folder):
    content = (folder / "main_data.hdf5").read_bytes()
    (folder / "main_data.hdf5").write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove("episode_1"), "episode 1 of 2 cannot be read.*episode_1"),
        (remove("episode_1/rewards"), "episode 1 of 2 cannot be read.*rewards"),
        (remove("episode_0/terminations"), "episode 0 of 2 cannot be read.*terminat"),
        (count_more, "episode 2 of 5 cannot be read.*episode_2"),
        (truncate, "episode 0 of 2 cannot be read.*truncated file"),
        (put("episode_1/rewards", ["1.0"] * 5), "episode 1: rewards must be numbers .*object"),
        (
            put("episode_1/actions", np.full((5, 6), -7.0)),
            r"episode 1: actions must be in Box\(.*\); received -7.0 in dimension 0 of step",
        ),
    ],
)
def test_damaged_minari_data_is_an_error(change, message, minari_folder):
    source = write_minari(minari_folder, made_up(episodes=2, steps=5))
    change(pathlib.Path(source.removeprefix("minari:")) / "data")
    with pytest.raises(InvalidInput, match=f"^{source}, {message}"):
        load_episodes(source)


def test_rlds_returns_the_written_episodes(tmp_path):
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


def rlds_source(folder, episodes, **changes):
    """Write an RLDS data set with changed features."""
    import tensorflow_datasets as tfds

    vector = tfds.features.Tensor(shape=(2,), dtype=np.float32)
    steps = {"observation": vector, "action": vector, "reward": np.float32}
    steps |= {"is_last": np.bool_, "is_terminal": np.bool_, **changes}
    steps = {name: feature for name, feature in steps.items() if feature is not None}

    class Odd(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = tfds.features.FeaturesDict({"steps": tfds.features.Dataset(steps)})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            yield from ((i, {"steps": steps}) for i, steps in enumerate(episodes))

    builder = Odd(data_dir=folder)
    builder.download_and_prepare()
    return f"tfds:{builder.data_dir}"


def odd_features():
    import tensorflow_datasets as tfds

    both = {"a": np.float32, "b": np.float32}
    return {
        "dict": ({"observation": both}, "observation must be .* FeaturesDict"),
        "image": ({"observation": tfds.features.Image()}, r"images, .* received Image\("),
        "text": ({"reward": tfds.features.Text()}, r"reward must be .* received Text\("),
        "nothing": ({"observation": both, "is_last": None}, r"steps without \['is_last'\]"),
    }


@pytest.mark.parametrize("case", ["dict", "image", "text", "nothing"])
def test_rlds_without_numbers_is_an_error(tmp_path, case):
    changes, message = odd_features()[case]
    source = rlds_source(tmp_path, [[]], **changes)
    with pytest.raises(InvalidInput, match=f"{source}.* {message}"):
        load_episodes(source)


def test_rlds_of_classes_without_a_last_observation(tmp_path):
    import tensorflow_datasets as tfds

    def steps(count):
        return [
            {
                "observation": np.full(2, i, "float32"),
                "action": i % 2,
                "reward": i,
                "is_last": False,
                "is_terminal": True,
            }
            for i in range(count)
        ]

    action = tfds.features.ClassLabel(num_classes=2)
    whole = load_episodes(rlds_source(tmp_path / "whole", [steps(3)], action=action))
    assert whole.action_space == gymnasium.spaces.Discrete(2)
    assert whole.episodes[0].observations[:, 0].tolist() == [0, 1, 2, 2]
    source = rlds_source(tmp_path / "empty", [steps(0)], action=action)
    with pytest.raises(InvalidInput, match=f"{source}, episode 0: .* at least one step; rec.* non"):
        load_episodes(source)


def test_rlds_of_d4rl_has_its_environment_and_scores(tmp_path):
    episodes = made_up(episodes=2, steps=5)
    data = load_episodes(write_rlds(tmp_path, episodes, "d4rl_mujoco_walker2d"))
    assert data.environment == "Walker2d-v4"
    assert data.score(4592.3) == pytest.approx(100) and data.score(1.629008) == pytest.approx(0)


def test_rlds_of_booleans_has_observations_of_numbers(tmp_path):
    import tensorflow_datasets as tfds

    step = {"action": np.zeros(2, "float32"), "reward": 1.0, "is_terminal": True}
    steps = [{**step, "observation": np.array([i, 0], bool), "is_last": i == 1} for i in (0, 1)]
    kind = tfds.features.Tensor(shape=(2,), dtype=np.bool_)
    (episode,) = load_episodes(rlds_source(tmp_path, [steps], observation=kind)).episodes
    assert episode.observations.dtype == np.uint8  # exported signatures take numbers
    assert episode.observations.tolist() == [[0, 0], [1, 0]]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.full((15, 2), 3.0), r"in Box\(-1.0, 1.0.* received 3.0 in dimension 0"),
        (np.full(15, -1), r"in Discrete\(1\); received -1 in step 0"),
        (np.full(15, 2**40), "received 1099511627776 in step 0"),
        (np.full(15, 2**63, "uint64"), "received 9223372036854775808 in step 0"),
        (np.ones((15, 1), int), r"Discrete\(2\), \(T,\) integers; .* \(15, 1\)"),
        (np.zeros(15), r"\(T, A\) floats; .* float64 and the shape \(15,\)"),
    ],
)
def test_actions_outside_the_implied_space_are_an_error(actions, message):
    episode = Episode(np.zeros((16, 3)), actions, np.zeros(15), True, False)
    with pytest.raises(InvalidInput, match=message):
        _rlds_data("tfds:mine", "mine", [episode])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("walker2d", r"`source` \(option --data\) must be minari:ID"),
        ("tests", r"received 'tests'. Use minari:tests\."),
        ("me/walker2d-v0", r"received 'me/walker2d-v0'. Use minari:me/walker2d-v0\."),
        ("d4rl:walker2d", r"`source` \(option --data\) must be minari:ID"),
        ("tfds:", r"`source` \(option --data\) must be minari:ID"),
        ("minari:{folder}", "cannot be read .*`minari list local`"),
        ("tfds:{folder}", "cannot be read .*TFDS_DATA_DIR"),
    ],
)
def test_sources_without_data_are_errors(source, message, minari_folder):
    with pytest.raises(InvalidInput, match=message):
        load_episodes(source.format(folder=minari_folder))


@pytest.mark.parametrize(
    ("source", "package"),
    [("minari:any/data-v0", "minari"), ("tfds:any", "tensorflow_datasets")],
)
def test_a_missing_package_is_named_with_its_extra(source, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        InvalidInput, match=rf"needs the package {package}, .*pip install '\.\[data\]'"
    ):
        load_episodes(source)


def test_a_source_without_a_format_is_an_error_without_minari(monkeypatch):
    for name in ("minari", "minari.dataset.minari_dataset"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InvalidInput, match=r"received 'me/walker2d-v0'. Use minari:me/walker2d-v0"):
        load_episodes("me/walker2d-v0")


def test_a_missing_package_for_downloads_is_named_with_its_extra(minari_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delitem(sys.modules, "minari.storage.remotes.huggingface", raising=False)
    with pytest.raises(InvalidInput, match=r"pip install '\.\[data\]'.*huggingface_hub"):
        load_episodes("minari:mujoco/walker2d/medium-v0")
