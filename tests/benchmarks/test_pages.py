"""Pages of the docs contain the committed tables, and the commands in them exist."""

import pathlib
import re
import sys

import pytest
from code_blocks import ROOT

from benchmarks import pages
from benchmarks.__main__ import main, names
from benchmarks.tables import markdown_table
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only

PAGES = ["README.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md")))]


def test_table_has_a_column_for_every_cell_of_a_row():
    rows = [
        {"who": "a", "ms": 1234.5},
        {"ms": 0.1234, "more": None},
        {"who": "c", "ms": 999.7, "more": 7},
    ]
    assert markdown_table(rows).splitlines() == [
        "| who | ms | more |",
        "|---|---|---|",
        "| a | 1,234 |  |",
        "|  | 0.123 |  |",
        "| c | 1,000 | 7 |",
    ]


def test_slot_takes_the_rows_of_its_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("t.json").write_text('{"rows": [{"a": 1}]}')
    page = "before\n<!-- table: t.json -->\n| old |\n<!-- end -->\nafter\n"
    assert pages.filled(page) == page.replace("| old |", "| a |\n|---|\n| 1 |")


@pytest.mark.parametrize(
    "source", ["none.json", "damaged.json", "reproductions/none/table", "reproductions/text/none"]
)
def test_table_that_cannot_be_made_is_named(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("damaged.json").write_text('{"rows": [')
    with pytest.raises(InvalidInput, match=f"table {source} cannot be made"):
        pages.rows_of(source)


def test_missing_table_changes_no_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("docs").mkdir()
    pathlib.Path("t.json").write_text('{"rows": [{"a": 1}]}')
    text = (
        "<!-- table: t.json -->\n| old |\n<!-- end -->\n<!-- table: none.json -->\n<!-- end -->\n"
    )
    pathlib.Path("README.md").write_text(text)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "tables"])
    with pytest.raises(SystemExit):
        main()
    assert "table none.json cannot be made" in capsys.readouterr().err
    assert pathlib.Path("README.md").read_text() == text


@pytest.mark.parametrize("page", PAGES)
def test_page_shows_the_committed_numbers(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = pathlib.Path(page).read_text()
    assert pages.filled(text) == text, "run: python -m benchmarks tables"


@pytest.mark.parametrize("page", [*PAGES, "Makefile"])
def test_commands_of_benchmarks_exist(page):
    """A paragraph that names a deleted benchmark must also name its revision."""
    for paragraph in (ROOT / page).read_text().split("\n\n"):
        found = set(re.findall(r"\b(?:speed|reproductions)/\w+", paragraph))
        assert found <= set(names()) or "revision 488e772" in paragraph, found - set(names())


def test_headlines_are_numbers_of_their_pages(monkeypatch):
    monkeypatch.chdir(ROOT)
    rows = pages.headlines()
    assert len(rows) <= 14
    for row in rows:
        [page] = re.findall(r"\]\((.*)\)$", row["task"])
        text = pathlib.Path(page).read_text()
        baselines = [part.rpartition(": ")[2] for part in row["baseline"].split("; ")]
        for number in (row["ours"], *baselines):
            assert re.match(r"\d", number) and f"| {number} |" in text, number
        assert re.match(r"[\d,]+ (steps|updates)", row["budget"])


def test_unknown_benchmark_lists_all(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "speed/nothing"])
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr()
    assert "unknown benchmark 'speed/nothing'" in printed.err
    assert all(f"\n{name}: " in printed.out for name in names())


def test_benchmark_without_pytorch_names_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "benchmarks.speed.relational_memory", raising=False)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "speed/relational_memory"])
    with pytest.raises(SystemExit):
        main()
    assert "pip install torch" in capsys.readouterr().err
