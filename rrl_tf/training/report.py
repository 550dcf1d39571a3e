"""Write `report.html`, a self-contained page about a finished run."""

from __future__ import annotations

import base64
import datetime
import html
import io
import pathlib
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

import rrl_tf
from rrl_tf import viz
from rrl_tf._atomic import atomic_file
from rrl_tf.training.devices import hardware
from rrl_tf.training.run_folder import RunFolder, flatten

CURVES = 8
"""Maximum number of learning curves in a report; evaluation metrics come first."""
_CURVE_INCHES = 4.6, 2.3  # fills a column of the page, so that the text keeps its size

MEANINGS = {
    "rollout/success": "fraction of the last 100 training episodes that succeed",
    "rollout/return": "mean return of the last training episodes",
    "rollout/length": "mean length of the last training episodes",
    "train/loss": "loss on training batches",
    "train/accuracy": "fraction of correct answers on training batches",
    "train/q_mean": "mean Q value",
    "train/gradient_norm": "norm of the gradient before clipping",
    "train/epsilon": "probability of a random action",
    "train/updates": "gradient steps so far",
    "train/learning_rate": "learning rate of the optimizer",
    "eval/success": "fraction of evaluation episodes that succeed with greedy actions",
    "eval/return": "mean return of the evaluation episodes",
    "eval/episode_length": "mean length of the evaluation episodes",
    "eval/solved_length": "mean length of the evaluation episodes that succeed",
    "eval/success_epsilon_0.05": "fraction that succeeds with 5 % random actions",
    "eval/return_epsilon_0.05": "mean return with 5 % random actions",
    "eval/loops": "fraction of greedy episodes that return to an earlier state",
    "eval/level": "number of the curriculum level that was evaluated",
    "eval/loss": "loss on held-out data",
    "eval/accuracy": "fraction of correct answers on held-out data",
    "time/steps_per_second": "training steps per second",
    "time/cpu_minutes": "CPU time of the run so far",
    "time/epoch": "wall-clock seconds since the previous entry",
    "time/epoch_cpu": "CPU seconds since the previous entry",
}
"""Name of a metric -> its meaning in a caption. docs/how_to/log.md describes all metrics."""

_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; }}
body {{ padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }}
h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; font-size: .875rem; }}
td, th {{ text-align: left; padding: .2rem 1rem .2rem 0; vertical-align: top; }}
td {{ font-variant-numeric: tabular-nums; }}
td:last-child {{ overflow-wrap: anywhere; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
pre {{ padding: .75rem; border: 1px solid #8886; border-radius: .4rem; }}
figure {{ margin: 0 0 1rem; }}
img {{ max-width: 100%; background: white; border-radius: .4rem; }}
figcaption {{ font-size: .875rem; opacity: .75; }}
.curves {{ display: grid; gap: 1rem; }}
.curves {{ grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); }}
</style>
<h1>{title}</h1>
<p>{sentence}</p>
"""
_PAGE = (
    _HEAD
    + """{about}
<h2>Outcome</h2>
{outcome}
<h2>Pictures</h2>
{pictures}
<h2>Curves</h2>
<div class="curves">
{curves}
</div>
{constant}
<h2>Next steps</h2>
<pre>{commands}</pre>
<h2>Settings</h2>
{settings}
</html>
"""
)


def write_report(
    folder: RunFolder,
    sentence: str,
    summary: Mapping[str, Any],
    settings: Mapping[str, Any],
    rows: Sequence[Mapping[str, float]],
    *,
    wall_time: str = "unknown",
    labels: Mapping[str, str] | None = None,
) -> pathlib.Path:
    """Write a page with the results, figures, learning curves and settings of a run.

    Args:
        folder: the run folder, which contains the figures.
        sentence: summary of the results. Lines that begin with a space are left out, because the
            tables show the same numbers.
        summary: results, a dict of numbers and nested dicts. An entry that is a dict of dicts
            becomes a separate table with one row per inner dict.
        settings: the run's configuration.
        rows: entries of the run's log.
        wall_time: wall-clock time of the run.
        labels: dict name of such an entry → title of the first column of its table; by default the
            name.

    Returns:
        Path of the page.

    Example:
        >>> folder = RunFolder("runs/mine", {"seed": 1})
        >>> rows = [{"step": 100, "eval/success": 0.0}, {"step": 200, "eval/success": 0.5}]
        >>> write_report(folder, "greedy: 24/48 solved", {"success": 0.5}, {"seed": 1}, rows)
        PosixPath('runs/mine/report.html')
    """
    files = sorted(path for path in folder.figures.glob("*") if path.suffix in (".png", ".gif"))
    lines = [html.escape(line) for line in sentence.splitlines() if not line.startswith(" ")]
    metrics = _metrics(rows)
    changing = [name for name, (_, values) in metrics.items() if np.ptp(values)]
    constant = [f"{name} {metrics[name][1, 0]:g}" for name in metrics if name not in changing]
    curves = [_curve(name, *metrics[name]) for name in changing[:CURVES]]
    text = _PAGE.format(
        title=html.escape(folder.path.name),
        sentence="<br>".join(lines),
        about=_table({**_about(), "wall time": wall_time}),
        outcome=_outcome(summary, labels or {}),
        pictures="\n".join(map(_picture, files)) or "<p>No pictures.</p>",
        curves="\n".join(curves) or "<p>No metric has two different values.</p>",
        constant=f"<p>Constant: {html.escape(', '.join(constant))}</p>" if constant else "",
        commands=html.escape("\n".join(_commands(folder))),
        settings=_table(settings),
    )
    file = folder.path / "report.html"
    with atomic_file(file) as draft:
        draft.write_text(text)
    return file


def write_page(
    file: pathlib.Path,
    title: str,
    sentence: str,
    sections: Mapping[str, tuple[pathlib.Path, Sequence[Mapping[str, Any]]]],
) -> pathlib.Path:
    """Write a self-contained page with a figure and a table in each section.

    Args:
        file: path of the page.
        title: its title.
        sentence: text below the title.
        sections: dict heading -> path of a figure with a caption, and the rows of a table.

    Returns:
        Path of the page.
    """
    text = _HEAD.format(title=html.escape(title), sentence=html.escape(sentence))
    for heading, (picture, rows) in sections.items():
        table = [_row(list(rows[0]), "th")] if rows else []
        table += [_row([_shown(cell) for cell in row.values()]) for row in rows]
        text += f"<h2>{html.escape(heading)}</h2>\n{_picture(picture)}\n"
        text += f"<table>{''.join(table)}</table>\n"
    with atomic_file(file) as draft:
        draft.write_text(f"{text}</html>\n")
    return file


def _about() -> dict[str, str]:
    """Return when, with which versions, on which hardware and by which command a run finished."""
    versions = {"rrl_tf": rrl_tf, "TensorFlow": tf, "Keras": keras}
    return {
        "finished": f"{datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
        "command": _command() or "none; trained from Python",
        "versions": ", ".join(f"{name} {each.__version__}" for name, each in versions.items()),
        "hardware": hardware(),
    }


def _outcome(summary: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Return a table of the results, and a table of each result that is a dict of dicts."""
    tables = {
        name: rows
        for name, rows in summary.items()
        if isinstance(rows, Mapping) and rows and all(isinstance(r, Mapping) for r in rows.values())
    }
    text = ""
    for name, rows in tables.items():
        columns = list(dict.fromkeys(column for row in rows.values() for column in row))
        titles = [title.replace("_", " ") for title in (labels.get(name, name), *columns)]
        lines = [
            [key, *(_shown(row.get(each, "")) for each in columns)] for key, row in rows.items()
        ]
        text += f"<table>{_row(titles, 'th')}{''.join(map(_row, lines))}</table><br>"
    return text + _table({name: value for name, value in summary.items() if name not in tables})


def _table(values: Mapping[str, Any]) -> str:
    """Return an HTML table of nested dicts."""
    rows = ""
    for name, value in flatten(values).items():
        is_never = value is None and name.startswith("first_")
        rows += _row([name, "never" if is_never else _shown(value)])
    return f"<table>{rows}</table>"


def _row(cells: Sequence[str], tag: str = "td") -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _picture(path: pathlib.Path) -> str:
    """Return a picture, with the caption that its file contains."""
    with Image.open(path) as image:
        found = image.info.get("Description") or image.info.get("comment", b"").decode()
    return _figure(path.read_bytes(), path.suffix[1:], path.stem.replace("_", " "), found)


def _figure(content: bytes, kind: str, name: str, meaning: str) -> str:
    name, meaning = html.escape(name), html.escape(meaning)
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    caption = f"<figcaption><b>{name}</b> {meaning}</figcaption>"
    return f'<figure><img src="{source}" alt="{name}">{caption}</figure>'


def _metrics(rows: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """Return points `(2, P)` of the metrics with at least two values, evaluation first."""
    groups = ("eval", "rollout", "train", "time")
    names = dict.fromkeys(name for row in rows for name in row if name.split("/")[0] in groups)
    points = {
        name: [(row["step"], row[name]) for row in rows if np.isfinite(row.get(name, np.nan))]
        for name in sorted(names, key=lambda name: groups.index(name.split("/")[0]))
    }
    return {name: np.array(each, "float64").T for name, each in points.items() if len(each) > 1}


def _curve(name: str, steps: np.ndarray, values: np.ndarray) -> str:
    figure = viz.learning_curves({name: (steps, values[None])}, "", xlabel="step")
    figure.legends.clear()  # the caption names the metric
    figure.set_size_inches(_CURVE_INCHES)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return _figure(file.getvalue(), "png", name, MEANINGS.get(name, ""))


def _command() -> str:
    """Return the command of this process, or an empty string in a notebook or a Python shell."""
    program, *options = sys.orig_argv[1:] or [""]
    if program == "-m":
        return shlex.join(["python", "-m", *options])
    name = pathlib.Path(program).name
    return shlex.join([name, *options]) if name.startswith("rrl-") else ""


def _commands(folder: RunFolder) -> Iterator[str]:
    """Yield commands that show the log of the run and serve its export."""
    yield shlex.join(["python", "-m", "tensorboard.main", "--logdir", str(folder.path)])
    if folder.export.is_dir():
        options = [f"--model_name={folder.path.name}", f"--model_base_path={folder.export}"]
        yield shlex.join(["python", "-m", "serving.server", *options, "--rest_api_port=8501"])
