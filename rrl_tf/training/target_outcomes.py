"""What came of asking for returns, in words and as a figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from rrl_tf import viz


def in_words(summary: Mapping[str, Any]) -> str:
    """The outcome in a few lines."""
    error = ", ".join(f"{value:.3g}" for value in summary["action_error"].values())
    lines = [
        f"{summary['data']}, mean return {_short(summary['data_return']['mean'])}, best "
        f"{_short(summary['data_return']['max'])}; action error by return, low to high: {error}"
    ]
    if "chosen_noise" in summary:
        tried = ", ".join(f"{k}: {_short(v)}" for k, v in summary["played_noise"].items())
        lines.append(f"  plays {summary['chosen_noise']:g} of the noise; returns of all: {tried}")
    for which in ("last", "best"):
        for target, row in summary.get(which, {}).items():
            more = [f"{name} {row[name]:.3g}" for name in ("success", "d4rl_score") if name in row]
            lines.append(
                f"  {which} weights, asked for {target}: {_short(row['return'])} ± "
                f"{_short(row['return_deviation'], 2)} in {row['length']:.0f} steps"
                + "".join(f", {part}" for part in more)
            )
    return "\n".join(lines)


def _short(value: float, digits: int = 4) -> str:
    """So many significant digits, and never an exponent in place of a digit before the point."""
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def draw_targets(summary: Mapping[str, Any]) -> Figure:
    """The figure of returns that were asked for and returns that were reached."""
    curves = {
        f"{which} weights": (
            [float(target) for target in summary[which]],
            [[row["return"] for row in summary[which].values()]],
        )
        for which in ("last", "best")
        if which in summary
    }
    title = f"{summary['data']}, {summary['environment']}"
    means = {"mean of the data": summary["data_return"]["mean"]}
    return viz.returns_figure({title: curves}, {title: means})
