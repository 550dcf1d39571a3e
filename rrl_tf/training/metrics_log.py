"""Metrics as a CSV file and as TensorBoard events, under the same names."""

from __future__ import annotations

import csv
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf.errors import InvalidInput
from rrl_tf.training.run_folder import atomic_file


class MetricsLog:
    """Writes rows of metrics to `metrics.csv` and to TensorBoard.

    Names are grouped as `rollout/`, `train/`, `eval/` and `time/`. A metric that a row lacks
    stays an empty cell. The CSV file is replaced whole at every row, so it is never half-written.
    Rows of an earlier attempt are kept.

    Args:
        folder: the run's folder, made when it is not there.
        until_step: int or None; rows of an earlier attempt beyond this step are dropped, since a
            resumed run writes them again. `None` keeps all.

    Attributes:
        rows: list of dicts name → number, each with its `"step"`.

    Raises:
        InvalidInput: if there is a `metrics.csv` that cannot be read.

    Example:
        >>> log = MetricsLog("runs/doorkey/first")
        >>> log.write(1000, {"train/loss": 0.5, "eval/success": 1.0})
    """

    def __init__(self, folder: str | os.PathLike, until_step: int | None = None) -> None:
        self._file = pathlib.Path(folder) / "metrics.csv"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        rows = _read_rows(self._file) if self._file.exists() else []
        self.rows = [row for row in rows if until_step is None or row["step"] <= until_step]
        self._writer = tf.summary.create_file_writer(str(self._file.parent))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Adds one row.

        Args:
            step: environment steps or updates.
            metrics: name → number.
        """
        self.rows.append({"step": step, **metrics})
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        with atomic_file(self._file) as draft, draft.open("w", newline="") as file:
            table = csv.DictWriter(file, names, lineterminator="\n")
            table.writeheader()
            table.writerows({k: _short(v) for k, v in row.items()} for row in self.rows)
        with self._writer.as_default(step=step):
            for name, value in metrics.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def image(self, step: int, name: str, image: np.ndarray) -> None:
        """Shows a picture `(height, width, 3)` uint8 in TensorBoard."""
        with self._writer.as_default(step=step):
            tf.summary.image(name, image[None])
        self._writer.flush()

    def settings(self, config: Mapping[str, Any]) -> None:
        """Shows a run's configuration in TensorBoard: as a table under Text, and under HParams.

        HParams compares runs by their settings and by every metric that they wrote.
        """
        # Imported here: it is TensorBoard's, which whoever only reads a log need not have.
        from tensorboard.plugins.hparams import api

        rows = "\n".join(f"| {name} | {value} |" for name, value in config.items())
        plain = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in config.items()
        }
        with self._writer.as_default(step=0):
            tf.summary.text("config", f"| setting | value |\n|---|---|\n{rows}")
            api.hparams(plain)
        self._writer.flush()


def _read_rows(file):
    """The rows of a CSV file that `MetricsLog` wrote, or one clear error."""
    try:
        with file.open(newline="") as handle:
            table = csv.DictReader(handle, strict=True)
            rows = [
                {name: float(cell) for name, cell in row.items() if cell != ""} for row in table
            ]
        if "step" not in (table.fieldnames or ()) or any("step" not in row for row in rows):
            raise ValueError("it has no step in every row")
    except (ValueError, TypeError, csv.Error) as error:  # a row too long or short is no number
        raise InvalidInput(
            f"{file} is not a log of metrics ({error}); remove it to go on without its rows"
        ) from error
    return rows


def _short(value):
    """Six significant digits; whole numbers as they are."""
    value = float(value)
    if math.isfinite(value) and value == int(value):
        return int(value)
    return f"{value:.6g}"
