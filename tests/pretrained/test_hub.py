"""Pretrained models on the Hugging Face Hub."""

import fnmatch
import json
import pathlib
import shutil
import sys

import numpy as np
import pytest

import rrl_tf
from rrl_tf.errors import InvalidInput
from rrl_tf.models import MLPClassifier, RelationalQNetwork
from rrl_tf.pretrained import FOLDER, pretrained_folder, pretrained_name
from serving.server.flags import Flags
from serving.server.versions import _base_and_name

pytestmark = pytest.mark.tf_only


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Return the repository `owner/name` of a fake Hub, the cache and the list of requests."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    repository, cache = tmp_path / "repository", tmp_path / "cache"
    shutil.copytree(FOLDER / "doorkey-5x5", repository)
    (repository / ".gitattributes").write_text("*.h5 filter=lfs")
    (repository / "optimizer.bin").write_bytes(b"large")
    requests = []

    def snapshot_download(name, revision=None, allow_patterns=None):
        requests.append((name, revision))
        if name != "owner/name":
            raise huggingface_hub.errors.LocalEntryNotFoundError("cannot be reached\nand more")
        for file in repository.rglob("*"):
            path = file.relative_to(repository)
            if any(fnmatch.fnmatch(str(path), pattern) for pattern in allow_patterns):
                (cache / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, cache / path)
        return str(cache)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return repository, cache, requests


def test_model_and_policy_come_from_the_hub(hub):
    _, cache, requests = hub
    model = RelationalQNetwork.from_preset("hf://owner/name")
    expected = RelationalQNetwork.from_preset("doorkey-5x5")
    for mine, theirs in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    policy = rrl_tf.load_policy("hf://owner/name@v1.0")
    observation = np.zeros((7, 7, 4), "uint8")
    assert policy.act(observation) == rrl_tf.load_policy("doorkey-5x5").act(observation)
    assert set(requests) == {("owner/name", None), ("owner/name", "v1.0")}
    held = {path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()}
    metadata = json.loads((FOLDER / "doorkey-5x5" / "metadata.json").read_text())
    assert held == {"metadata.json", *metadata["sha256"]}  # no other files


def test_hidden_files_of_git_are_ignored(hub):
    _, cache, _ = hub
    folder = pretrained_folder("hf://owner/name")
    (cache / ".gitattributes").write_text("*.h5 filter=lfs")
    assert pretrained_folder(folder) == folder
    (cache / "policy" / ".hidden").write_text("?")
    with pytest.raises(InvalidInput, match=r"damaged, missing or not listed: policy/\.hidden"):
        pretrained_folder(folder)


@pytest.mark.parametrize("load", [RelationalQNetwork.from_preset, rrl_tf.load_policy])
def test_other_downloaded_policies_are_errors(hub, load):
    _, cache, _ = hub
    cache.mkdir()
    (cache / "samples.mp4").write_bytes(b"a film")
    load("hf://owner/name")
    shutil.copytree(cache / "policy/1", cache / "policy/2")
    with pytest.raises(InvalidInput, match=r"damaged, missing or not listed: policy/2/"):
        load("hf://owner/name")


@pytest.mark.parametrize("load", [RelationalQNetwork.from_preset, rrl_tf.load_policy])
def test_errors_are_one_sentence(hub, load, monkeypatch):
    with pytest.raises(InvalidInput, match=r"be reach.*received 'hf://a/b' \(Local.*reached\)$"):
        load("hf://a/b")
    for address in ("hf://owner", "hf://owner/name@", "hf://owner/name/file", "hf://"):
        with pytest.raises(InvalidInput, match=r"must be hf://owner/name or .*; received 'hf://"):
            load(address)
    (hub[0] / "metadata.json").unlink()
    with pytest.raises(InvalidInput, match=r"save_to_preset wrote.*; received 'hf://owner/name'$"):
        load("hf://owner/name")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InvalidInput, match=r"pip install '\.\[hub\]'; received 'hf://"):
        load("hf://owner/name")


def test_unreachable_hub_is_an_error(tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InvalidInput, match=r"or cached; received 'hf://owner/name' \(Local"):
        rrl_tf.load_policy("hf://owner/name")


def test_model_is_served_under_its_name(hub):
    _, cache, _ = hub
    assert _base_and_name(Flags(preset="hf://owner/name@v1")) == (cache / "policy", "name")
    assert _base_and_name(Flags(preset="hf://owner/name", model_name="mine"))[1] == "mine"
    assert pretrained_name(pathlib.Path("presets/ours")) == "ours"


def test_saving_to_the_hub_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = MLPClassifier.from_preset("patch-mnist", hidden_units=(8,))
    model.build((None, 28, 28, 1))
    with pytest.raises(
        InvalidInput, match=r"hf upload .* copies it to the Hub; received 'hf://a/b'"
    ):
        model.save_to_preset("hf://a/b")
    assert not list(tmp_path.iterdir())
