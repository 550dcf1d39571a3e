"""The log of a run: `metrics.csv`, TensorBoard, Weights & Biases and MLflow.

`MetricsLog` writes the CSV file and calls the loggers. A new logger is a subclass of `Logger` with
an entry in `LoggerName` and `_LOGGERS`.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import importlib.util
import math
import os
import pathlib
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import tensorflow as tf
from PIL import Image

from rrl_tf._arguments import one_of
from rrl_tf.errors import InvalidInput
from rrl_tf.training.run_folder import atomic_file, read_object, write_json

LoggerName: TypeAlias = Literal["csv", "tensorboard", "wandb", "mlflow"]
_PACKAGES = ("wandb", "mlflow")


class Logger:
    """Base class of loggers; every method does nothing.

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
        """Log a row of metrics."""

    def image(self, step: int, name: str, image: np.ndarray) -> None:
        """Log a picture, uint8 RGB `(height, width, 3)`."""

    def film(self, step: int, name: str, file: pathlib.Path) -> None:
        """Log a GIF file, which the run may overwrite later."""

    def close(self) -> None:
        """Close the log of a finished run."""


class TensorBoardLogger(Logger):
    """Event files in the run's folder.

    Settings are under *Text*, and under *HParams*, which compares runs by settings and metrics.
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
            api.hparams(_plain(config))

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


class WandbLogger(Logger):
    """A run of Weights & Biases, in the project named after the parent of the run's folder.

    `WANDB_PROJECT` names another project, and `WANDB_MODE=offline` keeps everything in the run's
    folder. Rows after the last checkpoint are logged again when a run resumes. A process has one
    such run at a time; opening another run ends the previous one.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._wandb = importlib.import_module("wandb")
        known = _service_ids(folder).get("wandb")
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT") or _group(folder),
            name=folder.name,
            id=known,
            resume="allow",
            dir=str(folder),
            reinit="finish_previous",
        )
        if known is None:
            _store_service_id(folder, "wandb", self._run.id)
        # The service's own steps cannot decrease, but ours do after a resume.
        self._run.define_metric("*", step_metric="step")

    def settings(self, config: Mapping[str, Any]) -> None:
        self._run.config.update(_plain(config), allow_val_change=True)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({"step": step, **metrics})

    def image(self, step: int, name: str, image: np.ndarray) -> None:
        self._run.log({"step": step, name: self._wandb.Image(image)})

    def film(self, step: int, name: str, file: pathlib.Path) -> None:
        self._run.log({"step": step, name: self._wandb.Video(str(file), format="gif")})

    def close(self) -> None:
        self._run.finish()


class MlflowLogger(Logger):
    """A run of MLflow, in the experiment named after the parent of the run's folder.

    `MLFLOW_EXPERIMENT_NAME` names another experiment, and `MLFLOW_TRACKING_URI` the server.
    MLflow's parameters keep their first value; the artifact `config.json` has the current one.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._entities = importlib.import_module("mlflow.entities")
        self._client = importlib.import_module("mlflow").MlflowClient()
        self._run_id = _service_ids(folder).get("mlflow")
        if self._run_id is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _group(folder)
            found = self._client.get_experiment_by_name(name)
            experiment = found.experiment_id if found else self._client.create_experiment(name)
            self._run_id = self._client.create_run(experiment, run_name=folder.name).info.run_id
            _store_service_id(folder, "mlflow", self._run_id)
        self._client.update_run(self._run_id, status="RUNNING")

    def settings(self, config: Mapping[str, Any]) -> None:
        plain = _plain(config)
        known = self._client.get_run(self._run_id).data.params
        new = [self._entities.Param(k, str(v)) for k, v in plain.items() if k not in known]
        self._client.log_batch(self._run_id, params=new)
        self._client.log_dict(self._run_id, plain, "config.json")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        now = time.time_ns() // 1_000_000
        values = [self._entities.Metric(k, float(v), now, step) for k, v in metrics.items()]
        self._client.log_batch(self._run_id, metrics=values)

    def image(self, step: int, name: str, image: np.ndarray) -> None:
        self._client.log_image(self._run_id, image, key=name, step=step)

    def film(self, step: int, name: str, file: pathlib.Path) -> None:
        self._client.log_artifact(self._run_id, str(file), f"films/{step}")

    def close(self) -> None:
        self._client.set_terminated(self._run_id)


# Files come last: a service that refuses the run must not leave an event file behind.
_LOGGERS: Mapping[str, Any] = {
    "mlflow": MlflowLogger,
    "wandb": WandbLogger,
    "tensorboard": TensorBoardLogger,
}


def check_loggers(names: Collection[str]) -> None:
    """Raise `InvalidInput` for an unknown logger, or one whose package is not installed."""
    for name in names:
        one_of("logger", name, get_args(LoggerName))
        if name in _PACKAGES:
            found = importlib.util.find_spec(name)
            if found is None or found.origin is None:  # a plain folder of that name has no origin
                raise InvalidInput(f"logger {name} needs pip install '.[{name}]'")


def make_loggers(names: Collection[str], folder: str | os.PathLike) -> list[Logger]:
    """Open the loggers of a run; a resumed run continues in the same run of each service.

    Args:
        names: of `LoggerName`. `csv` opens nothing, because `MetricsLog` always writes
            `metrics.csv`.
        folder: the run's folder.

    Raises:
        InvalidInput: if a service refuses the run; the loggers opened so far are closed.

    Example:

    >>> loggers = make_loggers(["csv", "tensorboard"], "runs/first")
    >>> [type(logger).__name__ for logger in loggers]
    ['TensorBoardLogger']
    """
    opened: list[Logger] = []
    for name, logger in _LOGGERS.items():
        if name in names:
            try:
                opened.append(logger(pathlib.Path(folder)))
            except Exception as error:  # a service can raise any error
                for other in opened:
                    with contextlib.suppress(Exception):
                        other.close()
                first_line = (str(error).strip().splitlines() or [""])[0]
                raise InvalidInput(
                    f"logger {name} cannot be opened; if its service has lost this run, remove "
                    f"{_IDS} to start a new log; received {type(error).__name__}: {first_line}"
                ) from error
    return opened


_IDS = "loggers.json"
"""File in the run's folder with the id that each service gave the run."""


def _service_ids(folder):
    file = folder / _IDS
    return read_object(file, "remove it to start a new log") if file.exists() else {}


def _store_service_id(folder, name, service_id):
    write_json(folder / _IDS, {**_service_ids(folder), name: service_id})


def _group(folder):
    """Return `doorkey` for `runs/doorkey/fast-seed0`."""
    return folder.absolute().parent.name or "runs"


def _plain(config):
    """Return settings as numbers and texts, which every service accepts."""
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in config.items()
    }


class MetricsLog:
    """Writes rows of metrics to `metrics.csv`, and passes everything on to loggers.

    Names start with `rollout/`, `train/`, `eval/` or `time/`. The CSV file is replaced as a whole
    after every row, so it is always complete. A logger that raises an error is removed with a
    warning, because a failing service must not end a long run.

    Args:
        folder: the run's folder; created if it does not exist.
        until_step: int or None; later rows of a previous attempt are dropped, because the resumed
            run writes them again. `None` keeps all rows.
        loggers: `Logger` objects; by default TensorBoard event files in the folder.

    Attributes:
        rows: list of dicts name → number, each with its `"step"`.
        loggers: list of the loggers that still work.

    Raises:
        InvalidInput: if there is a damaged `metrics.csv`.

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
        """Add a row.

        Args:
            step: environment steps or updates so far.
            metrics: name → number.

        Raises:
            InvalidInput: if a metric is not a number; nothing is written.
        """
        cells = {name: _rounded(name, value) for name, value in metrics.items()}
        rows = [*self.rows, {"step": step, **cells}]
        names = list(dict.fromkeys(name for row in rows for name in row))
        with atomic_file(self._file) as draft, draft.open("w", newline="") as file:
            table = csv.DictWriter(file, names, lineterminator="\n")
            table.writeheader()
            table.writerows({k: f"{v:.15g}" for k, v in row.items()} for row in rows)
        self.rows = rows
        self._call_loggers("write", step, metrics)

    def image(self, step: int, name: str, image: np.ndarray) -> None:
        """Log a picture, uint8 RGB `(height, width, 3)`."""
        self._call_loggers("image", step, name, image)

    def film(self, step: int, name: str, file: str | os.PathLike) -> None:
        """Log a GIF file."""
        self._call_loggers("film", step, name, pathlib.Path(file))

    def settings(self, config: Mapping[str, Any]) -> None:
        """Log the run's configuration."""
        self._call_loggers("settings", config)

    def close(self) -> None:
        """Close all loggers, because the run is finished."""
        self._call_loggers("close")
        self.loggers = []

    def _call_loggers(self, method: str, *arguments: Any) -> None:
        for logger in list(self.loggers):
            try:
                getattr(logger, method)(*arguments)
            except Exception as error:  # a service can raise any error
                self.loggers.remove(logger)
                warnings.warn(
                    f"the run continues without {type(logger).__name__}; received "
                    f"{type(error).__name__}: {error}",
                    stacklevel=3,
                )


def _read_rows(file):
    try:
        with file.open(newline="") as handle:
            rows = [
                {name: float(cell) for name, cell in row.items() if cell != ""}
                for row in csv.DictReader(handle, strict=True)
            ]
        if not rows or any("step" not in row for row in rows):
            raise ValueError("a row has no step")
    except (ValueError, TypeError, csv.Error) as error:  # rows of the wrong length have None
        raise InvalidInput(
            f"{file} is not a log of metrics ({error}); remove it to resume without its rows"
        ) from error
    return rows


def _rounded(name, value):
    """Return a metric with six digits, as in the file, so that resumed runs see the same value."""
    try:
        value = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"metric {name!r} must be a number; received {value!r:.40}") from error
    return value if math.isfinite(value) and value == int(value) else float(f"{value:.6g}")
