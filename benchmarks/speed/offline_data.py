"""Seconds and memory to load recorded episodes, and whether training on them needs ever more.

Writes made-up episodes in the shape of Walker2d in each format that `load_episodes` reads, with the
format's own library, and loads every one in a fresh process. Peak memory is what the process grew
by at most while it loaded, relative to the arrays that came out: 1 is no copy, 2 is one.
"""

import concurrent.futures
import dataclasses
import importlib
import multiprocessing
import os
import pathlib
import re
import tempfile
import time
import warnings

import gymnasium
import h5py
import numpy as np

from benchmarks import untrained
from benchmarks.report import Report
from rrl_tf.offline.episodes import Episode, OfflineData
from rrl_tf.offline.sources import load_episodes
from rrl_tf.offline.windows import Windows
from train_scripts.train_decision_transformer import FAST

STATES, ACTIONS = 17, 6


@dataclasses.dataclass(frozen=True)
class Config:
    """How much is loaded, and how long a run is watched."""

    episodes: int = 1000
    steps: int = 1000
    """Of each episode."""
    updates: int = 2000
    """Of a small network, whose process' memory is compared after a tenth and after all of them."""


def main(config):
    """Measures loading in each format, and the memory of a training run."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, write in (("minari", write_minari), ("tfds", write_rlds), ("hdf5", write_hdf5)):
            source = write(pathlib.Path(folder), made_up(config.episodes, config.steps))
            size, seconds, peak = in_a_fresh_process(load, source)
            rows.append(
                {
                    "format": kind,
                    "steps": f"{config.episodes * config.steps:,}",
                    "MB of arrays": size / 1e6,
                    "seconds": seconds,
                    "peak memory of the arrays'": peak / size,
                }
            )
        early, late = in_a_fresh_process(train, source, config.updates)
    notes = (
        f"A run on these data holds {early / 1e6:,.0f} MB after {config.updates // 10:,} updates "
        f"and {late / 1e6:,.0f} MB after {config.updates:,}.",
    )
    return Report("Loading recorded episodes", rows, notes)


def made_up(episodes, steps):
    """Yields so many episodes, as dicts of arrays; every second one was terminated."""
    rng = np.random.default_rng(0)
    for i in range(episodes):
        yield {
            "observations": rng.normal(size=(steps + 1, STATES)).astype("float32"),
            "actions": rng.uniform(-1, 1, size=(steps, ACTIONS)).astype("float32"),
            "rewards": rng.normal(size=steps).astype("float32"),
            "terminated": bool(i % 2),
        }


def made_up_data(episodes=50, steps=500):
    """The same as `load_episodes` returns it."""
    parts = tuple(
        Episode(part["observations"], part["actions"], part["rewards"], False, True)
        for part in made_up(episodes, steps)
    )
    return OfflineData("made up", parts, gymnasium.spaces.Box(-1, 1, (ACTIONS,)), "none")


def write_minari(folder, episodes):
    """Writes a Minari data set and returns its source."""
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    import minari  # it looks for its folder once

    buffers = []
    for i, episode in enumerate(episodes):
        end = np.arange(len(episode["rewards"])) == len(episode["rewards"]) - 1
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                id=i,
                observations=episode["observations"],
                actions=episode["actions"],
                rewards=episode["rewards"],
                terminations=end & episode["terminated"],
                truncations=end & (not episode["terminated"]),
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nobody signed the data, and the like
        minari.create_dataset_from_buffers(
            "benchmarks/made-up-v0",
            buffers,
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (STATES,), "float32"),
            action_space=gymnasium.spaces.Box(-1, 1, (ACTIONS,), "float32"),
        )
    return f"minari:{folder}/benchmarks/made-up-v0"


def write_rlds(folder, episodes):
    """Writes a data set of TensorFlow Datasets in RLDS form and returns its source."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.rlds import rlds_base

    episodes = list(episodes)
    states, actions = (
        tfds.features.Tensor(shape=episodes[0][name].shape[1:], dtype=np.float32)
        for name in ("observations", "actions")
    )
    form = rlds_base.DatasetConfig(
        "made up",
        observation_info=states,
        action_info=actions,
        reward_info=np.float32,
        discount_info=np.float32,
    )

    class MadeUp(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return rlds_base.build_info(form, self)

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i, episode in enumerate(episodes):
                yield i, {"steps": rlds_steps(**episode)}

    builder = MadeUp(data_dir=folder)
    builder.download_and_prepare()
    return f"tfds:{builder.data_dir}"


def rlds_steps(observations, actions, rewards, terminated):
    """An episode in RLDS form: a last step has nothing but its observation."""
    count = len(rewards)
    return [
        {
            "observation": observations[t],
            "action": actions[t] if t < count else np.zeros_like(actions[0]),
            "reward": rewards[t] if t < count else np.float32(0),
            "discount": np.float32(1),
            "is_first": t == 0,
            "is_last": t == count,
            "is_terminal": t == count and terminated,
        }
        for t in range(count + 1)
    ]


def write_hdf5(folder, episodes):
    """Writes a file in D4RL's form and returns its source."""
    flat = {}
    for episode in episodes:
        end = np.arange(len(episode["rewards"])) == len(episode["rewards"]) - 1
        parts = {
            "observations": episode["observations"][:-1],
            "next_observations": episode["observations"][1:],
            "actions": episode["actions"],
            "rewards": episode["rewards"],
            "terminals": end & episode["terminated"],
            "timeouts": end & (not episode["terminated"]),
        }
        for name, values in parts.items():
            flat.setdefault(name, []).append(values)
    with h5py.File(folder / "made-up.hdf5", "w") as file:
        for name, values in flat.items():
            file.create_dataset(name, data=np.concatenate(values), compression="gzip")
    return f"hdf5:{folder}/made-up.hdf5"


def in_a_fresh_process(function, *arguments):
    """What the function returns, called in a process that has done nothing else."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def load(source):
    """Bytes of the arrays that are loaded, seconds, and the bytes the process grew by at most."""
    kind = source.partition(":")[0]
    importlib.import_module({"tfds": "tensorflow_datasets", "hdf5": "h5py"}.get(kind, kind))
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # forgets the peak until now
    before, begun = memory("VmRSS"), time.perf_counter()
    data = load_episodes(source)
    seconds, grown = time.perf_counter() - begun, memory("VmHWM") - before
    arrays = ("observations", "actions", "rewards")
    size = sum(getattr(episode, name).nbytes for episode in data.episodes for name in arrays)
    return size, seconds, grown


def train(source, updates):
    """Bytes the process holds after a tenth of the updates, and after all."""
    data = load_episodes(source)
    model, scaling = untrained.decision_transformer(data, width=16, num_blocks=1)
    batches = Windows(data, FAST.context_length).dataset(FAST.batch_size, scaling)
    held = []
    for steps in (updates // 10, updates - updates // 10):
        model.fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0)
        held.append(memory("VmRSS"))
    return held


def memory(field):
    """Bytes this process holds (`VmRSS`), or held at most (`VmHWM`)."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{field}:\s+(\d+) kB", status)[1])
