"""The README's one table: single cells of the tables of the pages."""

import pathlib

from benchmarks.tables import markdown_table, write_text

RESULTS = pathlib.Path("docs/results")
_WALKER2D = {"data (environment)": "local walker2d/medium-replay-v0 (Walker2d-v5)"}
HEADLINES = (
    # what, page, table, the row's cells, the cells that are shown
    (
        "DoorKey-5x5 from every start, solved greedily",
        "doorkey",
        "doorkey/table.md",
        {"agent": "ours, 5x5"},
        "greedy success",
    ),
    (
        "the same, the book's agent",
        "doorkey",
        "doorkey/table.md",
        {"agent": "book, as meant, 5x5"},
        "greedy success",
    ),
    (
        "DoorKey-6x6, layouts it was not trained on, with a memory",
        "memory",
        "memory/table.md",
        {"task": "DoorKey-6x6, new layouts", "agent": "LSTM, relations"},
        "greedy success",
    ),
    (
        "DoorKey-8x8, the same",
        "memory",
        "memory/table.md",
        {"task": "DoorKey-8x8, new layouts", "agent": "LSTM for long spans, relations"},
        "greedy success",
    ),
    (
        "DoorKey-16x16, stock time limit",
        "memory",
        "memory/table.md",
        {"task": "DoorKey-16x16", "agent": "LSTM, relations"},
        "greedy success",
    ),
    (
        "KeyCorridorS3R3, new starts",
        "memory",
        "memory/table.md",
        {"task": "KeyCorridorS3R3", "agent": "LSTM for long spans, relations"},
        "greedy success",
    ),
    (
        "MiniGrid's MemoryS17, every start",
        "memory",
        "memory/table.md",
        {"task": "MemoryS17", "agent": "LSTM for long spans, dense layers"},
        "greedy success",
    ),
    (
        "the same, with a Relational Memory",
        "memory",
        "memory/table.md",
        {"task": "MemoryS17", "agent": "Relational Memory for long spans, dense layers"},
        "greedy success",
    ),
    (
        "MiniGrid's MemoryS17Random, starts of all lengths",
        "memory",
        "memory/table.md",
        {"task": "MemoryS17Random", "agent": "LSTM for long spans, dense layers"},
        "greedy success",
    ),
    (
        "two objects seen apart and compared, ours, width 14",
        "memory",
        "memory/table.md",
        {"task": "ComparisonS14", "agent": "LSTM for long spans, dense layers"},
        "greedy success",
    ),
    (
        "the same, with a Relational Memory",
        "memory",
        "memory/table.md",
        {"task": "ComparisonS14", "agent": "Relational Memory for long spans, dense layers"},
        "greedy success",
    ),
    (
        "Box-World 8 x 8, one to three boxes, new levels",
        "box_world",
        "box_world/table.md",
        {"agent": "relational, ours"},
        "new levels",
    ),
    (
        "the same, with pairs of colours it never saw together",
        "box_world",
        "box_world/table.md",
        {"agent": "relational, ours"},
        "held-out pairs",
    ),
    (
        "Box-World, new levels: convolutions of that size",
        "box_world",
        "box_world/table.md",
        {"agent": "convolutional"},
        "new levels",
    ),
    (
        "Atari's Alien, score after 100,000 steps",
        "atari",
        "atari/table.md",
        {"agent": "relational"},
        "score, greedy",
    ),
    (
        "digits moved, turned and spotted: relations",
        "mnist",
        "mnist/table.md",
        {"classifier": "ours", "learns from": "perturbed digits"},
        "10,000 perturbed test images",
    ),
    (
        "the same: the book's convolutions",
        "mnist",
        "mnist/table.md",
        {"classifier": "book, convolutional", "learns from": "perturbed digits"},
        "10,000 perturbed test images",
    ),
    (
        "relational questions about pictures, Sort-of-CLEVR: relations",
        "sort_of_clevr",
        "sort_of_clevr/table.md",
        {"network": "relations"},
        "relational",
    ),
    (
        "the same: convolutions of that size",
        "sort_of_clevr",
        "sort_of_clevr/table.md",
        {"network": "convolutions and dense layers"},
        "relational",
    ),
    (
        "which of 4 vectors is the n-th farthest: Relational Memory Core",
        "relational_memory",
        "nth_farthest/table.md",
        {"task": "4 vectors of 4 numbers", "model": "Relational Memory Core"},
        "accuracy on 20,000 new questions",
    ),
    (
        "the same: an LSTM of that size",
        "relational_memory",
        "nth_farthest/table.md",
        {"task": "4 vectors of 4 numbers", "model": "LSTM"},
        "accuracy on 20,000 new questions",
    ),
    (
        "which nodes are connected, on graphs twice as large as those of training",
        "graphs",
        "graphs/table.md",
        {"attention goes": "along the edges"},
        "24 nodes",
    ),
    (
        "Walker2d's return, learned from 200,000 steps that we recorded, most of them bad: "
        "dense layers",
        "decision_transformer",
        "decision_transformer/table.md",
        {**_WALKER2D, "agent": "dense"},
        "last weights",
    ),
    (
        "the same: Decision Transformer",
        "decision_transformer",
        "decision_transformer/table.md",
        {**_WALKER2D, "agent": "transformer"},
        "last weights",
    ),
    (
        "the same: imitation of the best tenth",
        "decision_transformer",
        "decision_transformer/table.md",
        {**_WALKER2D, "agent": "bc-10"},
        "last weights",
    ),
    (
        "a way through a maze of which only pieces were recorded, `crossing`: "
        "imitation by advantage",
        "decision_transformer",
        "stitching/table.md",
        {
            "pieces of": "crossing",
            "agent": "imitation of the steps that brought more than others",
        },
        "whole way",
    ),
    (
        "the same: Decision Transformer, K = 10",
        "decision_transformer",
        "stitching/table.md",
        {"pieces of": "crossing", "agent": "Decision Transformer, K = 10"},
        "whole way",
    ),
    (
        "the same through `fork`, where another recorded way pays too, but less: "
        "imitation by advantage",
        "decision_transformer",
        "stitching/table.md",
        {"pieces of": "fork", "agent": "imitation of the steps that brought more than others"},
        "whole way",
    ),
    (
        "through `fork`: Decision Transformer, K = 10",
        "decision_transformer",
        "stitching/table.md",
        {"pieces of": "fork", "agent": "Decision Transformer, K = 10"},
        "whole way",
    ),
)


def draw_up():
    """Writes `docs/results/headlines.md`, of the rows that there are."""
    rows = [row for row in map(headline, HEADLINES) if row]
    if rows:
        write_text(RESULTS / "headlines.md", markdown_table(rows))


def headline(wanted):
    """A row of the README's table, or nothing where there is no such row to take it from."""
    what, page, table, where, column = wanted
    file = RESULTS / table
    if not file.exists():
        return None
    for row in read_table(file.read_text()):
        if where.items() <= row.items():
            link = f"[{page.replace('_', ' ')}](docs/{page}.md)"
            return {"": what, "result": row[column], "seeds": row["seeds"], "page": link}
    return None


def read_table(text):
    """The rows of a Markdown table, dicts column → cell.

    Example:
        >>> read_table("| a | b |\\n|---|---|\\n| 1 | 2 |\\n")
        [{'a': '1', 'b': '2'}]
    """
    lines = [line for line in text.splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [dict(zip(head, cells)) for cells in rows]
