"""Offline data by name: Minari, TensorFlow Datasets (RLDS), and the HDF5 files of D4RL."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf._optional_packages import INSTALL, optional_package
from rrl_tf.errors import InvalidInput
from rrl_tf.offline._minari_names import check_missing
from rrl_tf.offline.episodes import MOST_ACTIONS, Episode, OfflineData

# Returns of a random and of an expert policy, by which D4RL scores are defined.
D4RL_REFERENCES = {
    "halfcheetah": (-280.178953, 12135.0),
    "hopper": (-20.272305, 3234.3),
    "walker2d": (1.629008, 4592.3),
}
_D4RL_ENVIRONMENTS = {"halfcheetah": "HalfCheetah-v4", "hopper": "Hopper-v4"}
_D4RL_ENVIRONMENTS["walker2d"] = "Walker2d-v4"


def load_episodes(source: str) -> OfflineData:
    """Loads the episodes that a name stands for.

    Args:
        source: one of

            - `"minari:ID"`, as `minari:mujoco/walker2d/medium-v0`, or `"minari:FOLDER"` with the
              path of such a data set; what is not on this machine is downloaded.
            - `"tfds:NAME"`, as `tfds:d4rl_mujoco_walker2d/v2-medium`, or `"tfds:FOLDER"` with the
              path of a prepared version; any data set in RLDS form.
            - `"hdf5:FILE"`, a file in D4RL's form.

            The last two do not tell the space of actions: integers are from 0 up, and floats are
            in [-1, 1], as D4RL's.

    Returns:
        `OfflineData`.

    Raises:
        ValueError: if there is no such data, a package is missing that reads it, or it is not what
            it should be.

    Example:

    >>> data = load_episodes("tfds:d4rl_mujoco_walker2d/v2-medium")  # doctest: +SKIP
    >>> data.steps, data.returns().mean()  # doctest: +SKIP
    """
    kind, _, name = source.partition(":")
    if kind not in _READERS or not name:
        raise InvalidInput(
            "a source is minari:ID, tfds:NAME, hdf5:FILE, or a path after minari: or tfds:; "
            f"received {source!r}"
        )
    return _READERS[kind](source, os.path.expanduser(name))  # no shell does it after a colon


def _read_minari(source: str, name: str) -> OfflineData:
    minari = optional_package("minari", source)
    is_folder = os.path.isdir(name)
    if not is_folder:
        check_missing(source, name)
    try:
        if is_folder:
            inside = os.path.join(name, "data")
            dataset = minari.MinariDataset(inside if os.path.isdir(inside) else name)
        else:
            dataset = minari.load_dataset(name, download=True)
    except ImportError as error:  # of what downloads, or reads the format
        raise InvalidInput(f"{source} needs {INSTALL}; received {_first_line(error)}") from error
    except Exception as error:
        raise InvalidInput(
            f"{source} cannot be loaded ({_first_line(error)}). Local data sets are looked for in "
            "$MINARI_DATASETS_PATH; `minari list local` and `minari list remote` name them"
        ) from error
    spec = dataset.env_spec
    return OfflineData(
        source,
        tuple(_minari_episodes(source, dataset)),
        dataset.action_space,
        spec.id if spec else "unknown environment",
        dataset.recover_environment if spec else None,
        dataset.observation_space,
    )


def _minari_episodes(source, dataset):
    parts = iter(dataset.iterate_episodes())
    for number in dataset.episode_indices:
        where = f"{source}, episode {number}"
        try:
            part = next(parts)
            terminated = bool(part.terminations[-1]) if len(part.terminations) else False
        except Exception as error:  # of h5py, and of Minari, which takes it for granted
            raise InvalidInput(
                f"{where} of {len(dataset)} is damaged: {_first_line(error)}"
            ) from error
        yield _episode(where, part.observations, part.actions, part.rewards, terminated)


def _read_tfds(source: str, name: str) -> OfflineData:
    tfds = optional_package("tensorflow_datasets", source)
    try:
        if pathlib.Path(name).is_dir():
            builder = tfds.builder_from_directory(name)
        else:
            builder = tfds.builder(name)
            builder.download_and_prepare()
        _check_rlds(source, tfds.features, builder.info.features)
        dataset = builder.as_dataset(
            split="train", decoders={"steps": tfds.decode.SkipDecoding()}, shuffle_files=False
        )
        parts = [part["steps"] for part in tfds.as_numpy(dataset)]
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{source} cannot be loaded ({_first_line(error)}). Its names are in the catalogue at "
            "tensorflow.org/datasets; a prepared one is looked for in $TFDS_DATA_DIR, and "
            "`tfds:FOLDER` reads one from its version's folder"
        ) from error
    episodes = [_rlds_episode(f"{source}, episode {i}", part) for i, part in enumerate(parts)]
    return _d4rl_data(source, builder.info.full_name, [e for e in episodes if e is not None])


def _check_rlds(source, kinds, features):
    """Raises `InvalidInput` unless episodes have steps of numbers under RLDS' names."""
    steps = dict(dict(features).get("steps", {}))
    needed = ("observation", "action", "reward", "is_last", "is_terminal")
    if missing := [name for name in needed if name not in steps]:
        raise InvalidInput(f"{source} is not in RLDS form: its steps lack {missing}")
    for name in needed:
        feature = steps[name]
        if not isinstance(feature, kinds.Tensor) or np.dtype(feature.np_dtype).kind not in "biuf":
            raise InvalidInput(
                f"{source}: {name} must be an array of numbers, as images, dicts and texts are not "
                f"read; received {' '.join(str(feature).split())}"
            )


def _rlds_episode(where, steps):
    """An episode of RLDS, whose last step has nothing but its observation."""
    observations, length = steps["observation"], len(steps["is_last"])
    # What was recorded without the observation after its last step has no step for it.
    count = length - int(steps["is_last"][-1:].sum())
    if length and not count:
        return None
    if count == length:
        observations = np.concatenate([observations, observations[-1:]])
    terminated = bool(steps["is_terminal"][-1:].any())
    return _episode(
        where, observations, steps["action"][:count], steps["reward"][:count], terminated
    )


def _read_hdf5(source: str, name: str) -> OfflineData:
    h5py = optional_package("h5py", source)
    try:
        with h5py.File(name, "r") as file:
            arrays = _hdf5_arrays(source, file)
    except InvalidInput:
        raise
    except Exception as error:  # of HDF5, which has one for every kind of damage
        raise InvalidInput(
            f"{source} cannot be read as a file of D4RL: {_first_line(error)}"
        ) from error
    return _d4rl_data(source, pathlib.Path(name).stem, list(_cut(source, arrays)))


def _hdf5_arrays(source, file):
    """What a file of D4RL holds of every step, by name."""
    needed = {"observations", "actions", "rewards", "terminals"}
    if missing := needed - file.keys():
        raise InvalidInput(
            f"{source}: it lacks {', '.join(sorted(missing))}. A file of D4RL holds observations, "
            "actions, rewards, terminals and timeouts of all steps in a row"
        )
    names = sorted((needed | {"timeouts", "next_observations"}) & file.keys())
    for name in names:
        if not hasattr(file[name], "dtype"):
            raise InvalidInput(f"{source}: {name} must be an array; received a group")
    # Whole arrays: compressed parts would be unpacked again for every episode in them.
    arrays = {name: np.asarray(file[name][()]) for name in names}
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf" or not array.ndim or 0 in array.shape[1:]:
            raise InvalidInput(
                f"{source}: {name} must be numbers or booleans of every step; received the dtype "
                f"{array.dtype} and the shape {array.shape}"
            )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInput(f"{source}: the arrays differ in length: {lengths}")
    steps = len(arrays["rewards"])
    after = arrays.get("next_observations", arrays["observations"])
    if after.shape != arrays["observations"].shape:
        raise InvalidInput(
            f"{source}: next_observations must have the shape of observations, "
            f"{arrays['observations'].shape}; received {after.shape}"
        )
    for name in sorted({"rewards", "terminals", "timeouts"} & arrays.keys()):
        if arrays[name].shape[1:] not in ((), (1,)):
            raise InvalidInput(
                f"{source}: {name} must have the shape ({steps},) or ({steps}, 1); received "
                f"{arrays[name].shape}"
            )
        arrays[name] = arrays[name].reshape(-1)
    for name in sorted({"terminals", "timeouts"} & arrays.keys()):
        wrong = arrays[name][~np.isin(arrays[name], (0, 1))]
        if wrong.size:
            raise InvalidInput(f"{source}: {name} must be 0 or 1; received {wrong[0]!s}")
    return arrays


def _cut(source, arrays):
    """Episodes of the steps in a row; a last one that was not finished is dropped, as by D4RL."""
    terminals = arrays["terminals"].astype(bool)
    over = terminals | arrays.get("timeouts", terminals).astype(bool)
    ends = np.flatnonzero(over) + 1
    if not ends.size:
        raise InvalidInput(
            f"{source} must have episodes that end; received {len(over)} steps, none of which has "
            "a terminal or a timeout"
        )
    observations, actions = arrays["observations"], arrays["actions"]
    # Nothing learns from the observation after the last step; without it, the last stands in.
    after = arrays.get("next_observations", observations)[ends - 1]
    rewards = arrays["rewards"]
    for i, (begin, end) in enumerate(zip([0, *ends], ends)):
        yield _episode(
            f"{source}, episode {i}",
            np.concatenate([observations[begin:end], after[i : i + 1]]),
            actions[begin:end],
            rewards[begin:end],
            bool(terminals[end - 1]),
        )


def _episode(
    where: str, observations: Any, actions: Any, rewards: Any, terminated: bool
) -> Episode:
    if isinstance(observations, (dict, tuple)) or isinstance(actions, (dict, tuple)):
        raise InvalidInput(f"{where}: only arrays can be read, no dicts or tuples of them")
    try:
        episode = Episode(
            np.asarray(observations),
            np.asarray(actions),
            np.asarray(rewards),
            terminated,
            truncated=not terminated,
        )
    except ValueError as error:
        raise InvalidInput(f"{where}: {error}") from error
    # float64 is the format of some recorders, not a precision that anyone needs here; and policies
    # are asked with numbers, so that what was seen as booleans is 0 and 1.
    changes = {
        name: values.astype("float32")
        for name, values in vars(episode).items()
        if name in ("observations", "actions", "rewards") and values.dtype == "float64"
    }
    if episode.observations.dtype == bool:
        changes["observations"] = episode.observations.astype("uint8")
    return dataclasses.replace(episode, **changes) if changes else episode


def _d4rl_data(source: str, name: str, episodes: list[Episode]) -> OfflineData:
    """Data whose format does not tell the action space; D4RL's names tell the environment."""
    if not episodes:
        raise InvalidInput(f"{source} must have episodes; received none")
    actions = episodes[0].actions
    if actions.dtype.kind in "iu":
        largest = max(int(episode.actions.max()) for episode in episodes)
        # What is less than 0 or too large for a number of actions is then none of them.
        space: Discrete | Box = Discrete(min(max(largest + 1, 1), MOST_ACTIONS))
    else:
        space = Box(-1.0, 1.0, actions.shape[1:] or (1,))
    task = next((task for task in D4RL_REFERENCES if task in name and "d4rl" in source), None)
    task = task or next((t for t in D4RL_REFERENCES if name.startswith(f"{t}_")), "")
    environment = _D4RL_ENVIRONMENTS.get(task)
    return OfflineData(
        source,
        tuple(episodes),
        space,
        environment or "unknown environment",
        (lambda: gymnasium.make(environment)) if environment else None,
        reference_returns=D4RL_REFERENCES.get(task),
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


_READERS = {"minari": _read_minari, "tfds": _read_tfds, "hdf5": _read_hdf5}
