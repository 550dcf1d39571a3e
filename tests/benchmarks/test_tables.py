"""Tables in Markdown, and in their places in the docs."""

import json
import pathlib
import re
import sys

import pytest

from benchmarks import report
from benchmarks.__main__ import main, names
from benchmarks.tables import filled, markdown_table
from rrl_tf.errors import InvalidInput

ROOT = pathlib.Path(__file__).parents[2]
SMALL_REPORT = {
    "name": "speed/small",
    "title": "small",
    "machine": report.machine(),
    "rows": [{"a": 1}],
    "notes": [],
}


def test_a_slot_takes_the_tables_of_its_file_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("t.md").write_text("# title\n\n| a |\n|---|\n| 1 |\n\nprose\n")
    page = "before\n<!-- table: t.md -->\n| old |\n<!-- end -->\nafter\n"
    expected = "before\n<!-- table: t.md -->\n| a |\n|---|\n| 1 |\n<!-- end -->\nafter\n"
    assert filled(page) == expected
    assert filled(expected) == expected
    with pytest.raises(FileNotFoundError):
        filled("<!-- table: none.md -->\n<!-- end -->")


def run_tables(folder, capsys, *options):
    """What `python -m benchmarks tables` says on standard error, in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["benchmarks", "tables", *options])
        with pytest.raises(SystemExit):
            main()
    return capsys.readouterr().err


def test_where_a_table_is_missing_nothing_is_written(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    page = "<!-- table: t.md -->\n| old |\n<!-- end -->\n<!-- table: none.md -->\n<!-- end -->\n"
    (tmp_path / "README.md").write_text(page)
    (tmp_path / "t.md").write_text("| a |\n|---|\n")
    told = run_tables(tmp_path, capsys)
    assert told == "error: expected the tables that pages show; missing none.md\n"
    assert (tmp_path / "README.md").read_text() == page


def test_tables_are_drawn_up_in_the_projects_folder_without_options(tmp_path, capsys):
    assert f"beside its README.md; received {tmp_path}" in run_tables(tmp_path, capsys)
    assert "takes no options; received --foo" in run_tables(tmp_path, capsys, "--foo")


def test_a_damaged_report_is_named_and_no_page_written(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(SMALL_REPORT))
    (tmp_path / "b.json").write_text('{"rows": [')
    with pytest.raises(InvalidInput, match=r"b\.json.*JSONDecodeError"):
        report.draw_up(tmp_path)
    assert not list(tmp_path.glob("*.md"))
    (tmp_path / "b.json").unlink()
    report.draw_up(tmp_path)
    assert "| 1 |" in (tmp_path / "a.md").read_text()


@pytest.mark.parametrize("page", ["README.md", *[f"docs/{p.name}" for p in ROOT.glob("docs/*.md")]])
def test_pages_show_the_committed_numbers(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = pathlib.Path(page).read_text()
    assert filled(text) == text, "run: python -m benchmarks tables"


def test_a_table_has_a_column_for_whatever_a_row_holds():
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


@pytest.mark.parametrize(
    "page", ["README.md", "Makefile", *[f"docs/{p.name}" for p in ROOT.glob("docs/*.md")]]
)
def test_commands_of_benchmarks_are_there(page):
    text = (ROOT / page).read_text()
    assert "-m benchmarks." not in text
    found = re.findall(r"\b(?:speed|reproductions)/\w+", text)
    assert set(found) <= set(names())
