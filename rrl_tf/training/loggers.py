"""Where metrics, settings and pictures of a run go, beside its own `metrics.csv`.

A logger is told everything as it comes, by `MetricsLog`, and none knows of another. A new one is a
subclass of `Logger`, a name in `LoggerName`, and an entry in `_MAKERS`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import tensorflow as tf
from PIL import Image

from rrl_tf._arguments import one_of
from rrl_tf.errors import InvalidInput
from rrl_tf.training.run_folder import atomic_file, read_object

LoggerName: TypeAlias = Literal["csv", "tensorboard", "wandb", "mlflow"]
_PACKAGES = ("wandb", "mlflow")


class Logger:
    """What a run is logged to; this one passes over everything.

    Example:

    >>> class Printed(Logger):
    ...     def write(self, step, metrics):
    ...         print(step, metrics)
    >>> from rrl_tf.training import MetricsLog
    >>> log = MetricsLog("runs/first", loggers=[Printed()])
    >>> log.write(100, {"train/loss": 0.5})
    100 {'train/loss': 0.5}
    """

    def settings(self, config: Mapping[str, Any]) -> None:
        """The run's configuration, once a sitting."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """A row of metrics."""

    def image(self, step: int, name: str, image: np.ndarray) -> None:
        """A picture `(height, width, 3)`, uint8."""

    def film(self, step: int, name: str, file: pathlib.Path) -> None:
        """A film, as a GIF that may be written anew later."""

    def close(self) -> None:
        """The run is finished."""


def check_loggers(names: Iterable[str]) -> None:
    """Raises `InvalidInput` for a name that is none, or packages that are not installed."""
    named = [one_of("logger", name, get_args(LoggerName)) for name in names]
    missing = [name for name in _PACKAGES if name in named and not _is_installed(name)]
    if missing:
        raise InvalidInput(
            f"logger {' '.join(missing)} needs pip install '.[{','.join(missing)}]'; received a "
            f"Python without {' and '.join(missing)}"
        )


def _is_installed(name):
    found = importlib.util.find_spec(name)
    # A folder of that name, such as wandb leaves where it runs, has no origin.
    return found is not None and found.origin is not None


def make_loggers(names: Iterable[str], folder: str | os.PathLike) -> list[Logger]:
    """Opens what a run is logged to; one that has been before goes on in the same place.

    Args:
        names: of `LoggerName`. `csv` is `metrics.csv`, which `MetricsLog` writes in any case: by
            itself it means that nothing else is written.
        folder: the run's.

    Raises:
        InvalidInput: if a package is not installed, or its service refuses; those that were opened
            before are closed then.

    Example:

    >>> from rrl_tf.training import MetricsLog
    >>> loggers = make_loggers(["csv", "tensorboard"], "runs/first")
    >>> [type(logger).__name__ for logger in loggers]
    ['TensorBoardLogger']
    >>> log = MetricsLog("runs/first", loggers=loggers)
    """
    names = dict.fromkeys(names)
    check_loggers(names)
    path = pathlib.Path(folder)
    if any(name in _PACKAGES for name in names):
        _ids(path)  # what is wrong there is told before any is opened
    made: list[Logger] = []
    try:
        # Files last: what a service refuses must not have added any to a run that goes on.
        for name in sorted(names, key="tensorboard".__eq__):
            if name != "csv":
                made.append(_MAKERS[name](path))
    except BaseException:
        for logger in made:
            with contextlib.suppress(Exception):  # the first error is the one to be told
                logger.close()
        raise
    return made


class TensorBoardLogger(Logger):
    """Event files in the run's folder.

    Settings are shown under Text, as a table, and under HParams, which compares runs by them and
    by every metric that they wrote.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._writer = tf.summary.create_file_writer(str(folder))

    def settings(self, config: Mapping[str, Any]) -> None:
        # Imported here: it is TensorBoard's, which whoever only reads a log need not have.
        from tensorboard.plugins.hparams import api

        rows = "\n".join(f"| {name} | {value} |" for name, value in config.items())
        with self._writer.as_default(step=0):
            tf.summary.text("config", f"| setting | value |\n|---|---|\n{rows}")
            api.hparams(_plain(config))
        self._writer.flush()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        with self._writer.as_default(step=step):
            for name, value in metrics.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def image(self, step: int, name: str, image: np.ndarray) -> None:
        with self._writer.as_default(step=step):
            tf.summary.image(name, image[None])
        self._writer.flush()

    def film(self, step: int, name: str, file: pathlib.Path) -> None:
        # Under Images, which shows a GIF as what it is; tf.summary.image would write a PNG.
        from tensorboard.plugins.image import metadata

        with Image.open(file) as picture:
            size = [str(side).encode() for side in picture.size]
        about = metadata.create_summary_metadata(display_name=None, description=None)
        with self._writer.as_default(step=step):
            tf.summary.write(name, tf.constant([*size, file.read_bytes()]), metadata=about)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbLogger(Logger):
    """A run of Weights & Biases, in the project named after the folder that the run lies in.

    `WANDB_PROJECT` names another one, and `WANDB_MODE=offline` keeps everything in the run's own
    folder. What a sitting wrote after its last checkpoint comes twice, with the same step. A
    process has one such run at a time: the next ends the one before.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._wandb = _package("wandb")
        known = _ids(folder).get("wandb")
        try:
            self._run = self._wandb.init(
                project=os.environ.get("WANDB_PROJECT") or _group(folder),
                name=folder.name,
                id=known,
                resume="allow",
                dir=str(folder),
                reinit="finish_previous",  # such as this one's, where it was stopped in a notebook
            )
        except self._wandb.Error as error:
            raise _refused("wandb", error, known) from error
        if known is None:
            _remember(folder, "wandb", self._run.id)
        # Its own steps must not go back, as ours do when a run goes on from a checkpoint.
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
    """A run of MLflow, in the experiment named after the folder that the run lies in.

    `MLFLOW_EXPERIMENT_NAME` names another one, and `MLFLOW_TRACKING_URI` says where they are kept.
    MLflow's parameters are for ever those of the first sitting; what is in force is its artifact
    `config.json`.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        mlflow = _package("mlflow")
        self._entities = importlib.import_module("mlflow.entities")
        known = self._run_id = _ids(folder).get("mlflow")
        try:
            self._client = mlflow.MlflowClient()
            if self._run_id is None:
                name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _group(folder)
                experiment = self._client.get_experiment_by_name(name)
                place = experiment.experiment_id if experiment else self._make(name)
                self._run_id = self._client.create_run(place, run_name=folder.name).info.run_id
                _remember(folder, "mlflow", self._run_id)
            self._client.update_run(self._run_id, status="RUNNING")
        except mlflow.MlflowException as error:
            raise _refused("mlflow", error, known) from error

    def _make(self, name: str) -> str:
        return self._client.create_experiment(name)

    def settings(self, config: Mapping[str, Any]) -> None:
        plain = _plain(config)
        known = self._client.get_run(self._run_id).data.params
        new = [self._entities.Param(k, str(v)) for k, v in plain.items() if k not in known]
        self._client.log_batch(self._run_id, params=new)
        self._client.log_dict(self._run_id, plain, "config.json")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        now = time.time_ns() // 1_000_000
        told = [self._entities.Metric(k, float(v), now, step) for k, v in metrics.items()]
        self._client.log_batch(self._run_id, metrics=told)

    def image(self, step: int, name: str, image: np.ndarray) -> None:
        self._client.log_image(self._run_id, image, key=name, step=step)

    def film(self, step: int, name: str, file: pathlib.Path) -> None:
        self._client.log_artifact(self._run_id, str(file), f"films/{step}")

    def close(self) -> None:
        self._client.set_terminated(self._run_id)


_MAKERS: Mapping[str, Callable[[pathlib.Path], Logger]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
}
_IDS = "loggers.json"
"""Which run of a service this is, in its folder: name of the logger → the service's name of it."""


def _ids(folder):
    file, way_out = folder / _IDS, "remove it to log to new places"
    ids = read_object(file, way_out) if file.exists() else {}
    for name, place in ids.items():
        if not isinstance(place, str):
            raise InvalidInput(
                f"{file} must hold a text for {name!r}; {way_out}; received {place!r:.40}"
            )
    return ids


def _remember(folder, name, place):
    ids = {**_ids(folder), name: place}
    with atomic_file(folder / _IDS) as draft:
        draft.write_text(json.dumps(ids) + "\n")


def _group(folder):
    """`doorkey` of `runs/doorkey/fast-seed0`."""
    return folder.absolute().parent.name or "runs"


def _plain(config):
    """Settings as what every service takes: numbers, texts, and whatever else as text."""
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in config.items()
    }


def _package(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInput(
            f"logger {name} needs {error.name or name}: pip install '.[{name}]'; received {error}"
        ) from error


def _refused(name, error, known):
    hint = f"; if it has no run {known!r} any more, remove {_IDS} to log to new places"
    return InvalidInput(
        f"logger {name} must be ready to be written to{hint if known is not None else ''}; "
        f"received {first_line(error)}"
    )


def first_line(error: BaseException) -> str:
    """What an error says, without the paragraphs that services add."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
