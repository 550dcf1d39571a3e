"""What is loaded is whole, or told to be damaged in one sentence."""

import copy
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

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
        tmp_path_factory.mktemp("load"), model, lambda x: x, (4,), "float32", policy=details
    )


@pytest.fixture
def folder(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "1")


def test_a_policy_shows_what_it_is(exported):
    policy = load_policy(exported)
    signatures = "['act', 'serving_default']"
    assert repr(policy) == f"Policy('{exported}', environment='walk', signatures={signatures})"


def document(folder):
    return folder / "assets.extra" / "policy.json"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"3", b"[]", b"{}", b'{"signatures": 3}', b'{"signatures": {"act": {}}}'],
)
def test_a_damaged_description_is_one_clear_error(folder, content):
    document(folder).write_bytes(content)
    with pytest.raises(InvalidInput, match=r"received '.*/1', whose .*policy\.json cannot be read"):
        load_policy(folder)


def places(value, path=()):
    """The path to everything in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(child, (*path, key))


junk = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", [], {}])


@given(st.data())
@settings(max_examples=40)
def test_any_other_description_is_refused_or_answers_as_before(exported, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("load") / "1"
    shutil.copytree(exported, folder)
    found = json.loads(document(folder).read_text())
    changed = copy.deepcopy(found)
    *way, last = data.draw(st.sampled_from([p for p in places(found["signatures"]) if p]))
    place = changed["signatures"]
    for key in way:
        place = place[key]
    if data.draw(st.booleans()):
        del place[last]
    else:
        place[last] = data.draw(junk)
    document(folder).write_text(json.dumps(changed))
    try:
        policy = load_policy(folder)
    except InvalidInput as error:
        assert str(folder) in str(error)
        return
    np.testing.assert_array_equal(policy.act(RAW), load_policy(exported).act(RAW))


def test_a_description_of_another_outcome_is_refused(folder):
    """Only what a graph takes was compared."""
    found = json.loads(document(folder).read_text())
    outputs = found["signatures"]["act"]["outputs"]
    for other in (
        {**outputs, "invented": {"dtype": "float32", "shape": [None, 2]}},
        {**outputs, "q_values": {"dtype": "float32", "shape": [None, 3]}},
        {**outputs, "q_values": {"dtype": "int32", "shape": [None, 2]}},
        {"action": outputs["action"]},
    ):
        found["signatures"]["act"]["outputs"] = other
        document(folder).write_text(json.dumps(found))
        with pytest.raises(InvalidInput, match=r"policy\.json of the signatures of its graph"):
            load_policy(folder)


def test_a_graph_may_know_less_of_its_outputs(tmp_path):
    """Here, of one how many numbers it has, and of the other not even how many axes."""
    model = keras.Sequential([keras.layers.Dense(2)])
    raw = tf.TensorSpec((None, 4), "float32", name="raw")
    less = tf.compat.v1.placeholder_with_default

    def answer(raw):
        said = model(raw)
        return {"one": less(said, (None, None)), "other": less(said, None)}

    endpoints = dict.fromkeys(("say", "serving_default"), (answer, [raw]))
    policy = load_policy(write_version(tmp_path, model, endpoints))
    assert [said.shape for said in policy.predict({"raw": RAW}, "say").values()] == [(3, 2)] * 2


DAMAGES = {
    "cut": (lambda content: content[: len(content) // 2], "bad magic number|bytes than requested"),
    "empty": (lambda content: b"", "too short|bytes than requested"),
    "flipped": (lambda content: bytes(byte ^ 255 for byte in content), "bad magic|hecksum"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["variables.index", "variables.data-00000-of-00001"])
def test_damaged_weights_are_one_clear_error(folder, file, damage):
    """All that was told of it was that an execution had failed."""
    path = folder / "variables" / file
    change, why = DAMAGES[damage]
    path.write_bytes(change(path.read_bytes()))
    told = rf"received '.*/1', whose weights in variables/ cannot be loaded \(.*({why})"
    with pytest.raises(InvalidInput, match=told) as error:
        load_policy(folder)
    assert "\n" not in str(error.value)


def test_a_damaged_graph_is_one_clear_error(folder):
    (folder / "saved_model.pb").write_bytes(b"half a file")
    with pytest.raises(
        InvalidInput, match=r"received '.*/1', whose graph cannot be loaded"
    ) as told:
        load_policy(folder)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("wrong", [None, 3, b"doorkey-5x5", "x" * 5000, "a\0b"])
def test_what_is_no_path_is_one_clear_error(wrong):
    """Each was an error of its own, of Python's or of the system's."""
    with pytest.raises(InvalidInput, match=r"`directory` must be a path; received .*") as told:
        load_policy(wrong)
    assert len(str(told.value)) < 300


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_must_be_finite(exported, wrong):
    """NaN gave an action, as if it had been learned."""
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


def test_a_graph_without_a_description_is_told(folder):
    shutil.rmtree(folder / "assets.extra")
    with pytest.raises(InvalidInput, match="FileNotFoundError"):
        load_policy(folder)
