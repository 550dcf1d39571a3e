"""Define `Repository`, which loads, swaps and unloads the versions of all models."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import enum
import gc
import logging
import reprlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

from serving.errors import ServingError, invalid
from serving.server.flags import Flags
from serving.server.loading import Loader
from serving.server.model import Servable
from serving.server.versions import check_models, wanted_versions

_log = logging.getLogger("serving")
_POLL_SECONDS = 0.05  # between searches while a model has no version yet
_REMEMBERED = 32  # unloaded versions that the status of a model still lists


class State(enum.IntEnum):
    """The state of a version, with the values of ModelVersionStatus.State."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclasses.dataclass(eq=False)
class Version:
    """A version that the server has found on disk.

    Attributes:
        number: The number of the version.
        state: The state that the status API reports.
        error: The error of the last attempt to load it; None without an error.
        servable: The loaded version; None while it is not loaded.
        failures: How many attempts to load it have failed.
        retry_at: `time.monotonic()` of the next attempt.
    """

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
        self.versions: dict[int, Version] = {}
        self.labels: dict[str, int] = {}
        self.wanted: set[int] = set()  # the last choice of the model_version_policy

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.config.name

    @property
    def available(self) -> list[int]:
        """The numbers of the versions that answer requests, in ascending order."""
        return sorted(n for n, v in self.versions.items() if v.state == State.AVAILABLE)

    @property
    def errors(self) -> dict[int, ServingError]:
        """Version number -> error of the last attempt to load that version."""
        return {number: v.error for number, v in self.versions.items() if v.error}

    @property
    def is_settled(self) -> bool:
        """Whether a version is available, or every version has failed and is not retried."""
        is_pending = any(v.state in (State.START, State.LOADING) for v in self.versions.values())
        return bool(self.available or (self.errors and not is_pending))


class Repository:
    """The loaded versions of all models.

    While a new version is loaded and warmed up, the old one answers requests. After that, all new
    requests go to the new version, and the old one is freed after its last request. If the new
    version cannot be loaded, the old one continues to answer.

    All methods must be called in the event loop's thread. A thread of the repository loads models.

    Args:
        flags: The server's flags.
        metrics: The `Metrics` that record warm-ups; `None` to record nothing.
    """

    def __init__(self, flags: Flags, metrics: Any = None) -> None:
        self._flags, self._metrics = flags, metrics
        self.loader = Loader(flags, metrics)
        #: name -> `Model`
        self.models: dict[str, Model] = {}
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "loader")
        self._changing = asyncio.Lock()
        self._unloading: set[asyncio.Task] = set()

    @contextlib.contextmanager
    def use(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Iterator[Servable]:
        """Yield the servable for a request, and keep it loaded until the `with` block ends.

        Args:
            name: The name of the model.
            version: The number of a version; `None` for the newest available one.
            label: The label of a version; `None` for no label.

        Raises:
            ServingError: NOT_FOUND for an unknown model or a version that is not available,
                INVALID_ARGUMENT for an unknown label or a missing name.
        """
        servable = self._find(name, version, label)
        servable.users += 1
        try:
            yield servable
        finally:
            servable.users -= 1

    def _find(self, name, version, label):
        if not name:
            raise invalid("Missing ModelSpec.name")
        model = self.models.get(name)
        if label:
            if model is None or label not in model.labels:
                raise invalid(f"Unrecognized servable version label: {label}")
            version = model.labels[label]
        if model is not None and version is None:
            version = max(model.available, default=None)
        found = model and model.versions.get(version)
        if not found or found.state != State.AVAILABLE:
            wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            served = f"; served models: {reprlib.repr(sorted(self.models))}" if not model else ""
            raise ServingError("NOT_FOUND", f"Servable not found for request: {wanted}{served}")
        return found.servable

    def status(self, name: str, version: int | None = None) -> list[Version]:
        """Return one version of a model, or for `None` all versions in descending order."""
        if not name:
            raise invalid("Missing ModelSpec.name")
        model = self.models.get(name)
        if model is None or (version is not None and version not in model.versions):
            missing = f"model {name!r}" if model is None else f"version {version} of model {name!r}"
            raise ServingError("NOT_FOUND", f"Could not find {missing}")
        numbers = [version] if version is not None else sorted(model.versions, reverse=True)
        return [model.versions[number] for number in numbers]

    @property
    def ready(self) -> bool:
        """Whether every configured model has an available version."""
        return bool(self.models) and all(model.available for model in self.models.values())

    async def configure(self, configs: Iterable[Any], waits: bool = False) -> None:
        """Replace the list of models.

        The new models are loaded first. If one of them cannot be loaded, the old list remains in
        effect. Otherwise, the new list takes effect, and models that are not in it are unloaded. A
        model whose base path has changed counts as new.

        Args:
            configs: The ModelConfig messages of the new list.
            waits: Whether to wait until each new model has a version, and to retry failed loads.

        Raises:
            ServingError: INVALID_ARGUMENT for an invalid list, NOT_FOUND for a new model without a
                version, UNKNOWN if a new model cannot be loaded. FAILED_PRECONDITION if a label
                names a version that is not available; in this case, the new list takes effect, but
                its labels do not.
        """
        configs = list(configs)
        check_models(configs, self._flags.model_root)
        async with self._changing:
            models, new = {}, []
            for config in configs:
                model = self.models.get(config.name)
                if model is None or model.config.base_path != config.base_path:
                    model = Model(config)
                    new.append(model)
                models[config.name] = model
            await self._load_new(new, waits)
            changed = [
                models[config.name]
                for config in configs
                if models[config.name] in new or models[config.name].config != config
            ]
            for config in configs:
                models[config.name].config = config
            dropped = [
                model for model in self.models.values() if models.get(model.name) is not model
            ]
            self.models = models
            self._unload_models(dropped)
            await self._update()
            for model in changed:  # not at each read of --model_config_file
                _warn_of_fields_without_effect(model)
            for model in models.values():
                self._check_labels(model)
            for model in models.values():
                model.labels = dict(model.config.version_labels)

    async def _load_new(self, models, waits):
        try:
            await self._load_all(models)
            while waits and not all(model.is_settled for model in models):
                await asyncio.sleep(_POLL_SECONDS)
                await self._load_all(models)
            for model in models:
                _check_loaded(model)
        except BaseException:
            self._unload_models(models)
            raise

    def _unload_models(self, models):
        for model in models:
            for version in model.versions.values():
                self._unload(model.name, version)

    def _check_labels(self, model):
        """Raise FAILED_PRECONDITION if a label names a version that is not available."""
        allows = self._flags.allow_version_labels_for_unavailable_models
        for label, number in model.config.version_labels.items():
            if number not in model.available and (label in model.labels or not allows):
                raise ServingError(
                    "FAILED_PRECONDITION",
                    f"Request to assign label {label!r} to version {number} of model "
                    f"{model.name!r}, which is not currently available for inference",
                )

    async def watch(self, interval: float) -> None:
        """Search for new versions every `interval` seconds.

        With an interval of 0, return as soon as every model has an available version or all its
        versions have failed.
        """
        while interval or not all(model.is_settled for model in self.models.values()):
            await asyncio.sleep(interval or _POLL_SECONDS)
            try:
                await self.poll()
            except Exception:
                _log.exception("the search for new versions failed")

    async def poll(self) -> None:
        """Load the new versions on disk, and unload those that the version policies exclude."""
        async with self._changing:
            await self._update()

    async def _update(self):
        await self._load_all(self.models.values())
        for model in self.models.values():
            self._unload_unwanted(model)

    async def _load_all(self, models):
        for model in models:
            wanted = await self._in_thread(wanted_versions, model.config)
            if wanted is None:  # the base path cannot be read at the moment: keep the versions
                continue
            model.wanted = set(wanted)
            for number, version in model.versions.items():
                if number not in wanted and version.servable is None:
                    version.failures, version.retry_at = 0, 0.0
                    if version.state in (State.START, State.LOADING):
                        version.state, version.error = State.END, None
            for number in sorted(wanted):
                version = model.versions.setdefault(number, Version(number))
                if self._should_load(version):
                    await self._load(model.name, version, wanted[number])

    def _unload_unwanted(self, model):
        if model.wanted and not model.wanted & set(model.available):
            return  # keep the old version until a new one is available
        for number in model.available:
            if number not in model.wanted:
                self._unload(model.name, model.versions[number])
        ended = {n for n, v in model.versions.items() if v.state == State.END} - model.wanted
        for number in sorted(ended)[:-_REMEMBERED]:
            del model.versions[number]

    def _should_load(self, version):
        if version.state in (State.AVAILABLE, State.UNLOADING):
            return False
        retries = self._flags.max_num_load_retries
        return version.failures <= retries and time.monotonic() >= version.retry_at

    async def _load(self, name, version, directory):
        if version.state != State.LOADING:
            version.state, version.error = State.LOADING, None
        try:
            version.servable = await self._in_thread(
                self.loader.load, name, version.number, directory
            )
        except ServingError as error:
            version.failures += 1
            version.error = error
            if version.failures <= self._flags.max_num_load_retries:
                pause = self._flags.load_retry_interval_micros / 1e6
                version.retry_at = time.monotonic() + pause
            else:
                version.state = State.END
            _log.error("model %s version %d failed to load: %s", name, version.number, error)
            return
        version.state, version.error, version.failures = State.AVAILABLE, None, 0
        _log.info("model %s version %d is available", name, version.number)

    def _unload(self, name, version):
        if version.state != State.AVAILABLE:
            return
        version.state = State.UNLOADING
        task = asyncio.create_task(self._free(name, version))
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _free(self, name, version):
        servable, version.servable = version.servable, None
        directory = str(servable.directory)
        while servable.users:
            await asyncio.sleep(0.01)
        await self._in_thread(servable.close)
        del servable
        if gc.get_freeze_count():
            # Only the garbage collector frees a graph, because a graph has reference cycles. The
            # collection is fast, because the command froze the objects of TensorFlow's modules.
            await self._in_thread(gc.collect)
        version.state = State.END
        if self._metrics is not None:
            self._metrics.forget(directory)
        _log.info("model %s version %d is unloaded", name, version.number)

    async def _in_thread(self, function, *arguments):
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def close(self, seconds: float | None = None) -> bool:
        """Free all models after their last requests.

        Args:
            seconds: Seconds to wait for that; `None` for no limit.

        Returns:
            Whether all models are freed.
        """
        self._unload_models(self.models.values())
        # The thread runs this call after everything that was submitted before, such as a load.
        last = asyncio.ensure_future(self._in_thread(int))
        _, late = await asyncio.wait({*self._unloading, last}, timeout=seconds)
        self._thread.shutdown(wait=False, cancel_futures=True)
        return not late


def _warn_of_fields_without_effect(model):
    if model.config.HasField("logging_config"):
        _log.warning("model %s: logging_config has no effect in this server", model.name)
    specific = model.config.model_version_policy.specific.versions
    if missing := sorted(set(specific) - model.versions.keys()):
        _log.warning(
            "model %s: %s has no directory for the versions %s of model_version_policy",
            model.name,
            model.config.base_path,
            missing,
        )


def _check_loaded(model):
    if model.available:
        return
    if model.errors:
        number = max(model.errors)
        error = model.errors[number]
        raise ServingError(
            "UNKNOWN", f"model {model.name!r}: version {number} failed to load: {error}"
        )
    raise ServingError(
        "NOT_FOUND", f"model {model.name!r} has no version in {model.config.base_path!r}"
    )
