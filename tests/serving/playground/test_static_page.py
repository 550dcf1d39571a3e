"""The playground without a server: files, errors, and damaged weights."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load
from static_pages import (
    BLOCK,
    make_classifier,
    make_transformer,
    page_with_modules,
    play_in_page,
)

import rrl_tf.export
from rrl_tf.envs import enumerate_starts
from rrl_tf.errors import InvalidInput
from rrl_tf.models import (
    DecisionTransformer,
    RecurrentQNetwork,
    RelationalClassifier,
    RelationalQNetwork,
)
from rrl_tf.pretrained import FOLDER, pretrained_name
from serving.playground.static_page import page_files, write_page

pytestmark = pytest.mark.tf_only
WRITTEN = {
    "doorkey-5x5": RelationalQNetwork,
    "doorkey-6x6": RecurrentQNetwork,
    "doorkey-8x8": RecurrentQNetwork,
    "doorkey-16x16": RecurrentQNetwork,
    "dt-doorkey": DecisionTransformer,
    "mnist-relational": RelationalClassifier,
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return page_with_modules(tmp_path_factory.mktemp("static"), [*WRITTEN])


def test_the_page_has_the_served_files_and_every_weight_once(page):
    files = {path.name: path.read_bytes() for path in page.iterdir()}
    assert page_files([*WRITTEN]).items() <= files.items()
    models = json.loads(files["config.json"])["models"]
    assert [model["name"] for model in models] == [*WRITTEN]
    held = {model["name"]: load(files[model["network"]["weights"]]) for model in models}
    for name, network in WRITTEN.items():
        parameters = network.from_preset(name).count_params()
        assert sum(array.size for array in held[name].values()) == parameters
        if name != "dt-doorkey":
            assert {"convolution_1/kernel", "relations/block_2/dense_1/bias"} <= {*held[name]}
    assert sum(map(len, files.values())) < 5e6


def test_the_page_does_not_depend_on_the_order_of_outputs(monkeypatch):
    load_policy = rrl_tf.export.load_policy

    def other_way_round(version):
        policy = load_policy(version)
        predict = policy.predict
        backwards = lambda *asked: dict(reversed(predict(*asked).items()))  # noqa: E731
        monkeypatch.setattr(policy, "predict", backwards)
        return policy

    page = page_files(["dt-doorkey"])
    monkeypatch.setattr("rrl_tf.export.load_policy", other_way_round)
    assert page_files(["dt-doorkey"]) == page


def test_about_adds_a_link():
    link = b'<a href="../playground/">About this page</a>'
    for name in ("index.html", "digits.html"):
        assert link in page_files(["doorkey-5x5"], about="../playground/")[name]
        assert b"About this page" not in page_files(["doorkey-5x5"])[name]


def make_preset(folder, encoder_arguments=None, view=(7, 7, 24), **arguments):
    settled = {"readout_cell": (3, 6), "unseen_feature": 0, **(encoder_arguments or {})}
    arguments = {"core_arguments": {"units": 4}, "encoder_arguments": settled, **arguments}
    network = RecurrentQNetwork.from_preset("lstm", **arguments)
    network.build({"observation": (None, *view)})
    network.save_to_preset(folder)
    return folder


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"core": "none"}, "'core': 'none'"),
        ({"dueling": False}, "'dueling': False"),
        ({"hidden_activation": "leaky_relu"}, "'hidden_activation': 'leaky_relu'"),
        ({"encoder_arguments": {"share_weights": True}}, "'share_weights': True"),
        ({"encoder_arguments": {"block": {**BLOCK, "norm": "joint"}}}, "'norm': 'joint'"),
        ({"encoder_arguments": {"block": {**BLOCK, "residual": False}}}, "'residual': False"),
        (
            {"encoder_arguments": {"readout": "flatten", "readout_cell": None}},
            "'readout': 'flatten'",
        ),
        ({"encoder_arguments": {"readout_cell": (0, 0)}}, "'readout_cell': .0, 0."),
        ({"dtype": "mixed_bfloat16"}, "'dtype': 'mixed_bfloat16'"),
        ({"view": (7, 7, 20)}, "'input_shape': .7, 7, 20."),
        ({"view": (9, 9, 24)}, "'input_shape': .9, 9, 24."),
    ],
)
def test_unsupported_settings_of_q_networks_raise(arguments, told, tmp_path):
    preset = make_preset(tmp_path / "preset", **arguments)
    with pytest.raises(InvalidInput, match=f"the page computes .*; received 'preset'.*{told}"):
        write_page(tmp_path / "page", ["doorkey-5x5", preset])
    assert [path.name for path in tmp_path.iterdir()] == ["preset"]


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_weights_must_be_finite(number, tmp_path):
    network = RelationalQNetwork.from_preset("doorkey-5x5")
    bias = network.get_layer("head").bias
    bias.assign(np.full(bias.shape, number))
    preset = network.save_to_preset(tmp_path / "preset")
    with pytest.raises(InvalidInput, match=r"finite; received 'preset', in which \['head/bias'\]"):
        page_files([preset])


@pytest.mark.parametrize(
    ("make", "arguments", "told"),
    [
        (make_transformer, {"norm": "post"}, "'norm': 'post'"),
        (make_transformer, {"activation": "relu"}, "'activation': 'relu'"),
        (make_transformer, {"epsilon": 1e-3}, "'epsilon': 0.001"),
        (make_classifier, {"coordinates": None}, "'coordinates': None"),
        (make_classifier, {"conv_padding": "valid"}, "'conv_padding': 'valid'"),
        (make_classifier, {"block": {**BLOCK, "qkv_norm": "joint"}}, "'qkv_norm': 'joint'"),
    ],
)
def test_unsupported_settings_of_other_networks_raise(make, arguments, told, tmp_path):
    preset = make(**arguments).save_to_preset(tmp_path / "preset")
    with pytest.raises(InvalidInput, match=f"the page computes .*; received 'preset'.*{told}"):
        page_files([preset])


def test_unsupported_networks_and_existing_folders_raise(tmp_path):
    with pytest.raises(InvalidInput, match="'nth-farthest', a MemorySequenceClassifier"):
        page_files(["nth-farthest"])
    with pytest.raises(InvalidInput, match=r"'memory-s17', with .*'encoder': 'dense'"):
        page_files(["memory-s17"])
    (tmp_path / "page").mkdir()
    with pytest.raises(InvalidInput, match="`folder` must not exist; received"):
        write_page(tmp_path / "page", ["doorkey-5x5"])


@pytest.mark.parametrize("presets", [[], "doorkey-5x5", pathlib.Path("doorkey-5x5"), None])
def test_a_page_needs_a_list_of_presets(presets, tmp_path):
    told = re.escape(f"a list of at least one pretrained model; received {presets!r}")
    with pytest.raises(InvalidInput, match=told):
        write_page(tmp_path / "page", presets)
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize("place", ["file/page", "x" * 300, "a\0b", None, b"page"])
def test_a_page_needs_a_path(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="`folder` must be a path; received "):
        write_page(place, ["doorkey-5x5"])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_page_does_not_replace_a_link(tmp_path):
    (tmp_path / "page").symlink_to("nowhere")
    with pytest.raises(InvalidInput, match="`folder` must not exist; received"):
        write_page(tmp_path / "page", ["doorkey-5x5"])
    assert len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize("preset", [None, 3, b"doorkey-5x5", "x" * 5000, "a\0b"])
def test_a_preset_is_a_name_or_a_path(preset):
    with pytest.raises(InvalidInput, match="`preset` must be a path; received "):
        page_files([preset])


@pytest.mark.parametrize("presets", [["a/mine", "b/mine"], ["doorkey-5x5", "doorkey-5x5"]])
def test_two_presets_with_one_name_raise(presets):
    with pytest.raises(
        InvalidInput, match=r"must have different names; received \['(\S+)', '\1'\]"
    ):
        page_files(presets)


@pytest.fixture
def oddly_named(tmp_path):
    """A preset whose folder has a name with special characters of URLs."""
    return shutil.copytree(FOLDER / "doorkey-5x5", tmp_path / "50% of #1?")


def test_a_model_has_the_name_of_its_preset(oddly_named, monkeypatch):
    snapshot = shutil.copytree(oddly_named, oddly_named.with_name("0123abc"))
    monkeypatch.setattr("rrl_tf.pretrained.snapshot", lambda *_: snapshot)
    monkeypatch.chdir(oddly_named)
    for preset, name in {"hf://owner/ours@v1": "ours", ".": oddly_named.name}.items():
        files = page_files([preset])
        (model,) = json.loads(files["config.json"])["models"]
        assert model["name"] == name
        assert model["network"]["weights"] == f"{name}.safetensors" in files
    assert pretrained_name("policy/..") == oddly_named.name


def test_weights_with_special_characters_in_their_name_load(oddly_named, tmp_path):
    page = page_with_modules(tmp_path, [oddly_named])
    done, _ = play_in_page(page, oddly_named.name, enumerate_starts(5)[:1], 40, tmp_path)
    assert done.returncode == 0, done.stderr


def flipped(file, place):
    content = bytearray(file)
    content[place] ^= 0xFF
    return bytes(content)


DAMAGES = {
    "empty": lambda file: b"",
    "truncated": lambda file: file[:-4],
    "another page": lambda file: b"<!doctype html>".ljust(len(file)),
    "the length": lambda file: flipped(file, 1),
    "the header": lambda file: flipped(file, 8),
    "another layer": lambda file: file.replace(b"kernel", b"kernal", 1),
    "a layer that need not be": lambda file: file.replace(b"hidden_1", b"hidden_0"),
    "a weight": lambda file: flipped(file, -2),
    "no number": lambda file: file[:-4] + np.float32("nan").tobytes(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_weights_are_reported(damage, page, tmp_path):
    name = "doorkey-5x5"
    copied = shutil.copytree(page, tmp_path / "page")
    weights = copied / f"{name}.safetensors"
    weights.write_bytes(DAMAGES[damage](weights.read_bytes()))
    done, _ = play_in_page(copied, name, enumerate_starts(5)[:1], 40, tmp_path)
    assert done.returncode != 0
    assert f"The weights of {name} are damaged: reload the page." in done.stderr
