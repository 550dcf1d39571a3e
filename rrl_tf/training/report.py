"""One page on a finished run, in a file of its own that needs no other: `report.html`."""

from __future__ import annotations

import base64
import html
import io
import pathlib
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rrl_tf import viz
from rrl_tf.training.run_folder import RunFolder, atomic_file

CURVES = 8
"""At most so many are drawn; what is evaluated comes first."""

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
<h2>Go on</h2>
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
    """Writes outcome, pictures, curves and settings of a run as one page, whole or not at all.

    Args:
        folder: of the run; its pictures are those that are there.
        sentence: the outcome in words.
        summary: the outcome, of numbers and further such dicts.
        settings: the run's configuration.
        rows: of its log.

    Returns:
        The file.

    Example:
        >>> folder = RunFolder("runs/mine", {"seed": 1})
        >>> rows = [{"step": 100, "eval/success": 0.0}, {"step": 200, "eval/success": 0.5}]
        >>> write_report(folder, "half of them solved", {"eval/success": 0.5}, {"seed": 1}, rows)
        PosixPath('runs/mine/report.html')
    """
    file = folder.path / "report.html"
    text = _PAGE.format(
        title=html.escape(folder.path.name),
        sentence=html.escape(sentence).replace("\n", "<br>"),
        outcome=_table(_flat(summary)),
        pictures="\n".join(map(_picture, _pictures(folder))) or "<p>None were drawn.</p>",
        curves="\n".join(_curves(rows)) or "<p>Nothing was logged twice.</p>",
        commands=html.escape("\n".join(_commands(folder))),
        settings=_table((name, str(value)) for name, value in settings.items()),
    )
    with atomic_file(file) as draft:
        draft.write_text(text)
    return file


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Names and values of dicts in dicts, as rows of a table."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}, ")
        else:
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
            never = name.startswith("first_") and value is None
            yield f"{above}{name}", "never" if never else shown


def _table(cells: Iterable[tuple[str, str]]) -> str:
    rows = (
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>"
        for name, value in cells
    )
    return f"<table>{''.join(rows)}</table>"


def _pictures(folder: RunFolder) -> list[pathlib.Path]:
    return sorted(path for path in folder.figures.glob("*") if path.suffix in (".png", ".gif"))


def _picture(path: pathlib.Path) -> str:
    return _image(path.read_bytes(), path.suffix.removeprefix("."), path.stem.replace("_", " "))


def _image(content: bytes, kind: str, caption: str) -> str:
    data = base64.b64encode(content).decode()
    caption = html.escape(caption)
    source = f"data:image/{kind};base64,{data}"
    return (
        f'<figure><img src="{source}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'
    )


def _curves(rows: Sequence[Mapping[str, float]]) -> Iterator[str]:
    """Pictures of what was evaluated, and of what else changed while it was logged."""
    names = [name for row in rows for name in row if name != "step"]
    groups = ("eval", "rollout", "train", "time")
    order = sorted(dict.fromkeys(names), key=lambda name: _place(groups, name.partition("/")[0]))
    drawn = 0
    for name in order:
        steps, values = _series(rows, name)
        if len(steps) < 2 or drawn == CURVES:
            continue
        if not name.startswith("eval/") and np.ptp(values) == 0:  # never solved is an outcome
            continue
        drawn += 1
        figure = viz.learning_curves({name: (steps, values[None])}, name, xlabel="step")
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=80)
        yield _image(file.getvalue(), "png", name)


def _place(groups: tuple[str, ...], group: str) -> int:
    return groups.index(group) if group in groups else len(groups)


def _series(rows: Sequence[Mapping[str, float]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of a metric, where it is a number."""
    found = [(row["step"], row[name]) for row in rows if name in row and np.isfinite(row[name])]
    steps, values = np.array(found, "float64").reshape(-1, 2).T
    return steps, values


def _commands(folder: RunFolder) -> Iterator[str]:
    """What a reader may type next; first, what trained the run and continues it."""
    path = shlex.quote(str(folder.path))
    if sys.orig_argv[1:2] == ["-m"]:  # a script; no notebook is begun again by its command
        yield shlex.join(["python", *sys.orig_argv[1:]])
    yield f"python -m tensorboard.main --logdir {path}"
    if folder.export.is_dir():
        name = shlex.quote(f"--model_name={folder.path.name}")
        base = shlex.quote(f"--model_base_path={folder.export}")
        yield f"python -m serving.server {name} {base} --rest_api_port=8501"
