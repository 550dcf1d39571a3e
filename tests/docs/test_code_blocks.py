"""The code in the documentation runs.

The fast tests run all Python blocks of a page in order, with short trainings. They send the
requests of the curl commands to a server and parse the options of every command with the
program's own parser. The slow tests run the Python blocks with servers in separate processes.
`test_training_commands.py` runs the training commands.
"""

import ast
import asyncio
import functools
import importlib
import inspect
import itertools
import os
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys

import pytest
from code_blocks import FENCE, PAGES, ROOT, Command, blocks, commands

# h5py and Minari raise ResourceWarning.
pytestmark = [pytest.mark.tf_only, pytest.mark.filterwarnings("ignore::ResourceWarning")]

# Configuration of other programs, and text that is not input.
NO_CODE = {"text", "nginx", "bibtex"}
INLINE = re.compile(r"`((?:\w+=\S+ )*(?:(?:\.venv/bin/)?python -m|rrl-\w+|make|pip)\s[^`]+)`")
ASSIGNMENT = re.compile(r"\w+=")
BENCHMARK = re.compile(r"python -m\s+benchmarks\s+((?:speed|reproductions)/\w+)")
REVISION = re.compile(r"\b[aA]t revision ([0-9a-f]{7,40})\b")


def shown_commands():
    """Yield every command of the `sh` blocks and of inline code.

    Benchmarks of older revisions are left out: this revision may lack them.
    """
    for page in PAGES:
        for block in blocks(page):
            if block.language == "sh":
                yield from commands(block)
        prose = FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text())
        for shown in INLINE.finditer(prose):
            if BENCHMARK.search(shown[1]) and REVISION.search(paragraph_of(prose, shown)):
                continue
            words = [word for word in shlex.split(shown[1]) if not ASSIGNMENT.match(word)]
            line = prose.count("\n", 0, shown.start()) + 1
            yield Command(page, line, shown[1], (tuple(words),))


def paragraph_of(text, match):
    first = text.rfind("\n\n", 0, match.start()) + 1
    return text[first : text.find("\n\n", match.end())]


COMMANDS = list(shown_commands())


def test_docs_hold_commands_and_code():
    assert len(COMMANDS) > 50
    assert sum(block.language == "python" for page in PAGES for block in blocks(page)) > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_code_block_names_its_language(page):
    assert {block.language for block in blocks(page)} <= {"python", "sh", *NO_CODE}
    assert len(re.findall(r"^ *```", page.read_text(), re.MULTILINE)) == 2 * len(blocks(page))


def test_benchmarks_of_older_revisions_exist_there():
    for page in PAGES:
        for paragraph in page.read_text().split("\n\n"):
            for revision in set(REVISION.findall(paragraph)):
                names = BENCHMARK.findall(paragraph)
                assert names, f"{page.name}: revision {revision} without a benchmark"
                files = subprocess.run(
                    ["git", "ls-tree", "-r", "--name-only", revision, "benchmarks/"],
                    cwd=ROOT,
                    capture_output=True,
                    text=True,
                )
                if files.returncode:
                    pytest.skip(f"this copy of the repository has no revision {revision}")
                for name in names:
                    assert f"benchmarks/{name}.py" in files.stdout.splitlines(), page.name


WITH_PYTHON = [page for page in PAGES if any(b.language == "python" for b in blocks(page))]
each_page = pytest.mark.parametrize(
    "page", WITH_PYTHON, ids=lambda page: str(page.relative_to(ROOT))
)


@each_page
def test_python_blocks_run(
    page, addresses, page_values, short_training, serve_in_process, working_directory
):
    run_page(page, addresses, page_values, working_directory)


@pytest.mark.slow
@each_page
def test_python_blocks_run_with_their_own_servers(
    page, addresses, page_values, short_training, working_directory
):
    run_page(page, addresses, page_values, working_directory)


def run_page(page, addresses, page_values, folder):
    """Run the page's Python blocks in order, in one namespace."""
    namespace = {"__name__": "__main__", **page_values.get(page.name, {})}
    for block in blocks(page):
        if block.language == "python" and block.file:
            run_file(block, folder)
        elif block.language == "python":
            run_python(block, with_addresses(block.text, addresses), namespace)


def run_file(block, folder):
    """Write a block to its file in `folder`; run it if it is a script, otherwise import it."""
    (folder / block.file).write_text(block.text)
    importlib.invalidate_caches()
    if "__main__" in block.text:
        runpy.run_path(block.file, run_name="__main__")
    else:
        importlib.import_module(block.file.removesuffix(".py"))


def run_python(block, text, namespace):
    """Run a block in `namespace`; tracebacks show the page and the line."""
    text = "\n" * (block.line - 1) + text
    code = compile(text, block.page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(code, namespace)
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)


def with_addresses(text, addresses):
    for shown, real in addresses.items():
        text = text.replace(shown, real)
    return text


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_commands_are_parsed(command, read_options, working_directory):
    for program, *arguments in command.programs:
        understood = PROGRAMS.get(program)
        assert understood, f"no check exists for the program {program!r}"
        understood(arguments, read_options)


def check_python(arguments, read_options):
    kind, *rest = arguments
    if kind.endswith(".py"):
        assert any(block.file == kind for page in PAGES for block in blocks(page)) and not rest
        return
    what, *options = rest
    if kind == "-c":
        compile(what, "-c", "exec")
    elif what == "pytest":
        assert all((ROOT / option).exists() for option in options if "/" in option)
    else:
        assert kind == "-m"
        read_options(what, options)


def check_make(arguments, read_options):
    subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, check=True, capture_output=True)


def check_pip(arguments, read_options):
    import tomllib

    from packaging.requirements import Requirement

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert arguments[0] == "install"
    for what in arguments[1:]:
        if what.startswith("."):
            assert {*Requirement(f"rrl_tf{what[1:]}").extras} <= extras.keys(), what
        else:
            Requirement(what)


def check_console(name, arguments, read_options):
    import tomllib

    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts[name].split(":")
    assert function == "main"
    read_options(module, arguments)


PROGRAMS = {
    ".venv/bin/python": check_python,
    "python": check_python,
    "make": check_make,
    "pip": check_pip,
    ".venv/bin/pip": check_pip,
    "curl": lambda arguments, read_options: None,  # test_curl_commands_get_json runs it
    **{
        name: functools.partial(check_console, name)
        for name in ("rrl-train", "rrl-interpret", "rrl-serve", "rrl-bench", "rrl-export")
    },
}


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if any("curl" in each for each in c.programs)], ids=str
)
def test_curl_commands_get_json(command, addresses, tmp_path):
    (tmp_path / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\nmax-time = 60\n")
    text = with_addresses(command.text, addresses).replace(".venv/bin/python", sys.executable)
    answer = subprocess.run(
        ["bash", "-o", "pipefail", "-c", text],
        env=os.environ | {"CURL_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.lstrip().startswith("{")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_exist(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), anchor


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_and_options_exist(page):
    options = known_options()
    for text in re.findall(r"`([^`\n]+)`", page.read_text()):
        if name := re.match(r"((?:rrl_tf|serving)(?:\.\w+)+)", text):
            pkgutil.resolve_name(name[1])
        elif option := re.match(r"--([\w-]+)", text):
            assert option[1].replace("-", "_") in options, text


@functools.cache
def known_options():
    """Return the options of our programs, with underscores: configuration fields and flags."""
    from serving.server import flags

    names = {"help"}
    for file in itertools.chain.from_iterable(
        (ROOT / room).rglob("*.py") for room in ("train_scripts", "rrl_tf", "benchmarks", "serving")
    ):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Config", "Flags")):
                fields = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
                names |= fields | {f"no_{field}" for field in fields}
            elif isinstance(node, ast.Constant):
                option = re.fullmatch(r"--([\w-]+)", str(node.value))
                names |= {option[1].replace("-", "_")} if option else set()
    return frozenset(names | {*flags._IGNORED})
