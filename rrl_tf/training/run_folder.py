"""The folder of one run: configuration, checkpoints, figures; safe to kill at any moment."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from rrl_tf.errors import InvalidInput

# What taking up a damaged checkpoint raises.
_UNREADABLE = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, AssertionError),
    OverflowError,
    zipfile.BadZipFile,
)
# JSON that is nested too deeply, or what a ZIP file is said to be compressed by.
_UNREADABLE_FILE = (*_UNREADABLE, RuntimeError)

_REPLACED = ".replaced-"  # a checkpoint that makes way for one of the same step


class RunFolder:
    """`runs/<task>/<name>/` with `config.json`, `checkpoints/`, `figures/`, `export/`.

    Opening a folder that exists continues its run, so its configuration must be the same. It stays
    as it is until `write_config`, as there may be more that speaks against going on. Whatever is
    written is complete before it appears under its name.

    Args:
        path: the folder; made when it is not there.
        config: JSON-able dict, the run's configuration.
        may_change: names that may differ from the run that is continued (how long to train).
        defaults: name → what is taken for it where a run has no such name, as it is older; of a
            dict, for each of its names.
        evaluated_with: names that may differ as well: a finished run is evaluated again then.
        hints: name → what the error says where that differs, such as what may.

    Raises:
        InvalidInput: if the folder holds a run of another configuration (every difference is
            named), its configuration cannot be read or is gone, or another process is training
            there; it stays as it was.
        OSError: if the folder cannot be made or written.

    Example:
        >>> folder = RunFolder("runs/first", {"seed": 1, "steps": 500}, may_change=["steps"])
        >>> folder.save_checkpoint(500, {"agent": {"weights": np.ones(3), "updates": 100}})
        >>> with folder.restoring():  # a state that does not fit is one clear error
        ...     folder.load_checkpoint()["agent"]["updates"]
        100
    """

    def __init__(
        self,
        path: str | os.PathLike,
        config: Mapping[str, Any],
        may_change: Iterable[str] = (),
        defaults: Mapping[str, Any] | None = None,
        evaluated_with: Iterable[str] = (),
        hints: Mapping[str, str] | None = None,
    ) -> None:
        self.path = pathlib.Path(path)
        config = json.loads(json.dumps(config))
        self._config = config
        self._evaluated_with: dict[str, Any] = {}  # where that is something else than `config`
        is_known = self._config_file.exists()
        if is_known:
            known = read_object(self._config_file, "choose another run folder")
            known = _with_defaults(known, json.loads(json.dumps(dict(defaults or {}))))
            changing = list(evaluated_with)
            _check_config(self.path, known, config, {*may_change, *changing}, hints or {})
            self._evaluated_with = {
                name: known[name]
                for name in changing
                if name in known and known[name] != config.get(name)
            }
        elif self._whole_checkpoints():
            raise InvalidInput(
                f"{self.path} holds checkpoints and no config.json, which tells what run they are "
                "of; put it back, choose another name, or remove that folder"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _lock_of(self.path)
        self.figures.mkdir(exist_ok=True)
        self._checkpoints.mkdir(exist_ok=True)
        for path in self._checkpoints.glob(f"{_REPLACED}*"):  # a kill between two renames
            final = self._checkpoints / path.name.removeprefix(_REPLACED)
            if final.exists():
                shutil.rmtree(path)
            else:
                path.rename(final)
        if not is_known:
            self.write_config()

    def write_config(self) -> None:
        """Notes what the run is gone on with; a new one's was noted when it was opened.

        What a run is evaluated with is noted when that is done, so that a kill before is not taken
        for it.
        """
        noted = {**self._config, **self._evaluated_with}
        with atomic_file(self._config_file) as draft:
            draft.write_text(json.dumps(noted, indent=2) + "\n")

    @property
    def _config_file(self) -> pathlib.Path:
        return self.path / "config.json"

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r}, step={self.step})"

    @property
    def figures(self) -> pathlib.Path:
        """Where pictures go."""
        return self.path / "figures"

    @property
    def export(self) -> pathlib.Path:
        """Where SavedModels go, one integer folder a version."""
        return self.path / "export"

    @property
    def _checkpoints(self) -> pathlib.Path:
        return self.path / "checkpoints"

    @property
    def step(self) -> int:
        """The step of the newest checkpoint, 0 where there is none yet."""
        whole = self._whole_checkpoints()
        return int(whole[-1].name) if whole else 0

    def save_checkpoint(
        self, step: int, state: Mapping[str, Mapping[str, Any]], model: Any = None
    ) -> None:
        """Writes a checkpoint, then removes older ones.

        Args:
            step: int, environment steps or updates it was taken at.
            state: dict part → dict name → array or anything JSON can hold.
            model: `keras.Model` saved beside it as `model.keras`, for whoever wants just that.
        """
        draft = pathlib.Path(tempfile.mkdtemp(prefix=".draft-", dir=self._checkpoints))
        arrays, rest = _split(state)
        np.savez(draft / "arrays.npz", **arrays)
        (draft / "state.json").write_text(json.dumps(rest))
        if model is not None:
            model.save(draft / "model.keras")
        draft.chmod(0o755)
        _sync_files(draft)
        final = self._checkpoints / f"{step:010d}"
        older = self._whole_checkpoints()
        if final in older:  # the same step again: the old one makes way only for a whole new one
            final.rename(self._checkpoints / f"{_REPLACED}{final.name}")
        draft.rename(final)
        drafts = self._checkpoints.glob(".draft-*")
        for path in (*older, *drafts, *self._checkpoints.glob(f"{_REPLACED}*")):
            if path != final:
                shutil.rmtree(path)

    def replace_model(self, model: Any) -> None:
        """Saves a model in place of the newest checkpoint's, with other settings than before."""
        if file := self.model_file:
            draft = file.with_name(".draft.keras")
            model.save(draft)
            draft.replace(file)

    def load_checkpoint(self) -> dict[str, dict[str, Any]] | None:
        """The state of the newest checkpoint, or `None` where there is none yet.

        Raises:
            InvalidInput: if its files cannot be read.
        """
        whole = self._whole_checkpoints()
        if not whole:
            return None
        try:
            parts = json.loads((whole[-1] / "state.json").read_text())
            state = {part: dict(values) for part, values in parts.items()}
            with (whole[-1] / "arrays.npz").open("rb") as handle, np.load(handle) as file:
                for path in file.files:
                    part, _, name = path.partition("/")
                    state.setdefault(part, {})[name] = file[path]
        except _UNREADABLE_FILE as error:
            raise self._unreadable(error) from error
        return state

    @contextlib.contextmanager
    def restoring(self) -> Iterator[None]:
        """While this is entered, a state that does not fit what takes it up is one clear error.

        Raises:
            InvalidInput: if the newest checkpoint is of something else, or something is missing in
                it or of another type.
        """
        try:
            yield
        except InvalidInput as error:
            raise InvalidInput(
                f"checkpoint {self._whole_checkpoints()[-1]} does not fit this run: {error}; "
                f"choose another name, or remove {self.path}"
            ) from error
        except _UNREADABLE as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error):
        return InvalidInput(
            f"checkpoint {self._whole_checkpoints()[-1]} cannot be read ({type(error).__name__}: "
            f"{error}); remove that folder to go on without it"
        )

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Writes `evaluation.json`, last of all: it tells that pictures and export are there too.

        Args:
            summary: JSON-able dict, the outcome; its `"step"` is how far the run had come.
        """
        with atomic_file(self._evaluation) as draft:
            draft.write_text(json.dumps(summary, indent=2) + "\n")
        if self._evaluated_with:
            self._evaluated_with = {}
            self.write_config()

    def is_finished(self, step: int) -> bool:
        """Whether the run up to this step has been finished, with what it is evaluated with now.

        Raises:
            InvalidInput: if `evaluation.json` cannot be read.
        """
        return bool(self.evaluation(step)) and not self._evaluated_with

    def evaluation(self, step: int) -> dict[str, Any]:
        """What `finish` was given for this step, whatever it was evaluated with; `{}` if nothing.

        Raises:
            InvalidInput: if `evaluation.json` cannot be read.
        """
        if not self._evaluation.exists():
            return {}
        found = read_object(self._evaluation, "remove it to finish the run again")
        return found if found.get("step") == step else {}

    @property
    def _evaluation(self) -> pathlib.Path:
        return self.path / "evaluation.json"

    @property
    def model_file(self) -> pathlib.Path | None:
        """The newest checkpoint's `model.keras`, or `None` where there is none yet."""
        whole = self._whole_checkpoints()
        return whole[-1] / "model.keras" if whole else None

    def _whole_checkpoints(self) -> list[pathlib.Path]:
        return sorted(path for path in self._checkpoints.glob("*") if path.name.isdecimal())


def checksum(*parts: np.ndarray | str) -> str:
    """A short name for the contents of texts or arrays, to tell one data set from another.

    Example:
        >>> checksum("to be")
        '0af1207eeabd1586'
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
        else:
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]


class _Lock:
    """Keeps other processes out of a folder while it lives."""

    def __init__(self, file):
        descriptor = os.open(file, os.O_RDWR)
        weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise InvalidInput(
                f"{file.parent} is being trained by another process; wait for it to end, or choose "
                "another name"
            ) from None


_LOCKS: weakref.WeakValueDictionary[Any, _Lock] = weakref.WeakValueDictionary()
"""Those of this process, by their files: closing any descriptor of a file gives its lock away, so
all `RunFolder`s of a folder hold the same one."""


def _lock_of(folder):
    file = folder / ".lock"
    if not file.exists():
        file.touch()
    status = file.stat()
    key = (os.getpid(), status.st_dev, status.st_ino)
    if (lock := _LOCKS.get(key)) is None:
        lock = _LOCKS[key] = _Lock(file)
    return lock


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """A path to write to, which becomes `path` only when the block ends without an error.

    Example:
        >>> with atomic_file("numbers.csv") as draft:
        ...     _ = draft.write_text("step,loss")
        >>> pathlib.Path("numbers.csv").read_text()
        'step,loss'
    """
    path = pathlib.Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    draft = pathlib.Path(name)
    try:
        yield draft
        draft.chmod(0o644)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def read_object(file: pathlib.Path, way_out: str) -> dict[str, Any]:
    """A JSON object in a file, or one `InvalidInput` that says the way out of it."""
    try:
        found = json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{file} is not JSON ({error}); {way_out}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"{file} must hold a JSON object; {way_out}; received {found!r:.40}")
    return found


def _with_defaults(known, defaults):
    """What is known of a run, and of what it does not tell the defaults."""
    within = {
        name: {**values, **known[name]}
        for name, values in defaults.items()
        if isinstance(values, dict) and isinstance(known.get(name), dict)
    }
    return {**defaults, **known, **within}


def _check_config(folder, known, config, may_change, hints):
    known, config = (
        _single({name: value for name, value in each.items() if name not in may_change})
        for each in (known, config)
    )
    different = [
        name for name in sorted(known.keys() | config.keys()) if known.get(name) != config.get(name)
    ]
    if different:
        told = [
            f"{name} is {known.get(name)!r} there and {config.get(name)!r} here"
            for name in different
        ]
        more = [f"; {hints[name]}" for name in different if name in hints]
        raise InvalidInput(
            f"{folder} holds a run of another configuration: {'; '.join(told)}. "
            f"Choose another name, or remove that folder{''.join(more)}"
        )


def _single(config):
    """The same where each value within a dict has a name of its own, such as `training.width`."""
    single = {}
    for name, value in config.items():
        within = value if isinstance(value, dict) else {}
        single |= {f"{name}.{key}": each for key, each in within.items()} or {name: value}
    return single


def _split(state):
    """Separates arrays, under the path `part/name`, from what goes into a JSON file."""
    arrays, rest = {}, {}
    for part, values in state.items():
        rest[part] = {k: v for k, v in values.items() if not isinstance(v, np.ndarray)}
        arrays |= {f"{part}/{k}": v for k, v in values.items() if isinstance(v, np.ndarray)}
    return arrays, rest


def _sync_files(folder):
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
