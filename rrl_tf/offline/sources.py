"""Load recorded episodes from Minari and from TensorFlow Datasets (RLDS format)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf._optional_packages import INSTALL, optional_package
from rrl_tf.errors import InvalidInput
from rrl_tf.offline.episodes import MAX_ACTIONS, Episode, OfflineData

# D4RL task -> environment, and the mean returns of a random policy and an expert (for scores).
_D4RL_TASKS = {
    "halfcheetah": ("HalfCheetah-v4", (-280.178953, 12135.0)),
    "hopper": ("Hopper-v4", (-20.272305, 3234.3)),
    "walker2d": ("Walker2d-v4", (1.629008, 4592.3)),
}
RECORDINGS = "runs/datasets"
"""Default folder of the datasets that `train_scripts.collect_dataset` records."""


def load_episodes(source: str) -> OfflineData:
    """Load the episodes of a dataset.

    Args:
        source: one of

            - `"minari:ID"`, such as `minari:mujoco/walker2d/medium-v0`, or `"minari:FOLDER"` with
              the path of a Minari dataset. Minari downloads the dataset if it is not on this
              machine. All storage formats of Minari (hdf5, arrow, parquet) are supported. In each,
              the dataset must contain the observation after the last action.
            - `"tfds:NAME"`, such as `tfds:d4rl_mujoco_walker2d/v2-medium`, or `"tfds:FOLDER"` with
              the path of a prepared version. Any dataset in RLDS format is supported.

            RLDS does not store the action space. Integer actions must start at 0, and float actions
            must be in [-1, 1], as in D4RL. If the observation after the last action is missing, the
            last observation is repeated.

    Raises:
        InvalidInput: if the dataset does not exist, if the package that reads it is not installed,
            or if its contents are invalid.

    Example:
        >>> data = load_episodes("tfds:d4rl_mujoco_walker2d/v2-medium")  # doctest: +SKIP
        >>> data.steps, data.returns().mean()  # doctest: +SKIP
    """
    kind, _, name = source.partition(":")
    if kind not in _READERS or not name:
        fix = f". Use minari:{source}." if os.path.isdir(source) or is_minari_id(source) else ""
        raise InvalidInput(
            "`source` (option --data) must be minari:ID, minari:FOLDER, tfds:NAME or tfds:FOLDER; "
            f"received {source!r}{fix}"
        )
    return _READERS[kind](source, os.path.expanduser(name))  # shells do not expand ~ after a colon


def is_minari_id(name: str) -> bool:
    """Return whether a name is a valid Minari ID, `NAMESPACE/NAME-vN`."""
    return re.fullmatch(r"([-\w][-\w/]*[-\w]+/)?[-\w]+-v\d+", name) is not None


def _read_minari(source: str, name: str) -> OfflineData:
    minari = optional_package("minari", source)
    with _read_errors(source, "`minari list local` and `minari list remote` list the IDs"):
        if os.path.isdir(name):
            inside = os.path.join(name, "data")
            dataset = minari.MinariDataset(inside if os.path.isdir(inside) else name)
        else:
            _check_minari_id(source, name)
            dataset = minari.load_dataset(name, download=True)
    spec = dataset.env_spec
    return OfflineData(
        source,
        tuple(_minari_episodes(source, dataset)),
        dataset.action_space,
        spec.id if spec else "unknown environment",
        dataset.recover_environment if spec else None,
        dataset.observation_space,
    )


def _check_minari_id(source: str, name: str) -> None:
    """Raise `InvalidInput` for a misspelled path, which Minari would look up on its server."""
    from minari.storage import get_dataset_path

    if is_minari_id(name) and os.path.isdir(get_dataset_path(name)):
        return
    recorded = f"{RECORDINGS}/{name}"
    if os.path.isdir(recorded):
        raise InvalidInput(
            f"{source} must be a dataset in $MINARI_DATASETS_PATH; received {name!r}. Use "
            f"minari:{recorded}."
        )
    if not is_minari_id(name) or name.startswith((".", "/")) or os.path.isdir(name.split("/")[0]):
        raise InvalidInput(
            f"{source} must be a folder that exists, or an ID NAMESPACE/NAME-vN such as "
            f"mujoco/walker2d/medium-v0; received {name!r}"
        )


def _minari_episodes(source, dataset):
    episodes = iter(dataset.iterate_episodes())
    details = iter(dataset.storage.get_episode_metadata(dataset.episode_indices))
    for number in dataset.episode_indices:
        name = f"{source}, episode {number}"
        with _read_errors(f"{name} of {len(dataset)}"):
            part = next(episodes)
            terminated = bool(part.terminations[-1:].any())
            steps = int(next(details).get("total_steps", len(part.rewards)))
        _check_length(name, part.observations, len(part.rewards), steps)
        yield _episode(name, part.observations, part.actions, part.rewards, terminated)


def _check_length(name, observations, length, steps):
    """Raise `InvalidInput` unless there is an observation after the last recorded step.

    Minari assumes this observation in arrow and parquet files, and reads wrong steps without it.
    """
    if isinstance(observations, np.ndarray) and (len(observations) != steps + 1 or length != steps):
        raise InvalidInput(
            f"{name}: an episode of {steps} recorded steps must have {steps + 1} observations, one "
            f"of them after the last action; received {len(observations)}"
        )


def _read_tfds(source: str, name: str) -> OfflineData:
    tfds = optional_package("tensorflow_datasets", source)
    hint = (
        "tensorflow.org/datasets lists the names; prepared datasets are in $TFDS_DATA_DIR, and "
        "tfds:FOLDER reads the folder of a prepared version"
    )
    with _read_errors(source, hint):
        if os.path.isdir(name):
            builder = tfds.builder_from_directory(name)
        else:
            builder = tfds.builder(name)
            builder.download_and_prepare()
        _check_rlds(source, tfds.features, builder.info.features)
        dataset = builder.as_dataset(
            split="train", decoders={"steps": tfds.decode.SkipDecoding()}, shuffle_files=False
        )
        parts = [part["steps"] for part in tfds.as_numpy(dataset)]
    episodes = [_rlds_episode(f"{source}, episode {i}", part) for i, part in enumerate(parts)]
    return _rlds_data(source, builder.info.full_name, [e for e in episodes if e is not None])


def _check_rlds(source, kinds, features):
    """Raise `InvalidInput` unless the steps of an episode are numbers under RLDS's names."""
    steps = dict(dict(features).get("steps", {}))
    needed = ("observation", "action", "reward", "is_last", "is_terminal")
    if missing := [name for name in needed if name not in steps]:
        raise InvalidInput(f"{source} must be in RLDS format; received steps without {missing}")
    for name in needed:
        feature = steps[name]
        if not isinstance(feature, kinds.Tensor) or np.dtype(feature.np_dtype).kind not in "biuf":
            raise InvalidInput(
                f"{source}: {name} must be an array of numbers; images, dicts and texts are not "
                f"supported; received {' '.join(str(feature).split())}"
            )


def _rlds_episode(name, steps):
    """Convert an RLDS episode, whose last step has only an observation; None without actions."""
    observations, length = steps["observation"], len(steps["is_last"])
    # Some recorders do not store a step with the observation after the last action.
    count = length - int(steps["is_last"][-1:].sum())
    if length and not count:
        return None
    if count == length:
        observations = np.concatenate([observations, observations[-1:]])
    terminated = bool(steps["is_terminal"][-1:].any())
    return _episode(
        name, observations, steps["action"][:count], steps["reward"][:count], terminated
    )


def _episode(name: str, observations: Any, actions: Any, rewards: Any, terminated: bool) -> Episode:
    if isinstance(observations, (dict, tuple)) or isinstance(actions, (dict, tuple)):
        raise InvalidInput(f"{name}: observations and actions must be arrays; received a dict")
    try:
        episode = Episode(observations, actions, rewards, terminated, truncated=not terminated)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error
    changes: dict[str, Any] = {
        field: values.astype("float32")
        for field, values in vars(episode).items()
        if isinstance(values, np.ndarray) and values.dtype == "float64"
    }
    if episode.observations.dtype == bool:  # inputs of an exported policy must be numbers
        changes["observations"] = episode.observations.astype("uint8")
    return dataclasses.replace(episode, **changes)


def _rlds_data(source: str, name: str, episodes: list[Episode]) -> OfflineData:
    """Return the data of RLDS episodes, with an inferred action space and environment.

    RLDS stores neither. The environment is known for the names of D4RL datasets.
    """
    if not episodes:
        raise InvalidInput(f"{source} must have episodes; received none")
    actions = episodes[0].actions
    if actions.dtype.kind in "iu":
        largest = max(int(episode.actions.max()) for episode in episodes)
        # `OfflineData` raises an error for actions below 0 or above the limit.
        space: Discrete | Box = Discrete(min(max(largest + 1, 1), MAX_ACTIONS))
    else:
        space = Box(-1.0, 1.0, actions.shape[1:] or (1,))
    data = OfflineData(source, tuple(episodes), space, "unknown environment")
    for task, (environment, references) in _D4RL_TASKS.items():
        if name.startswith("d4rl") and task in name:
            make_env = functools.partial(gymnasium.make, environment)
            return dataclasses.replace(
                data, environment=environment, make_env=make_env, reference_returns=references
            )
    return data


@contextlib.contextmanager
def _read_errors(source: str, hint: str = "") -> Iterator[None]:
    """Convert any error of a library that reads data to an `InvalidInput` with a short message."""
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:  # each library raises different errors for damaged files
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        if isinstance(error, ImportError):
            hint = f"it needs {INSTALL}"
        raise InvalidInput(
            f"{source} cannot be read{hint and f' ({hint})'}; received the error: {reason}"
        ) from error


_READERS = {"minari": _read_minari, "tfds": _read_tfds}
