"""Fill the tables of the docs, and define the README's table of headline results.

A line `<!-- table: SOURCE -->` is followed by a table, up to the line `<!-- end -->`. SOURCE is
the JSON file of a report, `reproductions/NAME/TABLE`, or `headlines`, the README's table.
`python -m benchmarks tables` replaces every table by a new one made from the stored results.
"""

import dataclasses
import importlib
import json
import pathlib
import re
from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.reproduction import last_step, percent, spread
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
    """Replace all tables of the README and the docs; change no page if one table is missing."""
    pages = [pathlib.Path("README.md"), *sorted(pathlib.Path("docs").rglob("*.md"))]
    for page, text in [(page, filled(page.read_text())) for page in pages]:
        write_text(page, text)


def filled(text):
    """Return the text of a page with new tables."""

    def insert(slot):
        begin, source, end = slot.groups()
        return begin + markdown_table(rows_of(source)) + end

    return _SLOT.sub(insert, text)


@dataclasses.dataclass(frozen=True)
class Headline:
    """One row of the README's table, which compares our variant with its baselines.

    Attributes:
        task: description of the task.
        metric: name of the number that is reported.
        source: name of the module in `benchmarks.reproductions`.
        ours: our variant, as `Results.of` names it.
        baselines: dict from a baseline that we trained, as `Results.of` names it, to its label.
        value: function of a variant's evaluations that formats the metric.
        other: text of a baseline that we did not train: a published or a computed number.
        unit: what the `step` of an evaluation counts, such as updates.
        page: name of the page in `docs/tasks`; `source` if empty.
    """

    task: str
    metric: str
    source: str
    ours: str
    baselines: Mapping[str, str] = dataclasses.field(default_factory=dict)
    value: Callable = lambda found: percent(found, "eval/success")
    other: str = ""
    unit: str = "steps"
    page: str = ""

    def row(self):
        """Return the cells of the row, computed from the stored results."""
        module = importlib.import_module(f"benchmarks.reproductions.{self.source}")
        evaluations = module.REPRODUCTION.results.of
        baselines = [
            f"{label}: {self.value(evaluations(name))}" for name, label in self.baselines.items()
        ]
        ours = evaluations(self.ours)
        return {
            "task": f"[{self.task}](docs/tasks/{self.page or self.source}.md)",
            "metric": self.metric,
            "ours": self.value(ours),
            "baseline": "; ".join([*baselines, *filter(None, [self.other])]),
            "budget": f"{last_step(ours)} {self.unit}{_minutes(ours)}",
        }


def _minutes(evaluations):
    """Format the mean CPU minutes of training, or the wall-clock minutes if these are unknown."""
    for name, unit in (("cpu_minutes", "CPU min"), ("training_minutes", "min")):
        if minutes := [each[name] for each in evaluations if name in each]:
            mean = np.mean(minutes)
            return f", {mean:.2g} {unit}" if mean < 10 else f", {mean:.0f} {unit}"
    return ""


def _on_levels(kind):
    return lambda found: percent([each["generalization"] for each in found], kind)


def _accuracy(name, form=".1f"):
    return lambda found: percent(found, name, form)


def _score(found):
    return spread([each["scores"]["0.0"] for each in found], ".0f")


def _return_at_highest_target(found):
    from benchmarks.reproductions.offline import common_targets, returns

    return returns(found, "last", common_targets(found)[-1])


_SUCCESS = "greedy success"
HEADLINES = (
    Headline(
        "DoorKey-5x5, all 48 starts", _SUCCESS, "doorkey", "fast", {"book": "the book's agent"}
    ),
    Headline(
        "DoorKey-8x8, held-out layouts",
        _SUCCESS,
        "memory",
        "doorkey-8x8-lstm-long",
        {"doorkey-8x8-none": "no memory"},
    ),
    Headline(
        "DoorKey-16x16, MiniGrid's time limit",
        _SUCCESS,
        "memory",
        "doorkey-16x16-lstm",
        {"doorkey-16x16-four-frames": "four stacked frames"},
    ),
    Headline(
        "KeyCorridorS3R3",
        _SUCCESS,
        "memory",
        "key-corridor-s3r3-lstm-long",
        {"key-corridor-s3r3-four-frames": "four stacked frames"},
    ),
    Headline(
        "MemoryS17, all starts",
        _SUCCESS,
        "memory",
        "memory-s17-lstm-long-dense",
        {"memory-s17-none-dense": "no memory"},
    ),
    Headline(
        "Comparison, width 14 (our task)",
        _SUCCESS,
        "memory",
        "comparison-lstm-long-dense",
        {"comparison-none-dense": "no memory"},
    ),
    Headline(
        "Box-World 8x8, held-out levels",
        _SUCCESS,
        "box_world",
        "fast",
        {"convolutional": "CNN"},
        _on_levels("new levels"),
    ),
    Headline(
        "Box-World 8x8, held-out colour pairs",
        _SUCCESS,
        "box_world",
        "fast",
        {"convolutional": "CNN"},
        _on_levels("held-out pairs"),
    ),
    Headline(
        "Atari 100k, Alien",
        "game score",
        "atari",
        "atari",
        value=_score,
        other="DrQ, [published](https://arxiv.org/abs/2004.13649): 771.2",
    ),
    Headline(
        "MNIST, shifted, rotated and noisy digits",
        "accuracy",
        "mnist",
        "fast",
        {"book-cnn": "the book's CNN"},
        _accuracy("test/perturbed", ".2f"),
        unit="updates",
    ),
    Headline(
        "Sort-of-CLEVR, relational questions",
        "accuracy",
        "sort_of_clevr",
        "fast",
        {"cnn": "CNN"},
        _accuracy("test/relational"),
        unit="updates",
    ),
    Headline(
        "Nth farthest of 4 vectors, Relational Memory Core",
        "accuracy",
        "nth_farthest",
        "fast",
        {"fast-lstm": "LSTM", "fast-transformer": "causal transformer"},
        _accuracy("eval/accuracy"),
        unit="updates",
        page="relational_memory",
    ),
    Headline(
        "Graph connectivity, graphs twice as large as in training",
        "accuracy",
        "graphs",
        "fast",
        {"without-edges": "attention without edges"},
        _accuracy("test/larger", ".2f"),
        other="best guess without edges: 61.90 %",
        unit="updates",
    ),
    Headline(
        "Walker2d, our own medium-replay data, preset `transformer`",
        "return",
        "offline",
        "transformer-walker2d-medium-replay-v0",
        {
            "bc-10-walker2d-medium-replay-v0": (
                "behaviour cloning of the best episodes, 10 % of the steps"
            ),
            "dense-walker2d-medium-replay-v0": "preset `dense`",
        },
        _return_at_highest_target,
        unit="updates",
        page="decision_transformer",
    ),
)


def headlines():
    """Return the rows of the README's table."""
    return [headline.row() for headline in HEADLINES]
