"""Write `report.html`, a self-contained page about a finished run."""

from __future__ import annotations

import base64
import html
import io
import pathlib
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rrl_tf import viz
from rrl_tf.training.run_folder import RunFolder, atomic_file, flatten

CURVES = 8
"""Maximum number of learning curves in a report; evaluation metrics come first."""

_PAGE = """<!doctype html>
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
td:last-child {{ font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }}
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
<h2>Outcome</h2>
{outcome}
<h2>Pictures</h2>
{pictures}
<h2>Curves</h2>
<div class="curves">
{curves}
</div>
<h2>Next steps</h2>
<pre>{commands}</pre>
<h2>Settings</h2>
{settings}
</html>
"""


def write_report(
    folder: RunFolder,
    sentence: str,
    summary: Mapping[str, Any],
    settings: Mapping[str, Any],
    rows: Sequence[Mapping[str, float]],
) -> pathlib.Path:
    """Write a page with the results, figures, learning curves and settings of a run.

    Args:
        folder: the run folder, which contains the figures.
        sentence: one-sentence summary of the results.
        summary: results, a dict of numbers and nested dicts.
        settings: the run's configuration.
        rows: entries of the run's log.

    Returns:
        Path of the page.

    Example:
        >>> folder = RunFolder("runs/mine", {"seed": 1})
        >>> rows = [{"step": 100, "eval/success": 0.0}, {"step": 200, "eval/success": 0.5}]
        >>> write_report(folder, "greedy: 24/48 solved", {"success": 0.5}, {"seed": 1}, rows)
        PosixPath('runs/mine/report.html')
    """
    files = sorted(path for path in folder.figures.glob("*") if path.suffix in (".png", ".gif"))
    pictures = [
        _figure(path.read_bytes(), path.suffix[1:], path.stem.replace("_", " ")) for path in files
    ]
    text = _PAGE.format(
        title=html.escape(folder.path.name),
        sentence=html.escape(sentence).replace("\n", "<br>"),
        outcome=_table(summary),
        pictures="\n".join(pictures) or "<p>No pictures.</p>",
        curves="\n".join(_curves(rows)) or "<p>No metric has two values.</p>",
        commands=html.escape("\n".join(_commands(folder))),
        settings=_table(settings),
    )
    file = folder.path / "report.html"
    with atomic_file(file) as draft:
        draft.write_text(text)
    return file


def _table(values: Mapping[str, Any]) -> str:
    """Return an HTML table of nested dicts."""
    rows = ""
    for name, value in flatten(values).items():
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        if value is None and name.startswith("first_"):
            shown = "never"
        rows += f"<tr><td>{html.escape(name)}</td><td>{html.escape(shown)}</td></tr>"
    return f"<table>{rows}</table>"


def _figure(content: bytes, kind: str, caption: str) -> str:
    caption = html.escape(caption)
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return (
        f'<figure><img src="{source}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'
    )


def _curves(rows: Sequence[Mapping[str, float]]) -> Iterator[str]:
    """Yield plots of the evaluation metrics, then of other metrics that are not constant."""
    groups = ("eval", "rollout", "train", "time")
    names = dict.fromkeys(name for row in rows for name in row if name.split("/")[0] in groups)
    drawn = 0
    for name in sorted(names, key=lambda name: groups.index(name.split("/")[0])):
        points = [(row["step"], row[name]) for row in rows if np.isfinite(row.get(name, np.nan))]
        if len(points) < 2 or drawn == CURVES:
            continue
        steps, values = np.array(points, "float64").T
        if np.ptp(values) == 0 and not name.startswith("eval/"):
            continue
        drawn += 1
        figure = viz.learning_curves({name: (steps, values[None])}, name, xlabel="step")
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=80)
        yield _figure(file.getvalue(), "png", name)


def _commands(folder: RunFolder) -> Iterator[str]:
    """Yield commands that resume the run, show its log and serve its export."""
    if sys.orig_argv[1:2] == ["-m"]:  # a script, not a notebook
        yield shlex.join(["python", *sys.orig_argv[1:]])
    yield shlex.join(["python", "-m", "tensorboard.main", "--logdir", str(folder.path)])
    if folder.export.is_dir():
        options = [f"--model_name={folder.path.name}", f"--model_base_path={folder.export}"]
        yield shlex.join(["python", "-m", "serving.server", *options, "--rest_api_port=8501"])
