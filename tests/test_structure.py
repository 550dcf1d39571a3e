"""The house stays small: functions fit a screen, files a sitting, imports point one way."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FILES = [
    path
    for room in ("rrl_tf", "serving", "train_scripts", "benchmarks", "tests")
    for path in sorted((ROOT / room).rglob("*.py"))
]
LONGEST_FILE, LONGEST_FUNCTION = 400, 60

# Who may be imported by a room of rrl_tf, beside itself.
COMMON = {
    *("errors", "presets", "_arguments", "_atomic_dir", "_lazy", "_optional_packages"),
    *("_tf_logging", "_typing"),
}
ORDER = (
    *("layers", "models", "convert", "envs", "data", "export", "training", "agents", "offline"),
    "interpret",
)
ALLOWED = {room: {*ORDER[:place], "viz"} for place, room in enumerate(ORDER)}
ALLOWED["envs"] -= {"data", "convert", "models", "layers"}
ALLOWED["data"] -= {"envs", "convert", "models", "layers"}
ALLOWED["viz"] = set()


def name(path):
    return str(path.relative_to(ROOT))


def imported(path):
    """Modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_there_is_something_to_measure():
    assert len(FILES) > 150


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_and_functions_stay_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST_FILE
    long = {
        f"{node.name}, line {node.lineno}": node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    }
    assert not long


@pytest.mark.parametrize("path", [p for p in FILES if "rrl_tf" in p.parts], ids=name)
def test_imports_point_one_way(path):
    room = path.relative_to(ROOT / "rrl_tf").parts[0]
    for module in imported(path):
        top, *rest = module.split(".")
        assert top not in ("train_scripts", "serving", "benchmarks", "tests")
        if top == "rrl_tf" and rest and room in ALLOWED:
            assert rest[0] in {room, *ALLOWED[room], *COMMON}, module


@pytest.mark.parametrize("path", [p for p in FILES if "serving" in p.parts[-2:-1]], ids=name)
def test_the_server_does_not_train(path):
    if "tests" not in path.parts:
        assert not {module.split(".")[0] for module in imported(path)} & {"train_scripts"}
