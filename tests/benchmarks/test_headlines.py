"""The README's table is made of cells of the pages' tables."""

import re

import pytest
from code_blocks import ROOT

from benchmarks import headlines
from benchmarks.tables import markdown_table

pytestmark = pytest.mark.tf_only


@pytest.mark.parametrize("wanted", headlines.HEADLINES, ids=lambda wanted: wanted[0])
def test_every_headline_has_its_row(wanted, monkeypatch):
    monkeypatch.chdir(ROOT)
    row = headlines.headline(wanted)
    number = r"[\d,.]+"
    result = rf"{number}( %)?( \({number} to {number}\))?"
    assert re.fullmatch(result, row["result"]) and int(row["seeds"]) > 0
    assert (ROOT / "docs" / f"{wanted[1]}.md").exists()


def test_a_table_is_read_as_it_was_written():
    rows = [{"a": "1 | 2", "b": "x"}, {"a": "", "b": "y"}]
    assert headlines.read_table(markdown_table(rows[1:])) == rows[1:]


def test_what_is_not_there_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(headlines, "RESULTS", tmp_path)
    headlines.draw_up()
    assert not list(tmp_path.iterdir())
    (tmp_path / "memory").mkdir()
    row = {"task": "DoorKey-16x16", "agent": "LSTM, relations"}
    row |= {"seeds": "3", "greedy success": "95.0 %"}
    (tmp_path / "memory" / "table.md").write_text(markdown_table([row]))
    headlines.draw_up()
    [line] = (tmp_path / "headlines.md").read_text().splitlines()[2:]
    assert "| 95.0 % | 3 |" in line
