"""Which versions of which models are loaded: discovery, swap, labels, status."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import enum
import gc
import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any

from serving.errors import ServingError, invalid
from serving.server.batching import BatchingParameters
from serving.server.loading import load_servable
from serving.server.model import Servable
from serving.server.versions import check_configs, check_versions, wanted_versions

_log = logging.getLogger("serving")

# Versions that ended and are no longer on disk, of which a model's status still tells.
_REMEMBERED = 32


class State(enum.IntEnum):
    """Life of a version, numbered as in ModelVersionStatus."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """How versions are loaded; names and defaults of the server's flags."""

    saved_model_tags: tuple = ("serve",)
    session_config: object = None
    enable_model_warmup: bool = True
    num_request_iterations_for_warmup: int = 1
    max_num_load_retries: int = 5
    load_retry_interval_micros: int = 60_000_000
    batching: BatchingParameters | None = None
    batching_by_model: bool = False
    check_methods: bool = False
    model_root: str = ""


@dataclasses.dataclass(eq=False)
class Version:
    """One version that was ever seen, and what became of it."""

    number: int
    state: State = State.START
    error: ServingError | None = None
    servable: Servable | None = None
    failures: int = 0
    retry_at: float = 0.0


class Model:
    """A configured model and its versions."""

    def __init__(self, config: Any) -> None:
        self.config = config  # ModelConfig
        self.versions: dict[int, Any] = {}
        self.labels: dict[str, int] = {}
        self.wanted: set[int] = set()  # what the policy asked for at the last look

    def under(self, config: Any) -> Model:
        """Returns what this model would be, for a list that may yet be refused.

        It has the versions that answer; what becomes of the others is its own. Where its folder is
        another it has none, as a number there is not the version that it was here.
        """
        model = Model(config)
        model.labels = self.labels
        if config.base_path == self.config.base_path:
            model.wanted = self.wanted
            for number, version in self.versions.items():
                if version.state == State.AVAILABLE:
                    model.versions[number] = version
                elif version.state != State.UNLOADING:
                    model.versions[number] = dataclasses.replace(version)
        return model

    @property
    def available(self) -> list[int]:
        """The versions that answer, ascending."""
        return sorted(n for n, v in self.versions.items() if v.state == State.AVAILABLE)

    @property
    def errors(self) -> dict[int, ServingError]:
        """number -> why it could not be loaded, at the last attempt."""
        return {number: v.error for number, v in self.versions.items() if v.error}

    @property
    def pending(self) -> bool:
        """Whether a version may yet be loaded."""
        return any(v.state in (State.START, State.LOADING) for v in self.versions.values())

    @property
    def settled(self) -> bool:
        """Whether there is an answer to how loading went: something available, or only failures."""
        return bool(self.available or (self.errors and not self.pending))


class Repository:
    """The loaded models. All methods belong to the event loop's thread; loading has its own.

    A new version is loaded and warmed up while the old one answers; then requests move over in one
    step, and the old version is freed when its last request is done. One that cannot be loaded
    leaves the old one in place.

    Args:
        options: `LoadOptions`.
        metrics: `Metrics` that count warm-ups, if any do.
        allow_unavailable_labels: Whether a new label may point at a version that is not available.
    """

    def __init__(
        self, options: Any = None, metrics: Any = None, allow_unavailable_labels: bool = False
    ) -> None:
        self._options = options or LoadOptions()
        self._metrics = metrics
        self._allow_unavailable_labels = allow_unavailable_labels
        self._listed: dict[str, Model] = {}
        # With those of a list that is still being tried; known ones are as they are until it is in.
        self._models: dict[str, Model] = {}
        self._loader = concurrent.futures.ThreadPoolExecutor(1, "loader")
        self._looking = asyncio.Lock()
        self._unloading: set[Any] = set()

    # What requests use.

    @contextlib.contextmanager
    def lease(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Iterator[Servable]:
        """Gives the servable that should answer, kept loaded until the block is left.

        Raises:
            ServingError: NOT_FOUND for an unknown model or a version that is not available,
                INVALID_ARGUMENT for an unknown label or a missing name.
        """
        servable = self._find(name, version, label)
        servable.acquire()
        try:
            yield servable
        finally:
            servable.release()

    def _find(self, name, version, label):
        if not name:
            raise invalid("Missing ModelSpec.name")
        model = self._models.get(name)
        if label:
            if model is None or label not in model.labels:
                raise invalid(f"Unrecognized servable version label: {label}")
            version = model.labels[label]
        if model is not None and version is None:
            version = max(model.available, default=None)
        found = model and model.versions.get(version)
        if not found or found.state != State.AVAILABLE:
            asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise ServingError("NOT_FOUND", f"Servable not found for request: {asked}")
        return found.servable

    def status(self, name: str, version: int | None = None) -> list[Version]:
        """Returns the `Version`s ever seen of a model, newest first, or the one asked for."""
        if not name:
            raise invalid("Missing ModelSpec.name")
        model = self._models.get(name)
        if model is None or (version is not None and version not in model.versions):
            missing = f"model {name!r}" if model is None else f"version {version} of model {name!r}"
            raise ServingError("NOT_FOUND", f"Could not find {missing}")
        numbers = [version] if version is not None else sorted(model.versions, reverse=True)
        return [model.versions[number] for number in numbers]

    @property
    def models(self) -> dict[str, Model]:
        """name -> `Model`, as configured."""
        return dict(self._models)

    # What changes the set of models.

    def known_name(self, name: str) -> str:
        """Returns the name if a model has it, else "": a label for metrics, of which few exist."""
        return name if name in self._models else ""

    @property
    def ready(self) -> bool:
        """Whether every configured model answers."""
        return bool(self._listed) and all(model.available for model in self._listed.values())

    async def configure(self, configs: Iterable[Any], waits: bool = False) -> None:
        """Replaces the list of models (ModelConfig messages), once those that are new are loaded.

        If that fails, or is cancelled, the list is as it was.

        Args:
            configs: The new list.
            waits: Whether to wait for a first version where there is none, and to try again.

        Raises:
            ServingError: INVALID_ARGUMENT for a list that cannot be served, NOT_FOUND for a model
                without a version, UNKNOWN if a new model cannot be loaded, FAILED_PRECONDITION for
                a label on a version that is not available.
        """
        configs = list(configs)
        check_configs(configs, self._options.model_root)
        async with self._looking:
            before, moved = self._listed, self._moved(configs)
            if not waits:
                await asyncio.to_thread(check_versions, moved)
            after = {
                config.name: before[config.name].under(config)
                if config.name in before
                else Model(config)
                for config in configs
            }
            self._models = after | before
            try:
                await self._load_all(after)
                for config in moved:
                    while waits and not after[config.name].settled:
                        await asyncio.sleep(0.05)
                        await self._load_all(after)
                    _check_loaded(config.name, after[config.name])
                for model in after.values():
                    self._check_labels(model)
            except BaseException:
                self._models = before
                self._unload_lost(after, before)
                raise
            self._accept(before, after)

    def _moved(self, configs):
        """Returns those of whose models nothing is loaded from where they are said to lie."""
        places = {name: model.config.base_path for name, model in self._listed.items()}
        return [config for config in configs if places.get(config.name) != config.base_path]

    def _accept(self, before, after):
        """Moves over to a list of which all that is new is loaded; in one step, without waiting."""
        for name in before.keys() & after.keys():
            after[name].versions = before[name].versions | after[name].versions
        self._listed = self._models = after
        self._unload_lost(before, after)
        for name, model in after.items():
            model.labels = dict(model.config.version_labels)
            self._unload_unwanted(name, model)

    def _unload_lost(self, models, kept):
        """Unloads the versions of models that other models do not have."""
        shared = {version for model in kept.values() for version in model.versions.values()}
        for name, model in models.items():
            for version in model.versions.values():
                if version not in shared:
                    self._unload(name, version)

    def _check_labels(self, model):
        for label, number in model.config.version_labels.items():
            fresh = self._allow_unavailable_labels and label not in model.labels
            if number not in model.available and not fresh:
                raise ServingError(
                    "FAILED_PRECONDITION",
                    f"Request to assign label {label!r} to version {number} of model "
                    f"{model.config.name!r}, which is not currently available for inference",
                )

    async def watch(self, interval: float) -> None:
        """Looks at the disk every `interval` seconds, for ever; 0 ends when nothing is pending."""
        while interval or not all(model.settled for model in self._listed.values()):
            await asyncio.sleep(interval or 0.05)
            try:
                await self.look()
            except Exception:
                _log.exception("could not look for new versions")

    async def look(self) -> None:
        """Looks at the disk once: loads what is new, unloads what is no longer wanted."""
        async with self._looking:
            for name, model in self._listed.items():
                await self._load_wanted(name, model)
                self._unload_unwanted(name, model)

    async def _load_all(self, models):
        for name, model in models.items():
            await self._load_wanted(name, model)

    async def _load_wanted(self, name, model):
        wanted = await self._in_loader(wanted_versions, model.config)
        if wanted is None:  # no such folder at the moment: keep what there is
            return
        model.wanted = set(wanted)
        for number, version in model.versions.items():
            if number not in wanted and version.servable is None:
                version.failures, version.retry_at = 0, 0.0
                if version.state in (State.START, State.LOADING):
                    version.state, version.error = State.END, None
        for number in sorted(wanted):
            version = model.versions.setdefault(number, Version(number))
            if self._should_load(version):
                await self._load(name, version, wanted[number])

    def _unload_unwanted(self, name, model):
        if model.wanted and not model.wanted & set(model.available):
            return  # the old one serves until a new one can
        for number in model.available:
            if number not in model.wanted:
                self._unload(name, model.versions[number])
        self._forget_old(model)

    def _forget_old(self, model):
        """Remembers the last versions that ended, and not all since the server started."""
        ended = {n for n, v in model.versions.items() if v.state == State.END} - model.wanted
        for number in sorted(ended)[:-_REMEMBERED]:
            del model.versions[number]

    def _should_load(self, version):
        if version.state in (State.AVAILABLE, State.UNLOADING):
            return False
        attempts = 1 + self._options.max_num_load_retries
        return version.failures < attempts and time.monotonic() >= version.retry_at

    async def _load(self, name, version, directory):
        if version.state != State.LOADING:
            version.state, version.error = State.LOADING, None
        try:
            version.servable = await self._in_loader(
                load_servable, name, version.number, directory, self._options, self._metrics
            )
        except ServingError as error:
            version.failures += 1
            version.error = error
            if version.failures <= self._options.max_num_load_retries:
                pause = self._options.load_retry_interval_micros / 1e6
                version.retry_at = time.monotonic() + pause
            else:
                version.state = State.END
            _log.error("model %s version %d failed to load: %s", name, version.number, error)
            return
        version.error, version.failures = None, 0
        version.state = State.AVAILABLE
        _log.info("model %s version %d is available", name, version.number)

    def _unload(self, name, version):
        if version.state != State.AVAILABLE:
            return
        version.state = State.UNLOADING
        task = asyncio.get_running_loop().create_task(self._free(name, version))
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _free(self, name, version):
        servable, version.servable = version.servable, None
        directory = str(servable.directory)
        while servable.users:
            await asyncio.sleep(0.01)
        await self._in_loader(servable.close)
        del servable
        if gc.get_freeze_count():
            # A graph is full of cycles, and the collector comes by too seldom to keep memory flat.
            # Quick where the server has frozen what TensorFlow's modules hold.
            await self._in_loader(gc.collect)
        version.state = State.END
        if self._metrics is not None:
            self._metrics.forget(directory)
        _log.info("model %s version %d is unloaded", name, version.number)

    async def _in_loader(self, function, *arguments):
        return await asyncio.get_running_loop().run_in_executor(self._loader, function, *arguments)

    async def close(self, seconds: float | None = None) -> bool:
        """Frees all models, once their requests are done; returns whether that came in time."""
        for name, model in self._models.items():
            for version in model.versions.values():
                self._unload(name, version)
        last = asyncio.ensure_future(self._in_loader(int))  # behind what is being loaded
        _, late = await asyncio.wait({*self._unloading, last}, timeout=seconds)
        self._loader.shutdown(wait=False, cancel_futures=True)
        return not late


def _check_loaded(name, model):
    if model.available:
        return
    if not model.errors:  # it went while others were loaded
        raise ServingError("NOT_FOUND", f"model {name!r} has no version any more")
    number, error = max(model.errors.items())
    text = f"model {name!r}: version {number} failed to load: {error}"
    raise ServingError("UNKNOWN", text)
