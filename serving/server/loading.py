"""Loads one version of a model, and says in one way why it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from serving.errors import ServingError, invalid
from serving.server import config_files
from serving.server.model import Servable, from_tensorflow
from serving.server.versions import check_root
from serving.server.warmup import warm_up


def load_servable(name: str, number: int, directory: Path, options: Any, metrics: Any) -> Servable:
    """Returns a version that is loaded and warmed up; blocks, and raises only ServingError.

    Args:
        name: The model's name.
        number: The version's number.
        directory: Its folder.
        options: `LoadOptions`.
        metrics: `Metrics` that count warm-ups, None for none.
    """
    servable = None
    try:
        for path in (directory, *directory.rglob("*")) if options.model_root else ():
            check_root(path, options.model_root)
        servable = Servable(
            name,
            number,
            directory,
            options.saved_model_tags,
            options.session_config,
            config_files.batching_of(directory, options.batching, options.batching_by_model),
            options.check_methods,
        )
        if options.enable_model_warmup:
            warm_up(servable, options.num_request_iterations_for_warmup, metrics)
        return servable
    except Exception as error:
        if servable is not None:
            servable.close()
        if isinstance(error, ServingError):
            raise
        if isinstance(error, tf.errors.OpError):
            raise from_tensorflow(error) from error
        if isinstance(error, config_files.ConfigError):
            raise invalid(str(error)) from error
        code = "NOT_FOUND" if isinstance(error, OSError) else "UNKNOWN"
        raise ServingError(code, f"{directory}: {error}") from error
