"""The structure of the code: sizes, import cycles, and the direction of imports."""

import pytest
import structure
from code_blocks import ROOT

LONGEST_FUNCTION = 60
MOST_RESULT_FILES, LARGEST_DOCS = 150, 8e6

MODULES = structure.read_modules()
TESTS = structure.read_modules(("tests",))

# Packages of rrl_tf in import order: each may import only those before it.
ORDER = (
    *("layers", "models", "convert", "envs", "data", "export", "training", "agents", "offline"),
    "interpret",
)
ALLOWED = {package: {*ORDER[:place], "viz"} for place, package in enumerate(ORDER)}
ALLOWED["envs"] -= {"data", "convert", "models", "layers"}
ALLOWED["data"] -= {"envs", "convert", "models", "layers"}
ALLOWED["viz"] = set()
COMMON = {"errors", "pretrained"}
"""Modules that all packages of rrl_tf may import, in addition to those with an underscore."""


def test_there_are_no_import_cycles():
    assert structure.import_cycle(MODULES) == []


def test_import_cycle_is_found():
    names = ("rrl_tf.agents.a", "rrl_tf.agents.b", "rrl_tf.agents.c")

    def module(name, imports):
        made = structure.Module(ROOT / f"{name.replace('.', '/')}.py")
        made.__dict__["tree"] = structure.ast.parse(imports)
        return made

    hidden = "def f():\n    from rrl_tf.agents import c"
    modules = dict(
        zip(names, map(module, names, ("import rrl_tf.agents.b", hidden, "import numpy")))
    )
    assert structure.import_cycle(modules) == []
    modules[names[2]] = module(names[2], "if TYPE_CHECKING:\n    from rrl_tf.agents.a import x")
    assert set(structure.import_cycle(modules)) == set(names)


def test_statements_do_not_count_docstrings():
    made = structure.Module(ROOT / "a.py")
    made.__dict__["tree"] = structure.ast.parse(
        '"""Doc."""\nx = 1\ndef f():\n    """Doc."""\n    return 2'
    )
    assert made.statements == 3


def test_closure_follows_packages_and_top_level_imports():
    found = structure.closure("rrl_tf.viz.curves", MODULES)
    assert {"rrl_tf", "rrl_tf.viz", "rrl_tf.viz.curves", "rrl_tf.viz.style"} <= found
    assert not any(name.startswith("serving") for name in found)


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("rrl_tf.")])
def test_packages_import_in_one_direction(name):
    package = name.split(".")[1]
    for imported in MODULES[name].imports():
        top, *rest = imported.split(".")
        assert top not in ("train_scripts", "serving", "benchmarks", "tests")
        if top == "rrl_tf" and rest and package in ALLOWED and not rest[0].startswith("_"):
            assert rest[0] in {package, *ALLOWED[package], *COMMON}, imported


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("serving.")])
def test_server_does_not_import_training_scripts(name):
    assert not any(each.startswith("train_scripts") for each in MODULES[name].imports())


@pytest.mark.parametrize("module", [*MODULES.values(), *TESTS.values()], ids=lambda each: each.name)
def test_functions_have_at_most_60_lines_without_docstring(module):
    assert module.long_functions(LONGEST_FUNCTION) == []


def test_results_are_few_and_docs_are_small():
    folders = (ROOT / "docs" / "results", ROOT / "benchmarks" / "results")
    results = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert len(results) <= MOST_RESULT_FILES
    docs = (path for path in (ROOT / "docs").rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in docs) < LARGEST_DOCS


def test_pages_are_short():
    limits = {"README.md": 130, "CHANGELOG.md": 100, "docs/tasks/*.md": 200}
    limits |= {f"docs/{folder}/*.md": 250 for folder in ("tutorials", "how_to", "explanations")}
    for pattern, limit in limits.items():
        for page in ROOT.glob(pattern):
            assert len(page.read_text().splitlines()) <= limit, page.name


def test_training_a_double_dqn_loads_few_modules():
    parts = ("double_dqn", "loop", "environments", "replay")
    found = set().union(*(structure.closure(f"rrl_tf.agents.{part}", MODULES) for part in parts))
    assert len(found) <= 20
    assert sum(len(MODULES[name].path.read_text().splitlines()) for name in found) <= 3500


def test_modules_from_episode_to_loss_import_only_earlier_ones():
    way = [
        *("rrl_tf.offline.episodes", "rrl_tf.offline.sources", "rrl_tf.offline.scaling"),
        *("rrl_tf.offline.windows", "rrl_tf.offline.decision_transformer"),
    ]
    for place, name in enumerate(way):
        assert not structure.imported_modules(MODULES[name], MODULES) & {*way[place + 1 :]}, name
    assert "rrl_tf.models.decision_transformer" in MODULES  # the sixth module of this path


@pytest.mark.parametrize("limit", [21_889])
def test_statements_are_at_most(limit):
    assert structure.count_statements(MODULES)["total"] <= limit
