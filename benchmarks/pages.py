"""The tables of the docs: the places where they appear.

A line `<!-- table: SOURCE -->` is followed by a table, up to the line `<!-- end -->`. SOURCE is
the JSON file of a report, `reproductions/NAME/TABLE`, or `headlines`, the README's own table.
`python -m benchmarks tables` replaces every table by a new one made from the stored results.
"""

import importlib
import json
import pathlib
import re

from benchmarks.tables import markdown_table, write_text
from rrl_tf.errors import InvalidInput

_SLOT = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rows_of(source):
    """Return the rows of a table that a page names.

    Raises:
        InvalidInput: if there is no such table, or if its file is damaged.
    """
    try:
        if source == "headlines":
            return headlines()
        if source.endswith(".json"):
            return json.loads(pathlib.Path(source).read_text())["rows"]
        name, _, table = source.rpartition("/")
        module = importlib.import_module(f"benchmarks.{name.replace('/', '.')}")
        return module.REPRODUCTION.tables[table](module.REPRODUCTION.results)
    except (OSError, ImportError, LookupError, ValueError) as error:
        raise InvalidInput(f"table {source} cannot be made: {error!r}") from error


def fill():
    """Replace the tables of the README and of all docs pages, or none of them if one is missing."""
    pages = [pathlib.Path("README.md"), *sorted(pathlib.Path("docs").rglob("*.md"))]
    for page, text in [(page, filled(page.read_text())) for page in pages]:
        write_text(page, text)


def filled(text):
    """Return the text of a page with new tables."""

    def insert(slot):
        begin, source, end = slot.groups()
        return begin + markdown_table(rows_of(source)) + end

    return _SLOT.sub(insert, text)


_MEMORY = "reproductions/memory/table"
_OFFLINE = "reproductions/offline/walker2d"
_STITCHING = "reproductions/stitching/table"
_WALKER2D = {"data (environment)": "local walker2d/medium-replay-v0 (Walker2d-v5)"}
HEADLINES = (
    # description, docs page, table, cells that identify the row, column of the result
    (
        "DoorKey-5x5 from every start, solved greedily",
        "doorkey",
        "reproductions/doorkey/table",
        {"agent": "fast, 5x5"},
        "greedy success",
    ),
    (
        "the same, the book's agent",
        "doorkey",
        "reproductions/doorkey/table",
        {"agent": "book, 5x5"},
        "greedy success",
    ),
    (
        "DoorKey-6x6, layouts it was not trained on, with a memory",
        "memory",
        _MEMORY,
        {"task": "DoorKey-6x6, held-out layouts", "agent": "LSTM, relational encoder"},
        "greedy success",
    ),
    (
        "DoorKey-8x8, the same",
        "memory",
        _MEMORY,
        {"task": "DoorKey-8x8, held-out layouts", "agent": "chrono LSTM, relational encoder"},
        "greedy success",
    ),
    (
        "DoorKey-16x16, stock time limit",
        "memory",
        _MEMORY,
        {"task": "DoorKey-16x16", "agent": "LSTM, relational encoder"},
        "greedy success",
    ),
    (
        "KeyCorridorS3R3, new starts",
        "memory",
        _MEMORY,
        {"task": "KeyCorridorS3R3", "agent": "chrono LSTM, relational encoder"},
        "greedy success",
    ),
    (
        "MiniGrid's MemoryS17, every start",
        "memory",
        _MEMORY,
        {"task": "MemoryS17", "agent": "chrono LSTM, dense encoder"},
        "greedy success",
    ),
    (
        "the same, with a Relational Memory",
        "memory",
        _MEMORY,
        {"task": "MemoryS17", "agent": "chrono Relational Memory, dense encoder"},
        "greedy success",
    ),
    (
        "MiniGrid's MemoryS17Random, starts of all lengths",
        "memory",
        _MEMORY,
        {"task": "MemoryS17Random", "agent": "chrono LSTM, dense encoder"},
        "greedy success",
    ),
    (
        "two objects seen apart and compared, ours, width 14",
        "memory",
        _MEMORY,
        {"task": "ComparisonS14", "agent": "chrono LSTM, dense encoder"},
        "greedy success",
    ),
    (
        "the same, with a Relational Memory",
        "memory",
        _MEMORY,
        {"task": "ComparisonS14", "agent": "chrono Relational Memory, dense encoder"},
        "greedy success",
    ),
    (
        "Box-World 8 x 8, one to three boxes, new levels",
        "box_world",
        "reproductions/box_world/table",
        {"agent": "fast (relational)"},
        "new levels",
    ),
    (
        "the same, with pairs of colours it never saw together",
        "box_world",
        "reproductions/box_world/table",
        {"agent": "fast (relational)"},
        "held-out pairs",
    ),
    (
        "Box-World, new levels: convolutions of that size",
        "box_world",
        "reproductions/box_world/table",
        {"agent": "convolutional"},
        "new levels",
    ),
    (
        "Atari's Alien, score after 100,000 steps",
        "atari",
        "reproductions/atari/table",
        {"agent": "relational"},
        "score, greedy",
    ),
    (
        "digits moved, turned and spotted: relations",
        "mnist",
        "reproductions/mnist/table",
        {"classifier": "ours", "trained on": "perturbed digits"},
        "accuracy, perturbed test digits",
    ),
    (
        "the same: the book's convolutions",
        "mnist",
        "reproductions/mnist/table",
        {"classifier": "book, convolutional", "trained on": "perturbed digits"},
        "accuracy, perturbed test digits",
    ),
    (
        "relational questions about pictures, Sort-of-CLEVR: relations",
        "sort_of_clevr",
        "reproductions/sort_of_clevr/table",
        {"network": "relational"},
        "relational questions",
    ),
    (
        "the same: convolutions of that size",
        "sort_of_clevr",
        "reproductions/sort_of_clevr/table",
        {"network": "convolutional"},
        "relational questions",
    ),
    (
        "which of 4 vectors is the n-th farthest: Relational Memory Core",
        "relational_memory",
        "reproductions/nth_farthest/table",
        {"task": "4 vectors of 4 numbers", "model": "Relational Memory Core"},
        "accuracy on 20,000 new questions",
    ),
    (
        "the same: an LSTM of that size",
        "relational_memory",
        "reproductions/nth_farthest/table",
        {"task": "4 vectors of 4 numbers", "model": "LSTM"},
        "accuracy on 20,000 new questions",
    ),
    (
        "which nodes are connected, on graphs twice as large as those of training",
        "graphs",
        "reproductions/graphs/table",
        {"attention": "along the edges"},
        "24 nodes",
    ),
    (
        "Walker2d's return, learned from 200,000 steps that we recorded, most of them bad: "
        "dense layers",
        "decision_transformer",
        _OFFLINE,
        {**_WALKER2D, "preset": "dense"},
        "return, last weights",
    ),
    (
        "the same: Decision Transformer",
        "decision_transformer",
        _OFFLINE,
        {**_WALKER2D, "preset": "transformer"},
        "return, last weights",
    ),
    (
        "the same: imitation of the best tenth",
        "decision_transformer",
        _OFFLINE,
        {**_WALKER2D, "preset": "bc-10"},
        "return, last weights",
    ),
    (
        "a way through a maze of which only pieces were recorded, `crossing`: "
        "imitation by advantage",
        "decision_transformer",
        _STITCHING,
        {
            "data": "crossing",
            "agent": "advantage-weighted behavior cloning",
        },
        "success",
    ),
    (
        "the same: Decision Transformer, K = 10",
        "decision_transformer",
        _STITCHING,
        {"data": "crossing", "agent": "Decision Transformer, K = 10"},
        "success",
    ),
    (
        "the same through `fork`, where another recorded way pays too, but less: "
        "imitation by advantage",
        "decision_transformer",
        _STITCHING,
        {"data": "fork", "agent": "advantage-weighted behavior cloning"},
        "success",
    ),
    (
        "through `fork`: Decision Transformer, K = 10",
        "decision_transformer",
        _STITCHING,
        {"data": "fork", "agent": "Decision Transformer, K = 10"},
        "success",
    ),
)


def headlines():
    """Return the rows of the README's table, cells of the tables of the pages."""
    rows = []
    for description, page, table, cells, column in HEADLINES:
        [row] = [row for row in rows_of(table) if cells.items() <= row.items()]
        link = f"[{page.replace('_', ' ')}](docs/tasks/{page}.md)"
        rows.append({"": description, "result": row[column], "seeds": row["seeds"], "page": link})
    return rows
