"""What the flags mean for each part of the server."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow_serving.config import model_server_config_pb2

from rrl_tf.errors import InvalidInput
from rrl_tf.presets import POLICY, preset_folder, preset_name
from serving.server import config_files
from serving.server.batching import BatchingParameters
from serving.server.flags import Flags
from serving.server.inference import Limits
from serving.server.repository import LoadOptions
from serving.server.versions import version_folders

_log = logging.getLogger("serving")


class StartError(Exception):
    """Why the server could not start, in one line."""


def load_options(flags: Flags) -> LoadOptions:
    """Returns how versions are loaded."""
    return LoadOptions(
        saved_model_tags=tuple(flags.saved_model_tags.split(",")),
        session_config=_session_config(flags),
        batching=_batching(flags),
        batching_by_model=flags.enable_per_model_batching_parameters,
        check_methods=flags.enable_signature_method_name_check,
        enable_model_warmup=flags.enable_model_warmup,
        num_request_iterations_for_warmup=flags.num_request_iterations_for_warmup,
        max_num_load_retries=flags.max_num_load_retries,
        load_retry_interval_micros=flags.load_retry_interval_micros,
        model_root=flags.model_root,
    )


def limits(flags: Flags) -> Limits:
    """Returns what a request may ask for."""
    return Limits(flags.max_request_rows, flags.max_reply_bytes, flags.allow_reload_requests)


def _batching(flags):
    """Returns the BatchingParameters that the flags ask for, None without batching."""
    if not flags.enable_batching:
        return None
    path = flags.batching_parameters_file
    return config_files.read_batching(path) if path else BatchingParameters()


def _session_config(flags):
    path = flags.tensorflow_session_config_file
    config = config_files.read_session(path) if path else tf.compat.v1.ConfigProto()
    both = flags.tensorflow_session_parallelism
    intra, inter = flags.tensorflow_intra_op_parallelism, flags.tensorflow_inter_op_parallelism
    config.intra_op_parallelism_threads = intra or both or config.intra_op_parallelism_threads or 1
    config.inter_op_parallelism_threads = inter or both or config.inter_op_parallelism_threads
    return config


def read_models(flags: Flags) -> list[Any]:
    """Returns the ModelConfig messages that the flags name, by file or as one model.

    Raises:
        ConfigError: If the file cannot be read.
        StartError: If the model's folder cannot be read, or holds no version and is not looked at
            again.
    """
    if flags.model_config_file:
        return config_files.read_models(flags.model_config_file)
    base, name = _base_and_name(flags)
    try:
        found = version_folders(base)
    except OSError as error:
        raise StartError(f"cannot read --model_base_path {base}: {error.strerror}") from error
    if not found:
        _say_that_there_is_none(base, waits=flags.file_system_poll_wait_seconds > 0)
    return [
        model_server_config_pb2.ModelConfig(
            name=name, base_path=str(base), model_platform="tensorflow"
        )
    ]


def _base_and_name(flags):
    """Returns the folder of the only model's versions, and its name."""
    if not flags.preset:
        return Path(flags.model_base_path).absolute(), flags.model_name
    try:
        folder = preset_folder(flags.preset).absolute()
    except InvalidInput as error:
        raise StartError(str(error)) from error
    named = flags.model_name != type(flags).model_name
    return folder / POLICY, flags.model_name if named else preset_name(flags.preset)


def _say_that_there_is_none(base, waits):
    problem = f"no version folders in {base}"
    for folder in (base / "export", base.parent):
        if folder.is_dir() and version_folders(folder):
            problem += f"; did you mean {folder}?"
            break
    if not waits:
        raise StartError(problem)
    _log.warning("%s; waiting for the first", problem)
