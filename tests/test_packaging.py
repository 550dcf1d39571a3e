"""`pip install .` installs every file, the commands and only the packages that they need."""

import itertools
import pathlib
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

import rrl_tf

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("rrl_tf", "serving", "train_scripts")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def lines(text):
    """Return the requirements in a file without comments and blank lines."""
    bare = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [line for line in bare if line]


def test_requirements_equal_the_declared_extras():
    extras = [EXTRAS[name] for name in ("serving", "data", "atari", "popgym", "otel", "dev")]
    declared = [*PROJECT["dependencies"], *itertools.chain(*extras)]
    assert lines((ROOT / "requirements.txt").read_text()) == declared


def test_extra_all_holds_every_runtime_extra():
    (everything,) = EXTRAS["all"]
    named = everything.removeprefix("rrl_tf[").removesuffix("]").split(",")
    assert set(named) == EXTRAS.keys() - {"all", "dev"}


def test_runtime_needs_no_development_tool():
    tools = {name.partition(">")[0] for name in EXTRAS["dev"]}
    for extra in EXTRAS.keys() - {"dev"}:
        assert not tools & {name.partition(">")[0] for name in EXTRAS[extra]}
    assert not tools & {name.partition(">")[0] for name in PROJECT["dependencies"]}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy, because files of an earlier build would be packed as well."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    command += ["--quiet", "--disable-pip-version-check", "--wheel-dir", str(place), str(source)]
    subprocess.run(command, check=True)
    (file,) = place.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        yield archive


def test_wheel_holds_every_file_of_the_packages(wheel):
    ours = {
        path.relative_to(ROOT).as_posix()
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == ours
    assert {"rrl_tf/py.typed", "rrl_tf/data/shakespeare.txt"} <= packed
    assert "serving/deploy/docker-compose.yml" in packed


def test_wheel_names_version_commands_and_licence(wheel):
    info = f"rrl_tf-{rrl_tf.__version__}.dist-info"
    metadata = wheel.read(f"{info}/METADATA").decode()
    assert f"\nVersion: {rrl_tf.__version__}\n" in metadata
    assert "\nAuthor: rrl_tf contributors\n" in metadata
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
    commands = lines(wheel.read(f"{info}/entry_points.txt").decode())[1:]
    expected = {"rrl-train", "rrl-interpret", "rrl-serve", "rrl-bench", "rrl-export"}
    assert {line.split(" = ")[0] for line in commands} == expected
