"""The documentation site builds without warnings and contains every public name."""

import html
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


def test_every_image_is_shown(site):
    """The site once showed `!` and the alt text for images outside `docs`."""
    pages = [html.unescape(file.read_text()) for file in site.rglob("*.html")]
    written = {file: file.read_text() for file in (ROOT / "docs").rglob("*.md")}
    described = {alt for text in written.values() for alt in re.findall(r"!\[([^\]]+)\]\(", text)}
    assert len(described) > 5
    assert not [alt for alt in described for page in pages if f"!{alt}" in page]
    page = site / "tasks" / "relational_memory" / "index.html"
    images = re.findall(r'<img [^>]*src="([^"]*)"', page.read_text())
    assert any("relational_memory_scaling" in image for image in images)
    assert all((page.parent / image).is_file() for image in images)


def test_site_loads_no_external_files(site):
    for file in site.rglob("*.html"):
        fetched = re.findall(
            r'<(?:script|img|link)[^>]*?(?:src|href)="(https?://[^"]*)"', file.read_text()
        )
        assert not [url for url in fetched if "canonical" not in url], file


def test_site_contains_the_playground(site):
    hooks = loaded("site_hooks")
    for name, content in hooks.page_files(hooks.SHOWN, about="../how_to/playground/").items():
        assert (site / "play" / name).read_bytes() == content
    sizes = re.findall(r'<option value="(\d+)">', (site / "play" / "index.html").read_text())
    sized = [name for name in hooks.SHOWN if name.startswith("doorkey-")]
    assert [f"doorkey-{size}x{size}" for size in sizes] == sized
    for page in ("", "gallery", "how_to/playground"):
        text = (site / page / "index.html").read_text()
        (link,) = re.findall(r'<a href="([^"]*)">Play in your browser</a>', text)
        assert (site / page / link / "index.html").resolve() == site / "play" / "index.html"
    assert (site / "play" / "../how_to/playground/index.html").exists()


def test_playground_policy_plays_below_a_path(site, web_server, open_page):
    page = open_page(f"{web_server(site.parent)}/{site.name}/", "a:text('Play in your browser')")
    page.click("a:text('Play in your browser')")
    page.wait_for_selector(".action.chosen")
    page.evaluate("document.getElementById('speed').value = 4")
    page.click("#play")
    page.get_by_text("Goal reached").wait_for()
    page.click("text=About this page")
    page.get_by_role("heading", name="Without a server").wait_for()


def test_links_that_leave_docs_become_text():
    convert = loaded("site_hooks").links_inside_site
    text = "see [`a.py`](../rrl_tf/a.py), [b](b.md) and [c](https://x.org/../c)"
    assert convert(text, "d.md") == "see `a.py`, [b](b.md) and [c](https://x.org/../c)"
    text = "[`a.py`](../../rrl_tf/a.py), [b](../b.md)"
    assert convert(text, "tasks/d.md") == "`a.py`, [b](../b.md)"


def test_images_outside_docs_are_shown_from_the_site():
    convert = loaded("site_hooks").links_inside_site
    assert convert("![a](../benchmarks/a.png)", "d.md") == "![a](benchmarks/a.png)"
    assert convert("![a](../../benchmarks/a.png)", "tasks/d.md") == "![a](../benchmarks/a.png)"
    assert convert("![a](../results/a.png)", "tasks/d.md") == "![a](../results/a.png)"


def test_playground_links_lead_to_the_playground_of_the_site():
    convert = loaded("site_hooks").links_inside_site
    link = "[play](../../serving/playground/static/index.html)"
    assert convert(link, "how_to/d.md") == "[play](../play/index.html)"


def test_formulas_become_mathml(site):
    for page in ("explanations/attention", "explanations/relational_memory_core"):
        text = (site / page / "index.html").read_text()
        assert text.count('display="block"') >= 2 and text.count('display="inline"') > 3
        assert "arithmatex" not in text and "$$" not in text


def test_examples_become_code_blocks():
    text = (
        "One sentence.\n\nExample:\n\n>>> a\n1\n>>> b\n\nAfter.\n\nArgs:\n    x: y\n\n    >>> c\n"
    )
    fenced = loaded("site_docstrings").fenced(text)
    assert "\n```pycon\n>>> a\n1\n>>> b\n```\n\nAfter." in fenced
    assert fenced.endswith("    ```pycon\n    >>> c\n    ```\n")
    assert pathlib.Path(ROOT / "mkdocs.yml").read_text().count("site_docstrings.py") == 1
