"""The documentation as a site: it is built without a warning, and every public name is in it."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest
from code_blocks import ROOT

pytestmark = pytest.mark.tf_only


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    result = subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return folder


def test_every_public_name_is_in_the_reference(site):
    hooks = loaded("site_hooks")
    for package in hooks.PACKAGES:
        text = (site / "reference" / package / "index.html").read_text()
        ids = set(re.findall(r'id="(rrl_tf[\w.]*)"', text))
        assert hooks.public(package)
        assert set(hooks.public(package)) <= ids, package


def test_nothing_is_fetched_from_elsewhere(site):
    for file in site.rglob("*.html"):
        fetched = re.findall(
            r'<(?:script|img|link)[^>]*?(?:src|href)="(https?://[^"]*)"', file.read_text()
        )
        assert not [url for url in fetched if "canonical" not in url], file


def test_links_out_of_the_docs_stay_text():
    hooks = loaded("site_hooks")
    text = "see [`a.py`](../rrl_tf/a.py), [b](b.md) and [c](https://x.org/../c)"
    assert hooks.on_page_markdown(text) == "see `a.py`, [b](b.md) and [c](https://x.org/../c)"


def test_examples_become_blocks_of_code():
    text = (
        "One sentence.\n\nExample:\n\n>>> a\n1\n>>> b\n\nAfter.\n\nArgs:\n    x: y\n\n    >>> c\n"
    )
    fenced = loaded("site_docstrings").fenced(text)
    assert "\n```pycon\n>>> a\n1\n>>> b\n```\n\nAfter." in fenced
    assert fenced.endswith("    ```pycon\n    >>> c\n    ```\n")
    assert pathlib.Path(ROOT / "mkdocs.yml").read_text().count("site_docstrings.py") == 1
