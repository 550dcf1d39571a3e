"""Define `Run`, which opens, resumes and finishes a training run."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from rrl_tf import viz
from rrl_tf.training.config import RunConfig
from rrl_tf.training.devices import Replicas
from rrl_tf.training.loggers import MetricsLog, TensorBoardLogger
from rrl_tf.training.report import write_report
from rrl_tf.training.run_folder import RunFolder, unpack_folder
from rrl_tf.training.summary import MEASURES, evaluations, format_setup, hints

LogCallback: TypeAlias = Callable[[int, Mapping[str, float]], "bool | None"]
"""Function of the step and the metrics of a log entry. It may return True to stop the training."""


class Run:
    """Opens the folder and the log of a new or resumed run, and writes its results at the end.

    Validate the data and build the model before you open a run, so that an invalid command writes
    nothing. The folder of a resumed run is not changed until its files have been read and its
    checkpoint has been restored.

    Training ends when the run reaches `steps` or `stop` returns True (`is_over`). The run is
    finished when `finish` has also been called at that step (`is_finished`).

    With several hosts, only the chief writes to the folder. It sends a copy to the other hosts, so
    the hosts do not need a shared disk.

    Args:
        config: `RunConfig`; its `mutable_fields` and `evaluation_fields` may change when the run
            resumes.
        steps: length of the run in updates or environment steps.
        identity: JSON-serialisable values that must also be equal when the run resumes, such as a
            `checksum` of the data. Their names must differ from those of the fields of `config`.
        stop: function of the log entries that returns whether to stop early, such as `EarlyStop`.
        restore: function of the step and the state of the newest checkpoint. It is called if there
            is a checkpoint.
        replicas: devices and hosts that share the run; one device by default.
        setup: what the run prints at its start, a dict name → text, before the device and the
            folder.

    Attributes:
        folder: `RunFolder`.
        log: `MetricsLog` with the entries up to `step`. If the run is finished, it has no loggers.
        step: int, step of the newest checkpoint; 0 in a new run.

    Raises:
        InvalidInput: if the folder contains another run or damaged files, or the checkpoint cannot
            be restored. The folder is unchanged.
        OSError: if the folder cannot be created or written.

    Example:
        >>> config = RunConfig(name="first", logger=("csv",))
        >>> run = Run(config, steps=100, setup={"network": "mlp"})  # doctest: +ELLIPSIS
        network     mlp
        device      ...
        run folder  runs/first, step 0 of 100
        watch       runs/first/metrics.csv
        >>> run.log.write(100, {"eval/success": 1.0})
        >>> run.save(100, {"agent": {"updates": 25}})
        >>> run.finish({"eval/success": 1.0}, "greedy success 100 %")
        step 100: greedy success 100 %
        written: runs/first/evaluation.json, runs/first/report.html
        >>> run = Run(config, steps=200, restore=lambda step, state: print(state))  # resumes
        ... # doctest: +ELLIPSIS
        {'agent': {'updates': 25}}
        device ...
    """

    def __init__(
        self,
        config: RunConfig,
        steps: int,
        *,
        identity: Mapping[str, Any] | None = None,
        stop: Callable[[list[dict[str, float]]], bool] | None = None,
        restore: Callable[[int, dict[str, dict[str, Any]]], None] | None = None,
        replicas: Replicas | None = None,
        setup: Mapping[str, str] | None = None,
    ) -> None:
        self.replicas = replicas or Replicas()
        self.config: Any = config
        self.steps = steps
        self._stop = stop or (lambda rows: False)
        self.folder = self._open_folder(dict(**config.settings(), **(identity or {})))
        self.step = self.folder.step
        self._opened_at, self._opened_step = time.monotonic(), self.step
        self.log = MetricsLog(self.folder.path, until_step=self.step, loggers=())
        if restore is not None and (state := self.load()) is not None:
            with self.folder.restoring():
                restore(self.step, state)
        if self.is_finished():
            print(f"{self.folder.path} is already trained to step {self.step:,}")
        elif self.replicas.is_chief:
            if "tensorboard" in config.logger:
                self.log.loggers = [TensorBoardLogger(self.folder.path)]
            self.folder.write_config()
            self.log.settings(config.settings())
            self._print_setup(setup or {})

    def _print_setup(self, setup):
        path, logs = self.folder.path, self.folder.path / "metrics.csv"
        watched = f"python -m tensorboard.main --logdir {path}" if self.log.loggers else str(logs)
        place = {
            "device": str(self.replicas),
            "run folder": f"{path}, step {self.step:,} of {self.steps:,}",
            "watch": watched,
        }
        print(format_setup({**setup, **place}), flush=True)

    def __repr__(self) -> str:
        path = str(self.folder.path)
        return f"{type(self).__name__}({path!r}, step={self.step}, steps={self.steps})"

    def _open_folder(self, settings):
        """Return the run's folder, or a temporary copy of it on hosts that are not the chief."""
        path = self.config.path
        if not self.replicas.is_chief:
            path = unpack_folder(self.replicas.from_chief(b""))
        folder = RunFolder(
            path, settings, self.config.mutable_fields(), self.config.evaluation_fields()
        )
        if self.replicas.is_chief and self.replicas.hosts > 1:
            self.replicas.from_chief(folder.pack())
        return folder

    def load(self) -> dict[str, dict[str, Any]] | None:
        """Return the state of the newest checkpoint, or `None` in a new run."""
        return self.folder.load_checkpoint()

    def save(self, step: int, state: Mapping[str, Mapping[str, Any]], model: Any = None) -> None:
        """Write a checkpoint; see `RunFolder.save_checkpoint`."""
        if self.replicas.is_chief:
            self.folder.save_checkpoint(step, state, model)
        self.step = step

    def keep_best(self, model: Any) -> None:
        """Save `model` if `config.keep_best` and the newest log entry is the best evaluation."""
        name, found = evaluations(self.log.rows)
        if not (self.config.keep_best and self.replicas.is_chief and found):
            return
        kept = [row for row in found if row["step"] == self.best_step]
        newest, sign = self.log.rows[-1], MEASURES[name]
        if newest is found[-1] and (not kept or sign * newest[name] > sign * kept[0][name]):
            self.folder.save_best(int(newest["step"]), model)

    @property
    def best_step(self) -> int | None:
        """The step of the best evaluation whose model is kept, or `None`."""
        file = self.folder.best_file
        return int(file.stem.removeprefix("best-")) if file else None

    def is_over(self, step: int | None = None) -> bool:
        """Return whether training ends at `step`; `None` is the step of the newest checkpoint."""
        reached = self.step if step is None else step
        return reached >= self.steps or self._stop(self.log.rows)

    def is_finished(self) -> bool:
        """Return whether the run is trained and evaluated."""
        return self.is_over() and self.folder.is_finished(self.step)

    def by_chief(self, action: Callable[..., object], *arguments: Any) -> None:
        """Call `action` on the chief while the other hosts wait."""
        if self.replicas.is_chief:
            action(*arguments)
        self.replicas.any(False)

    def finish(
        self,
        summary: Mapping[str, Any],
        report: str = "",
        written: Iterable[object] = (),
        figures: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Write the figures, `report.html` and `evaluation.json`, and print a summary.

        Args:
            summary: JSON-serialisable results; the step is added to them.
            report: summary of the results in one sentence, and indented lines of details.
            written: paths of files that the caller has already written, to be printed.
            figures: dict name → `matplotlib.figure.Figure`, saved as PNG files.
            labels: titles of tables in the report; see `write_report`.
        """
        drawn = [
            viz.save_figure(figure, self.folder.figures / f"{name}.png")
            for name, figure in (figures or {}).items()
        ]
        outcome = {"step": self.step, **summary}
        seconds = datetime.timedelta(seconds=round(time.monotonic() - self._opened_at))
        page = write_report(
            self.folder,
            report,
            outcome,
            self.config.settings(),
            self.log.rows,
            wall_time=f"{seconds}, from step {self._opened_step:,} to {self.step:,}",
            labels=labels,
        )
        self.log.close()
        self.folder.finish(outcome)  # last: it marks the run as finished
        paths = [*drawn, *written, self.folder.path / "evaluation.json", page]
        print(f"step {self.step:,}: {report}\nwritten: {', '.join(map(str, paths))}")
        for hint in self._hints():
            print(f"hint: {hint}")

    def _hints(self):
        longer = "train longer, in a new run"
        if "steps" in self.config.mutable_fields():
            longer = f"continue with --steps {2 * self.steps}"
        return hints(self.log.rows, longer, self.best_step)


@dataclasses.dataclass(frozen=True)
class EarlyStop:
    """Early-stopping rule: decides from the log entries whether a metric has stopped improving.

    Because the decision depends on the log alone, a resumed run stops at the same step as an
    uninterrupted run.

    Attributes:
        monitor: name of the metric in the log.
        patience: number of entries without a better value after which training stops; 0 never
            stops.
        mode: whether lower (`"min"`) or higher (`"max"`) values are better. A value that is not
            finite is never better.

    Example:
        >>> EarlyStop("eval/loss", patience=1)([{"eval/loss": 1.0}, {"eval/loss": 2.0}])
        True
    """

    monitor: str
    patience: int
    mode: Literal["min", "max"] = "min"

    def __call__(self, rows: list[dict[str, float]]) -> bool:
        values = np.array([row[self.monitor] for row in rows if self.monitor in row])
        if not len(values) or not self.patience:
            return False
        values = values if self.mode == "min" else -values
        best = np.argmin(np.where(np.isfinite(values), values, np.inf))
        return len(values) - 1 - int(best) >= self.patience
