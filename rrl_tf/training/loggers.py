"""Log the metrics of a run to `metrics.csv`, TensorBoard and custom loggers.

`MetricsLog` writes the CSV file and calls the loggers, which are subclasses of `Logger`.
"""

from __future__ import annotations

import contextlib
import csv
import math
import os
import pathlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from rrl_tf._atomic import atomic_file
from rrl_tf.errors import InvalidInput


class Logger:
    """Base class of loggers. Its methods do nothing; override those that you need.

    Example:

    >>> class PrintLogger(Logger):
    ...     def write(self, step, metrics):
    ...         print(step, metrics)
    >>> from rrl_tf.training import MetricsLog
    >>> log = MetricsLog("runs/first", loggers=[PrintLogger()])
    >>> log.write(100, {"train/loss": 0.5})
    100 {'train/loss': 0.5}
    """

    def settings(self, config: Mapping[str, Any]) -> None:
        """Log the run's configuration when it starts or resumes."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of one step."""

    def image(self, step: int, name: str, image: np.ndarray) -> None:
        """Log an image, uint8 RGB `(height, width, 3)`."""

    def film(self, step: int, name: str, file: pathlib.Path) -> None:
        """Log an animation. Read the GIF file at once, because the run may overwrite it later."""

    def close(self) -> None:
        """Close the logger at the end of the run."""


class TensorBoardLogger(Logger):
    """Writes TensorBoard event files to the run's folder.

    The configuration appears in the tabs *Text* and *HParams*; *HParams* compares runs.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._writer = tf.summary.create_file_writer(str(folder))

    @contextlib.contextmanager
    def _step(self, step: int) -> Iterator[None]:
        with self._writer.as_default(step=step):
            yield
        self._writer.flush()

    def settings(self, config: Mapping[str, Any]) -> None:
        from tensorboard.plugins.hparams import api

        rows = "\n".join(f"| {name} | {value} |" for name, value in config.items())
        with self._step(0):
            tf.summary.text("config", f"| setting | value |\n|---|---|\n{rows}")
            kinds = bool | int | float | str
            api.hparams({k: v if isinstance(v, kinds) else str(v) for k, v in config.items()})

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        with self._step(step):
            for name, value in metrics.items():
                tf.summary.scalar(name, value)

    def image(self, step: int, name: str, image: np.ndarray) -> None:
        with self._step(step):
            tf.summary.image(name, image[None])

    def film(self, step: int, name: str, file: pathlib.Path) -> None:
        # TensorBoard shows a GIF under Images, but tf.summary.image can only write PNG.
        from tensorboard.plugins.image import metadata

        with Image.open(file) as picture:
            size = [str(side).encode() for side in picture.size]
        about = metadata.create_summary_metadata(display_name=None, description=None)
        with self._step(step):
            tf.summary.write(name, tf.constant([*size, file.read_bytes()]), metadata=about)

    def close(self) -> None:
        self._writer.close()


class MetricsLog:
    """Writes metrics to `metrics.csv`, and passes all logged data on to loggers.

    Names of metrics start with `rollout/`, `train/`, `eval/` or `time/`. The CSV file is replaced
    as a whole after every entry, so it is always complete. A logger that raises an exception is
    removed with a warning, so that a failing service does not stop a long run.

    Args:
        folder: the run's folder; created if it does not exist.
        until_step: step of the checkpoint that the run resumes from. Later entries are dropped,
            because the resumed run writes them again. `None` keeps all entries.
        loggers: `Logger` objects; by default one `TensorBoardLogger` for the folder.

    Attributes:
        rows: list of log entries, dicts name → number that include `"step"`.
        loggers: list of the loggers that have not raised an exception.

    Raises:
        InvalidInput: if the folder contains a damaged `metrics.csv`.

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
        default = [TensorBoardLogger(self._file.parent)] if loggers is None else loggers
        self.loggers: list[Logger] = list(default)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a log entry, or add metrics to the last entry if it has the same step.

        Args:
            step: number of environment steps or updates so far.
            metrics: name → number.

        Raises:
            InvalidInput: if a metric is not a number; nothing is written.
        """
        cells = {name: _rounded(name, value) for name, value in metrics.items()}
        *earlier, last = self.rows or [{"step": step}]
        rows = (
            [*earlier, last | cells]
            if last["step"] == step
            else [*self.rows, {"step": step, **cells}]
        )
        names = list(dict.fromkeys(name for row in rows for name in row))
        with atomic_file(self._file) as draft, draft.open("w", newline="") as file:
            table = csv.DictWriter(file, names, lineterminator="\n")
            table.writeheader()
            table.writerows({k: f"{v:.15g}" for k, v in row.items()} for row in rows)
        self.rows = rows
        self._call_loggers("write", step, metrics)

    def image(self, step: int, name: str, image: np.ndarray) -> None:
        """Log an image, uint8 RGB `(height, width, 3)`."""
        self._call_loggers("image", step, name, image)

    def film(self, step: int, name: str, file: str | os.PathLike) -> None:
        """Log an animation from a GIF file."""
        self._call_loggers("film", step, name, pathlib.Path(file))

    def settings(self, config: Mapping[str, Any]) -> None:
        """Log the run's configuration."""
        self._call_loggers("settings", config)

    def close(self) -> None:
        """Close all loggers at the end of the run."""
        self._call_loggers("close")
        self.loggers = []

    def _call_loggers(self, method: str, *arguments: Any) -> None:
        for logger in list(self.loggers):
            try:
                getattr(logger, method)(*arguments)
            except Exception as error:  # a service can raise any error
                self.loggers.remove(logger)
                warnings.warn(
                    f"{type(logger).__name__} raised {type(error).__name__}: {error}; the run "
                    "continues without this logger",
                    stacklevel=3,
                )


def _read_rows(file):
    try:
        with file.open(newline="") as handle:
            rows = [
                {name: float(cell) for name, cell in row.items() if cell != ""}
                for row in csv.DictReader(handle, strict=True)
            ]
        if not rows:
            raise ValueError("it has no rows")
        if any("step" not in row for row in rows):
            raise ValueError("a row has no step")
    except (ValueError, TypeError, csv.Error) as error:  # None marks rows of the wrong length
        raise InvalidInput(
            f"{file} must be a CSV file of metrics ({error}); remove it to resume without the "
            "earlier metrics"
        ) from error
    return rows


def _rounded(name, value):
    """Round a metric to six digits, as in the file, so that resumed runs read the same value."""
    try:
        value = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"metric {name!r} must be a number; received {value!r:.40}") from error
    return value if math.isfinite(value) and value == int(value) else float(f"{value:.6g}")
