"""Tables in Markdown, and in their places in the docs."""

import pathlib
import re

import pytest

from benchmarks.__main__ import names
from benchmarks.tables import filled, markdown_table

ROOT = pathlib.Path(__file__).parents[2]


def test_a_slot_takes_the_tables_of_its_file_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("t.md").write_text("# title\n\n| a |\n|---|\n| 1 |\n\nprose\n")
    page = "before\n<!-- table: t.md -->\n| old |\n<!-- end -->\nafter\n"
    expected = "before\n<!-- table: t.md -->\n| a |\n|---|\n| 1 |\n<!-- end -->\nafter\n"
    assert filled(page) == expected
    assert filled(expected) == expected
    with pytest.raises(FileNotFoundError):
        filled("<!-- table: none.md -->\n<!-- end -->")


@pytest.mark.parametrize("page", ["README.md", *[f"docs/{p.name}" for p in ROOT.glob("docs/*.md")]])
def test_pages_show_the_committed_numbers(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = pathlib.Path(page).read_text()
    assert filled(text) == text, "run: python -m benchmarks tables"


def test_a_table_has_a_column_for_whatever_a_row_holds():
    rows = [{"who": "a", "ms": 1234.5}, {"ms": 0.1234, "more": None}, {"who": "c", "more": 7}]
    assert markdown_table(rows).splitlines() == [
        "| who | ms | more |",
        "|---|---|---|",
        "| a | 1,234 |  |",
        "|  | 0.123 |  |",
        "| c |  | 7 |",
    ]


@pytest.mark.parametrize(
    "page", ["README.md", "Makefile", *[f"docs/{p.name}" for p in ROOT.glob("docs/*.md")]]
)
def test_commands_of_benchmarks_are_there(page):
    text = (ROOT / page).read_text()
    assert "-m benchmarks." not in text
    found = re.findall(r"\b(?:speed|reproductions)/\w+", text)
    assert set(found) <= set(names())
