"""One run, from the configuration to `evaluation.json`: what every script does beside training."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rrl_tf.training.config import RunConfig
from rrl_tf.training.folder_copy import packed, unpacked
from rrl_tf.training.loggers import make_loggers
from rrl_tf.training.metrics_log import MetricsLog
from rrl_tf.training.replicas import Replicas
from rrl_tf.training.report import write_report
from rrl_tf.training.run_folder import RunFolder

WITHOUT_EFFECT = ("name", "runs", "logger", "draw_every", "profile", "devices", "cluster")
"""Fields of configurations that say where a run is made and what is watched, and not what."""


class Run:
    """Opens the folder and the log of a run, new or to be continued, and finishes it.

    Opening writes the folder, so a script checks its data and builds its model before; a command
    that is rejected leaves nothing behind. A run that goes on is written to only when everything
    in its folder was read and its checkpoint taken up. How far a run has come is the step of its
    newest checkpoint. A run is over when it has come to `steps` or when `stop` says so, and
    finished when `finish` was called for that step.

    Of several hosts only the chief writes to the folder; the others go on from what it has there,
    in a temporary copy, so that they need not see its disk.

    Args:
        config: `RunConfig`.
        steps: the step to come to: updates, or environment steps.
        may_change: names of fields that may differ from the run that is continued.
        evaluated_with: names that may differ as well, such as how many episodes are played in the
            end: a run that was finished with others is over, and not finished.
        hints: name → what the error says where that differs from the run that is continued.
        identity: what else makes it the same run, such as a `checksum` of the data; JSON-able, and
            under names that no field has.
        defaults: of the identity: name → what is taken for it where a run that is gone on with has
            no such name, as it is older than that.
        stop: function of the log's rows, whether to stop before; such as an `EarlyStop`.
        restore: function of a step and a state that were given to `save`, which takes up the newest
            checkpoint; called where there is one.
        replicas: the devices and hosts that share the run, by default one.

    Attributes:
        config: see above.
        steps: see above.
        folder: `RunFolder`.
        replicas: see above.
        log: `MetricsLog`, with the rows up to `step`; of a run that is finished it is told to no
            logger any more.
        step: int, of the newest checkpoint; 0 in a new run.

    Raises:
        InvalidInput: if the folder holds another run, its files cannot be read, its checkpoint
            cannot be taken up, or a logger cannot be opened; a folder that was new is removed then,
            and another stays as it was.
        ValueError: if the identity has the name of a field, which would not be compared then.
        OSError: if the folder cannot be made or written.

    Example:
        >>> config = RunConfig(name="first", logger=("csv",))
        >>> run = Run(config, steps=100)
        >>> run.log.write(100, {"eval/success": 1.0})  # while it trains, now and then
        >>> run.save(100, {"agent": {"updates": 25}})
        >>> run.finish({"eval/success": 1.0}, "every start solved")
        step 100: every start solved
        written: runs/first/evaluation.json, runs/first/report.html
        >>> Run(config, steps=200, restore=lambda step, state: print(state))  # goes on
        {'agent': {'updates': 25}}
        Run('runs/first', step=100, steps=200)
    """

    def __init__(
        self,
        config: RunConfig,
        steps: int,
        *,
        may_change: Iterable[str] = (),
        evaluated_with: Iterable[str] = (),
        hints: Mapping[str, str] | None = None,
        identity: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        stop: Callable[[list[dict[str, float]]], bool] | None = None,
        restore: Callable[[int, dict[str, dict[str, Any]]], None] | None = None,
        replicas: Replicas | None = None,
    ) -> None:
        self.replicas = replicas or Replicas()
        self.config: Any = config  # a script's own, with more fields
        self.steps = steps
        self._stop = stop or (lambda rows: False)
        settings, identity = config.settings(), dict(identity or {})
        if taken := sorted(settings.keys() & identity.keys()):
            raise ValueError(f"identity must have names that no field has; received {taken}")
        made = [path for path in (config.path, *config.path.parents) if not path.exists()]
        self.folder = self._opened(
            config.path,
            settings | identity,
            (*WITHOUT_EFFECT, *may_change),
            {
                **{name: value for name, value in config.defaults().items() if name in settings},
                **(defaults or {}),
            },
            tuple(evaluated_with),
            hints,
        )
        self.step = self.folder.step
        self.log = MetricsLog(self.folder.path, until_step=self.step, loggers=())
        if restore is not None and (state := self.load()) is not None:
            with self.folder.restoring():
                restore(self.step, state)
        if self.replicas.is_chief and not self._is_done():
            with _removed_on_error(made):
                self.log.loggers = make_loggers(config.logger, self.folder.path)
            self.folder.write_config()
            self.log.settings(settings)

    def __repr__(self) -> str:
        path = str(self.folder.path)
        return f"{type(self).__name__}({path!r}, step={self.step}, steps={self.steps})"

    def _opened(self, path, *options):
        """The folder; what lies there decides on all hosts where the run goes on."""
        if self.replicas.is_chief:
            folder = RunFolder(path, *options)
            if self.replicas.hosts > 1:
                self.replicas.from_chief(packed(folder))
            return folder
        return RunFolder(unpacked(self.replicas.from_chief(b"")), *options)

    def load(self) -> dict[str, dict[str, Any]] | None:
        """The state in the newest checkpoint, as it was given to `save`; `None` in a new run."""
        return self.folder.load_checkpoint()

    def save(self, step: int, state: Mapping[str, Mapping[str, Any]], model: Any = None) -> None:
        """Writes a checkpoint (`RunFolder.save_checkpoint`) and notes its step."""
        if self.replicas.is_chief:
            self.folder.save_checkpoint(step, state, model)
        self.step = step

    def is_over(self, step: int | None = None) -> bool:
        """Whether there is nothing left to train, at `step` or at the newest checkpoint."""
        reached = self.step if step is None else step
        return reached >= self.steps or self._stop(self.log.rows)

    def is_finished(self) -> bool:
        """Whether there is nothing left to do; if so, says it."""
        done = self._is_done()
        if done:
            print(f"{self.folder.path} is trained already, to step {self.step:,}")
        return done

    def _is_done(self):
        return self.is_over() and self.folder.is_finished(self.step)

    def by_chief(self, action: Callable[..., object], *arguments: Any) -> None:
        """Has one host do what is to be done once, and the others wait for it."""
        if self.replicas.is_chief:
            action(*arguments)
        self.replicas.any(False)

    def finish(
        self, summary: Mapping[str, Any], report: str = "", written: Iterable[object] = ()
    ) -> None:
        """Writes `report.html` and, last of all, `evaluation.json`, and prints what came out.

        Args:
            summary: JSON-able outcome; the step is added.
            report: a sentence for the reader.
            written: paths of what was drawn and exported before.
        """
        outcome = {"step": self.step, **summary}
        page = write_report(self.folder, report, outcome, self.config.settings(), self.log.rows)
        self.log.close()  # before: a run that is marked as finished is logged to no more
        self.folder.finish(outcome)
        paths = [*written, self.folder.path / "evaluation.json", page]
        print(f"step {self.step:,}: {report}\nwritten: {', '.join(map(str, paths))}")


@contextlib.contextmanager
def _removed_on_error(made):
    """Removes the folder that is first, if any, and those of its parents that are empty then."""
    try:
        yield
    except BaseException:
        for path in made[:1]:
            shutil.rmtree(path, ignore_errors=True)
        for path in made[1:]:
            with contextlib.suppress(OSError):  # another run was begun there
                path.rmdir()
        raise
