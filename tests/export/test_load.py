"""Loading of exports, and the error of a damaged export."""

import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_policy, load_policy
from rrl_tf.export.writer import write_version

pytestmark = pytest.mark.tf_only

RAW = np.ones((3, 4), "float32")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    model = keras.Sequential([keras.layers.Dense(2)])
    details = {"environment": "walk"}
    return export_policy(
        tmp_path_factory.mktemp("load"), model, lambda x: x, (4,), "float32", details=details
    )


@pytest.fixture
def folder(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "1")


def test_a_run_folder_means_its_newest_export(exported, tmp_path):
    for version in ("1", "2"):
        shutil.copytree(exported, tmp_path / "export" / version)
    assert load_policy(tmp_path).directory == tmp_path / "export" / "2"


def test_repr_shows_environment_and_signatures(exported):
    policy = load_policy(exported)
    signatures = "['act', 'serving_default']"
    assert repr(policy) == f"Policy('{exported}', environment='walk', signatures={signatures})"


def document(folder):
    return folder / "assets.extra" / "policy.json"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"3"],
)
def test_a_damaged_policy_json_raises(folder, content):
    document(folder).write_bytes(content)
    with pytest.raises(InvalidInput, match=r"received '.*/1', which cannot be loaded"):
        load_policy(folder)


def test_outputs_of_unknown_shape_load(tmp_path):
    model = keras.Sequential([keras.layers.Dense(2)])
    raw = tf.TensorSpec((None, 4), "float32", name="raw")
    less = tf.compat.v1.placeholder_with_default

    def answer(raw):
        output = model(raw)
        return {"one": less(output, (None, None)), "other": less(output, None)}

    endpoints = dict.fromkeys(("say", "serving_default"), (answer, [raw]))
    policy = load_policy(write_version(tmp_path, model, endpoints))
    assert [output.shape for output in policy.predict({"raw": RAW}, "say").values()] == [(3, 2)] * 2


DAMAGES = {
    "cut": (lambda content: content[: len(content) // 2], "bad magic number|bytes than requested"),
    "empty": (lambda content: b"", "too short|bytes than requested"),
    "flipped": (lambda content: bytes(byte ^ 255 for byte in content), "bad magic|hecksum"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["variables.index", "variables.data-00000-of-00001"])
def test_damaged_weights_raise(folder, file, damage):
    path = folder / "variables" / file
    change, why = DAMAGES[damage]
    path.write_bytes(change(path.read_bytes()))
    message = rf"received '.*/1', which cannot be loaded \(.*({why})"
    with pytest.raises(InvalidInput, match=message) as error:
        load_policy(folder)
    assert "\n" not in str(error.value)


def test_a_damaged_graph_raises(folder):
    (folder / "saved_model.pb").write_bytes(b"half a file")
    with pytest.raises(InvalidInput, match=r"received '.*/1', which cannot be loaded") as error:
        load_policy(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", [None, 3, b"doorkey-5x5", "x" * 5000, "a\0b"])
def test_an_invalid_path_raises(wrong):
    with pytest.raises(InvalidInput, match=r"`directory` must be a path; received .*") as error:
        load_policy(wrong)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_observations_must_be_finite(exported, wrong):
    raw = RAW.copy()
    raw[1, 2] = wrong
    policy = load_policy(exported)
    for ask in (
        policy.act,
        lambda raw: policy.act(raw.tolist()),
        lambda raw: policy.predict({"observation": raw}),
    ):
        with pytest.raises(InvalidInput, match=f"observation must be finite .*received {wrong}"):
            ask(raw)


def test_a_missing_policy_json_raises(folder):
    shutil.rmtree(folder / "assets.extra")
    with pytest.raises(InvalidInput, match="No such file"):
        load_policy(folder)
