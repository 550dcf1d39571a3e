"""Metrics as a CSV file and wherever else a run is logged to, under the same names."""

from __future__ import annotations

import csv
import math
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.training.loggers import Logger, TensorBoardLogger, first_line
from rrl_tf.training.run_folder import atomic_file


class MetricsLog:
    """Writes rows of metrics to `metrics.csv`, and tells everything to loggers.

    Names are grouped as `rollout/`, `train/`, `eval/` and `time/`. A metric that a row lacks
    stays an empty cell. The CSV file is replaced whole at every row, so it is never half-written.
    Rows of an earlier attempt are kept. It is what a run goes on from and is reported by, so it is
    written whatever else is: a logger that raises is warned of, and told nothing more.

    Args:
        folder: the run's folder, made when it is not there.
        until_step: int or None; rows of an earlier attempt beyond this step are dropped, since a
            resumed run writes them again. `None` keeps all.
        loggers: each a `Logger`; by default TensorBoard's event files in the folder.

    Attributes:
        rows: list of dicts name → number, each with its `"step"`.
        loggers: list of those that are still told.

    Raises:
        InvalidInput: if there is a `metrics.csv` that cannot be read.

    Example:
        >>> log = MetricsLog("runs/doorkey/first")
        >>> log.write(1000, {"train/loss": 0.5, "eval/success": 1.0})
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        until_step: int | None = None,
        loggers: Iterable[Logger] | None = None,
    ) -> None:
        self._file = pathlib.Path(folder) / "metrics.csv"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        rows = _read_rows(self._file) if self._file.exists() else []
        self.rows = [row for row in rows if until_step is None or row["step"] <= until_step]
        default = (TensorBoardLogger(self._file.parent),) if loggers is None else loggers
        self.loggers: list[Logger] = list(default)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Adds one row.

        Args:
            step: environment steps or updates.
            metrics: name → number.

        Raises:
            InvalidInput: if one is no number; nothing is written then.
        """
        rows = [*self.rows, {"step": step, **metrics}]
        cells = [{name: _short(name, value) for name, value in row.items()} for row in rows]
        names = list(dict.fromkeys(name for row in rows for name in row))
        with atomic_file(self._file) as draft, draft.open("w", newline="") as file:
            table = csv.DictWriter(file, names, lineterminator="\n")
            table.writeheader()
            table.writerows(cells)
        # As they will be read, so that what decides by them decides alike after a resume.
        self.rows.append({name: float(cell) for name, cell in cells[-1].items()} | {"step": step})
        self._tell(lambda logger: logger.write(step, metrics))

    def image(self, step: int, name: str, image: np.ndarray) -> None:
        """Shows a picture `(height, width, 3)` uint8."""
        self._tell(lambda logger: logger.image(step, name, image))

    def film(self, step: int, name: str, file: str | os.PathLike) -> None:
        """Shows a film, a GIF."""
        self._tell(lambda logger: logger.film(step, name, pathlib.Path(file)))

    def settings(self, config: Mapping[str, Any]) -> None:
        """Shows a run's configuration."""
        self._tell(lambda logger: logger.settings(config))

    def close(self) -> None:
        """Says that the run is finished, and no more comes."""
        self._tell(lambda logger: logger.close())
        self.loggers = []

    def _tell(self, what: Callable[[Logger], None]) -> None:
        """Tells all of them; what a service does must not end a run that may take days."""
        told, failed = [], []
        for logger in self.loggers:
            try:
                what(logger)
                told.append(logger)
            except Exception as error:  # whatever a service of others can raise
                failed.append((logger, error))
        self.loggers = told
        for logger, reason in failed:  # after all were told: a warning may be made an error
            warnings.warn(
                f"{type(logger).__name__} is told nothing more, and the run goes on without it; "
                f"received {type(reason).__name__}: {first_line(reason)}",
                stacklevel=3,
            )


def _read_rows(file):
    """The rows of a CSV file that `MetricsLog` wrote, or one clear error."""
    try:
        with file.open(newline="") as handle:
            table = csv.DictReader(handle, strict=True)
            rows = [
                {name: float(cell) for name, cell in row.items() if cell != ""} for row in table
            ]
            names = table.fieldnames
        if names is None:
            raise ValueError("it is empty")
        if "step" not in names or any("step" not in row for row in rows):
            raise ValueError("it has no step in every row")
    except (ValueError, TypeError, csv.Error) as error:  # a row too long or short is no number
        raise InvalidInput(
            f"{file} is not a log of metrics ({error}); remove it to go on without its rows"
        ) from error
    return rows


def _short(name, value):
    """Six significant digits; whole numbers as they are."""
    try:
        value = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"metric {name!r} must be a number; received {value!r:.40}") from error
    if math.isfinite(value) and value == int(value):
        return int(value)
    return f"{value:.6g}"
