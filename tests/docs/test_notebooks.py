"""The notebooks run from top to bottom, and their text agrees with the computed numbers."""

import re

import nbformat
import pytest
from code_blocks import ROOT
from nbclient import NotebookClient

# The client of the kernel raises RuntimeWarning and ResourceWarning.
pytestmark = [pytest.mark.tf_only, pytest.mark.filterwarnings("ignore")]

BOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture
def printed(tmp_path, monkeypatch):
    """Function that runs the notebook of a given name and returns its printed text."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(name):
        book = nbformat.read(ROOT / "docs" / "notebooks" / f"{name}.ipynb", 4)
        place = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(book, timeout=300, kernel_name="python3", resources=place).execute()
        outputs = [each for cell in book.cells for each in cell.get("outputs", [])]
        assert any("image/png" in each.get("data", {}) for each in outputs)
        return "".join(each.text for each in outputs if each.get("name") == "stdout")

    return run


def test_notebooks_are_stored_without_outputs():
    assert len(BOOKS) == 4
    for book in BOOKS:
        cells = nbformat.read(book, 4).cells
        first = next(cell for cell in cells if cell.cell_type == "code")
        assert "%pip install" in first.source and 'find_spec("rrl_tf") is None' in first.source
        for cell in cells:
            if cell.cell_type == "code":
                assert (cell.outputs, cell.execution_count) == ([], None)


def test_attention_on_doorkey(printed):
    text = printed("attention_on_doorkey")
    assert "return 1.0" in text
    falls = {
        kind: float(fall) for kind, fall in re.findall(r"(\w+) hidden .* by +(-?[\d.]+)", text)
    }
    assert falls["goal"] > 0.2 and falls["door"] > 0.03
    assert all(abs(falls[kind]) < 0.01 for kind in ("key", "wall"))


def test_does_the_agent_know_the_door(printed):
    text = printed("does_the_agent_know_the_door")
    for trained, shuffled, blank in re.findall(
        r"after: accuracy ([\d.]+)%, shuffled labels ([\d.]+)%, untrained network ([\d.]+)%", text
    ):
        assert float(trained) > 99 and float(blank) > 98 and float(shuffled) < 55
    assert "key held: toggle in 4 of 4 states at the door, and in 0 of 44 other" in text
    toggles = dict(re.findall(r"^(.+): toggles in (\d+%, \d+%, \d+%)$", text, re.M))
    first = {name: fractions.split(", ")[0] for name, fractions in toggles.items()}
    assert first["key patched in, from all starts"] == "100%"
    assert first["key patched out"] == first["placebo: all starts without the key"] == "0%"
    assert toggles["placebo: another cell"] == "0%, 0%, 0%"
    count, on_floor = re.search(r"round 1: (\d+) states; .* in (\d+) of them", text).groups()
    assert 0 < int(count) == int(on_floor)


@pytest.mark.slow
def test_relational_memory_for_lstm(printed):
    right = re.findall(
        r"(\w+), [\d,]+ parameters: ([\d.]+)%", printed("relational_memory_for_lstm")
    )
    shares = {name: float(share) for name, share in right}
    assert shares["LSTM"] < 60 and shares["Memory"] > 95


@pytest.mark.slow
def test_decision_transformer_on_your_data(printed):
    text = printed("decision_transformer_on_your_data")
    reached = {
        int(target): int(total)
        for target, total in re.findall(r"^target return (-\d+): return (-\d+)", text, re.M)
    }
    assert reached[-1500] < reached[-900] < reached[-150]
