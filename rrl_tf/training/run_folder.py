"""Read and write the folder of a run: configuration, checkpoints, figures and results."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import io
import json
import os
import pathlib
import shutil
import tarfile
import tempfile
import weakref
import zipfile
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from rrl_tf._atomic import atomic_file, draft_folder
from rrl_tf.errors import InvalidInput

# Exceptions that code may raise when it restores a damaged checkpoint.
_DAMAGED = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, AssertionError),
    *(ArithmeticError, zipfile.BadZipFile),
)


class RunFolder:
    """Manages the folder of a run: `config.json`, `checkpoints/`, `figures/` and `export/`.

    Opening an existing folder resumes its run, so the configuration must be the same. Opening does
    not update an existing `config.json`, because the caller may still reject the run; call
    `write_config` to do so. Files and checkpoints are written atomically.

    Args:
        path: the folder; created if it does not exist.
        config: JSON-serialisable dict that identifies the run.
        mutable: names in `config` whose values may change when the run resumes, such as the number
            of steps.
        evaluation: names in `config` whose values may change, too. A finished run then counts as
            not finished, so that it is evaluated again.

    Attributes:
        path: the folder.
        figures: folder of the figures.
        export: folder of the SavedModels, with one numbered folder per version.

    Raises:
        InvalidInput: if the folder contains another run (the message lists every difference),
            `config.json` is missing or damaged, or another process trains in the folder. The
            folder is unchanged.
        OSError: if the folder cannot be created or written.

    Example:
        >>> folder = RunFolder("runs/first", {"seed": 1, "steps": 500}, mutable=["steps"])
        >>> folder.save_checkpoint(500, {"agent": {"weights": np.ones(3), "updates": 100}})
        >>> folder.load_checkpoint()["agent"]["updates"]
        100
    """

    def __init__(
        self,
        path: str | os.PathLike,
        config: Mapping[str, Any],
        mutable: Collection[str] = (),
        evaluation: Collection[str] = (),
    ) -> None:
        self.path = pathlib.Path(path)
        self.figures, self.export = self.path / "figures", self.path / "export"
        self._checkpoints = self.path / "checkpoints"
        self._config_file = self.path / "config.json"
        self._evaluation_file = self.path / "evaluation.json"
        self._config = json.loads(json.dumps(config))
        self._evaluated: dict[str, Any] = {}  # evaluation settings of the last `finish`
        exists = self._config_file.exists()
        if exists:
            stored = read_object(self._config_file, "choose another run folder")
            _require_same_run(self.path, stored, self._config, {*mutable, *evaluation})
            self._evaluated = {name: stored[name] for name in evaluation if name in stored}
        elif self._checkpoint():
            raise InvalidInput(
                f"{self.path} has checkpoints but no config.json; restore that file, choose "
                "another name, or remove the folder"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.path)
        self.figures.mkdir(exist_ok=True)
        self._checkpoints.mkdir(exist_ok=True)
        if not exists:
            self.write_config()

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r}, step={self.step})"

    def write_config(self) -> None:
        """Write `config.json`, with the evaluation settings that the last `finish` used."""
        write_json(self._config_file, {**self._config, **self._evaluated})

    @property
    def step(self) -> int:
        """The step of the newest checkpoint, or 0 if there is none."""
        newest = self._checkpoint()
        return int(newest.name) if newest else 0

    @property
    def model_file(self) -> pathlib.Path | None:
        """`model.keras` of the newest checkpoint, or `None` if there is none."""
        newest = self._checkpoint()
        return newest / "model.keras" if newest else None

    def _checkpoint(self) -> pathlib.Path | None:
        complete = [path for path in self._checkpoints.glob("*") if path.name.isdecimal()]
        return max(complete, default=None)

    def save_checkpoint(
        self, step: int, state: Mapping[str, Mapping[str, Any]], model: Any = None
    ) -> None:
        """Write a checkpoint, then remove the previous one.

        Args:
            step: number of environment steps or updates so far; more than in the previous
                checkpoint.
            state: dict part → dict name → array or JSON-serialisable value.
            model: `keras.Model` that is saved as `model.keras` as well.
        """
        older = self._checkpoint()
        if older and step <= int(older.name):
            raise InvalidInput(f"`step` must be greater than {int(older.name)}; received {step}")
        arrays, values = _split_arrays(state)
        with draft_folder(self._checkpoints) as draft:
            np.savez(draft / "arrays.npz", **arrays)
            (draft / "state.json").write_text(json.dumps(values))
            if model is not None:
                model.save(draft / "model.keras")
            for path in draft.iterdir():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            draft.rename(self._checkpoints / f"{step:010d}")
        for path in self._checkpoints.iterdir():
            if path.name.isdecimal() and int(path.name) < step:
                shutil.rmtree(path)

    @property
    def best_file(self) -> pathlib.Path | None:
        """`best-STEP.keras`, the model of the best evaluation, or `None` if it is not kept."""
        return max(self._checkpoints.glob("best-*.keras"), default=None)

    def save_best(self, step: int, model: Any) -> None:
        """Replace the model of the best evaluation, which was at `step`."""
        before = list(self._checkpoints.glob("best-*.keras"))
        file = self._checkpoints / f"best-{step:010d}.keras"
        with atomic_file(file) as draft:
            model.save(draft)
        for path in before:
            if path != file:
                path.unlink()

    def replace_model(self, model: Any) -> None:
        """Replace `model.keras` in the newest checkpoint; do nothing without a checkpoint."""
        if file := self.model_file:
            with atomic_file(file) as draft:
                model.save(draft)

    def load_checkpoint(self) -> dict[str, dict[str, Any]] | None:
        """Return the state of the newest checkpoint, or `None` if there is none.

        Raises:
            InvalidInput: if its files are damaged.
        """
        newest = self._checkpoint()
        if newest is None:
            return None
        try:
            parts = json.loads((newest / "state.json").read_text())
            state = {part: dict(values) for part, values in parts.items()}
            # NumPy does not close a damaged file that it opened itself.
            with (newest / "arrays.npz").open("rb") as handle, np.load(handle) as file:
                for path in file.files:
                    part, _, name = path.partition("/")
                    state.setdefault(part, {})[name] = file[path]
        except Exception as error:  # damaged bytes can cause any error
            raise self._unreadable(error) from error
        return state

    @contextlib.contextmanager
    def restoring(self) -> Iterator[None]:
        """Restore a checkpoint inside this context, which adds its path to error messages.

        Raises:
            InvalidInput: if the checkpoint belongs to another model, or parts of it are missing or
                damaged.
        """
        try:
            yield
        except InvalidInput as error:
            raise InvalidInput(
                f"checkpoint {self._checkpoint()} does not fit this run: {error}; choose another "
                f"name, or remove {self.path}"
            ) from error
        except _DAMAGED as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> InvalidInput:
        return InvalidInput(
            f"checkpoint {self._checkpoint()} cannot be read ({type(error).__name__}: {error}); "
            "remove that folder to train without it"
        )

    def pack(self) -> bytes:
        """Return the files that are needed to resume the run, as a tar archive."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for pattern in (
                "[!.]*.json",
                "[!.]*.csv",
                "checkpoints/*/state.json",
                "checkpoints/*/arrays.npz",
            ):
                for file in self.path.glob(pattern):
                    archive.add(file, file.relative_to(self.path))
        return content.getvalue()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write `evaluation.json`, which marks the run as finished at `summary["step"]`."""
        write_json(self._evaluation_file, summary)
        self._evaluated = {}
        self.write_config()

    def is_finished(self, step: int) -> bool:
        """Return whether `finish` was called at `step` with the current evaluation settings."""
        same = self._evaluated.items() <= self._config.items()
        return bool(self.evaluation(step)) and same

    def evaluation(self, step: int) -> dict[str, Any]:
        """Return the summary that `finish` received at `step`, or an empty dict.

        Raises:
            InvalidInput: if `evaluation.json` is damaged.
        """
        if not self._evaluation_file.exists():
            return {}
        found = read_object(self._evaluation_file, "remove it to finish the run again")
        return found if found.get("step") == step else {}


def unpack_folder(content: bytes) -> pathlib.Path:
    """Unpack an archive from `RunFolder.pack` into a folder that is deleted at exit."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="rrl_tf-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(path, filter="data")
    return path


def _require_same_run(folder, stored, config, ignored):
    """Raise an error that lists every difference between two configurations."""
    before, now = (
        flatten({name: value for name, value in each.items() if name not in ignored})
        for each in (stored, config)
    )
    different = [
        f"{name} was {before.get(name)!r} and is now {now.get(name)!r}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    if different:
        raise InvalidInput(
            f"{folder} contains a run with another configuration: {'; '.join(different)}. "
            "Choose another name, or remove that folder"
        )


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one dict with dotted names.

    Example:
        >>> flatten({"seed": 1, "training": {"width": 64}})
        {'seed': 1, 'training.width': 64}
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        is_nested = isinstance(value, Mapping) and value
        flat |= flatten(value, f"{prefix}{name}.") if is_nested else {f"{prefix}{name}": value}
    return flat


def _split_arrays(state):
    """Split a state into arrays, named `part/name`, and JSON-serialisable values."""
    arrays, rest = {}, {}
    for part, values in state.items():
        rest[part] = {k: v for k, v in values.items() if not isinstance(v, np.ndarray)}
        arrays |= {f"{part}/{k}": v for k, v in values.items() if isinstance(v, np.ndarray)}
    return arrays, rest


class _Lock:
    """An exclusive lock on a folder, held until the object is garbage-collected."""

    def __init__(self, folder):
        self._file = (folder / ".lock").open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise InvalidInput(
                f"another process is training in {folder}; wait until it ends, or choose another "
                "name"
            ) from None
        weakref.finalize(self, self._file.close)


_LOCKS: weakref.WeakValueDictionary[Any, _Lock] = weakref.WeakValueDictionary()
"""The locks that this process holds. `RunFolder` objects with the same path share a lock."""


def _lock(folder):
    status = folder.stat()
    key = (os.getpid(), status.st_dev, status.st_ino)
    lock = _LOCKS.get(key) or _Lock(folder)
    _LOCKS[key] = lock
    return lock


def checksum(*parts: np.ndarray | str) -> str:
    """Return a short hash of strings and arrays that identifies a dataset.

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


def write_json(file: pathlib.Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object to a file atomically."""
    with atomic_file(file) as draft:
        draft.write_text(json.dumps(values, indent=2) + "\n")


def read_object(file: pathlib.Path, fix: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    Args:
        file: the file.
        fix: advice in the `InvalidInput` that is raised for a damaged file.
    """
    try:
        found = json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{file} is not JSON ({error}); {fix}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"{file} must contain a JSON object; received {found!r:.40}; {fix}")
    return found
