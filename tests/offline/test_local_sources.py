"""Minari data that are not where a name says: told at once, without asking a server."""

import pathlib

import pytest
from made_up_episodes import made_up, write_minari
from minari.storage import hosting

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.sources import load_episodes

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # the recorder's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

RECORDINGS = pathlib.Path("runs/datasets")


@pytest.fixture(autouse=True)
def recorded(tmp_path, monkeypatch):
    """A recording `benchmarks/made-up-v0` where collect_dataset keeps them, below here."""

    def download(name, *_, **__):
        raise RuntimeError(f"the server was asked for {name}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MINARI_DATASETS_PATH", "")  # for monkeypatch to restore
    write_minari(tmp_path / RECORDINGS, made_up(episodes=2, steps=5))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "others"))
    monkeypatch.setattr(hosting, "download_dataset", download)


def refused(source):
    with pytest.raises(InvalidInput) as caught:
        load_episodes(source)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("runs/datasets/benchmarks/maad-up-v0", "runs/datasets/benchmarks holds made-up-v0"),
        ("runs/datasets/bench/made-up-v0", "runs/datasets holds benchmarks"),
        ("./runs/datasets/benchmarks/up-v0", "runs/datasets/benchmarks holds made-up-v0"),
        ("~/runs/datasets/benchmarks/up-v0", "runs/datasets/benchmarks holds made-up-v0"),
        ("runs/datasets/benchmarks/", None),  # a folder that is there, but of no recording
        ("runs/made-up-v0", "runs holds no recording"),
        ("run/datasets/benchmarks/made-up-v0", "the current folder, {here}, holds no recording"),
        ("/no/where-v0", "/ holds no recording"),
        ("../made-up-v0", "holds no recording"),
    ],
)
def test_a_folder_that_is_not_there_is_told_without_asking_a_server(name, told, tmp_path):
    error = refused(f"minari:{name}")
    assert "the server was asked" not in error
    if told:
        path = name.replace("~", str(tmp_path))
        assert error.startswith(f"minari:{name}: there is no folder {path!r}")
        assert told.format(here=tmp_path) in error
        assert ("minari download" in error) == name.startswith("run/")


def test_many_recordings_are_not_all_listed(tmp_path):
    for number in range(12):
        (tmp_path / RECORDINGS / f"me/try{number:02}-v0/data").mkdir(parents=True)
        (tmp_path / RECORDINGS / f"me/try{number:02}-v0/data/metadata.json").touch()
    error = refused("minari:runs/datasets/me/try-v0")
    assert "holds try00-v0, " in error and "try09-v0 and 2 more" in error and "try10" not in error


def test_a_recording_that_was_just_made_is_found_by_its_id():
    error = refused("minari:benchmarks/made-up-v0")
    assert "the server was asked" not in error
    assert "minari:runs/datasets/benchmarks/made-up-v0" in error
    assert len(load_episodes("minari:runs/datasets/benchmarks/made-up-v0").episodes) == 2


def test_a_path_from_home_is_read():
    data = load_episodes("minari:~/runs/datasets/benchmarks/made-up-v0")
    assert data.name == "minari:~/runs/datasets/benchmarks/made-up-v0"


@pytest.mark.parametrize("name", ["cart-v0", "me/cart-v0", "mujoco/walker2d/medium-v0"])
def test_other_ids_are_asked_for(name):
    assert f"the server was asked for {name}" in refused(f"minari:{name}")


def test_an_id_in_minaris_own_folder_is_no_path(tmp_path, monkeypatch):
    """Neither where it is the current one, nor by as many parts as anybody likes."""
    monkeypatch.chdir(tmp_path / RECORDINGS)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / RECORDINGS))
    assert "the server was asked" in refused("minari:benchmarks/other-v0")
    (tmp_path / RECORDINGS / "benchmarks").rename(tmp_path / RECORDINGS / "a")
    (tmp_path / RECORDINGS / "b/c/d").mkdir(parents=True)
    (tmp_path / RECORDINGS / "a").rename(tmp_path / RECORDINGS / "b/c/d/a")
    monkeypatch.chdir(tmp_path)
    assert len(load_episodes("minari:b/c/d/a/made-up-v0").episodes) == 2
