"""Data sets that are damaged, or hold what cannot be read: one line says which, where and why."""

import json
import pathlib

import gymnasium
import h5py
import numpy as np
import pytest
from made_up_episodes import made_up, write_minari

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.sources import load_episodes

pytestmark = [
    pytest.mark.tf_only,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # the recorders' own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def rlds_source(folder, episodes, **changes):
    """An RLDS data set whose features are others than usual."""
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
        "a dict seen": ({"observation": both}, "observation must be .* FeaturesDict"),
        "a dict done": ({"action": both}, "action must be an array of numbers.* FeaturesDict"),
        "an image": ({"observation": tfds.features.Image()}, r"as images, .* received Image\("),
        "a text": ({"reward": tfds.features.Text()}, r"reward must be .* received Text\("),
        "nothing": ({"observation": both, "is_last": None}, r"steps lack \['is_last'\]"),
    }


@pytest.mark.parametrize("case", ["a dict seen", "a dict done", "an image", "a text", "nothing"])
def test_rlds_of_other_than_numbers(tmp_path, case):
    changes, message = odd_features()[case]
    source = rlds_source(tmp_path, [[]], **changes)
    with pytest.raises(InvalidInput, match=f"{source}.* {message}"):
        load_episodes(source)


def test_rlds_of_classes_and_an_episode_without_steps(tmp_path):
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


def overwrite(folder):
    with open(folder / "main_data.hdf5", "r+b") as file:
        file.seek(300)
        file.write(bytes([7] * 1200))


def cut_off(folder):
    content = (folder / "main_data.hdf5").read_bytes()
    (folder / "main_data.hdf5").write_bytes(content[: len(content) // 2])


DAMAGES = {
    "an episode": (remove("episode_1"), "episode 1 of 2 is damaged: .*episode_1"),
    "rewards": (remove("episode_1/rewards"), "episode 1 of 2 is damaged: .*rewards"),
    "actions": (remove("episode_1/actions"), "episode 1 of 2 is damaged: .*actions"),
    "terminations": (remove("episode_0/terminations"), "episode 0 of 2 is damaged: .*terminat"),
    "more episodes": (count_more, "episode 2 of 5 is damaged: .*episode_2"),
    "other bytes": (overwrite, "episode 0 of 2 is damaged"),
    "half a file": (cut_off, "episode 0 of 2 is damaged: .*truncated file"),
    "texts": (put("episode_1/rewards", ["1.0"] * 5), "episode 1: rewards must be numbers .*object"),
    "action": (
        put("episode_1/actions", np.full((5, 6), -7.0)),
        r"episode 1: actions must be of the space Box\(.*\); received -7.0 in dimension 0 of step",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_minari(damage, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    source = write_minari(tmp_path, made_up(episodes=2, steps=5))
    change, told = DAMAGES[damage]
    change(pathlib.Path(source.removeprefix("minari:")) / "data")
    with pytest.raises(InvalidInput, match=f"^{source}, {told}"):
        load_episodes(source)


@pytest.mark.parametrize("name", ["nope", "no/where", "a b-v0", "n" * 5000])
def test_what_is_no_id_of_minari(name):
    told = f"^minari:{name}: there is no such folder, and an id is NAMESPACE/NAME-vN, as mujoco/wal"
    with pytest.raises(InvalidInput, match=told):
        load_episodes(f"minari:{name}")
