"""Tiny runs of every task in separate processes: `python shared_runs.py RUNS RUN ...`.

A RUN is `TASK:DEVICES:NAME`, or `TASK:DEVICES:NAME:JSON` with fields of its configuration.

Environment variables:
    LOGICAL_DEVICES: number of virtual CPU devices.
    SIGNAL: `NUMBER:STEP`, for example `9:15`; the process sends itself this signal before it writes
        the log row of this step.
"""

import csv
import dataclasses
import gzip
import json
import os
import pathlib
import struct
import sys

import numpy as np
import pytest

TESTS = pathlib.Path(__file__).parent
FIT = {
    "steps": 20,
    "log_every": 5,
    "checkpoint_every": 10,
    "batch_size": 8,
    "learning_rate": 1e-4,
    "warmup_steps": 2,
}


def write_digits(folder):
    """Write MNIST's four files with a few images; the row of a bright bar is the label."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 60), ("t10k", 20)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.random.default_rng(count).integers(0, 60, (count, 28, 28), np.uint8)
        for image, label in zip(images, labels):
            image[4 + 2 * label : 6 + 2 * label, 4:24] = 255
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            with gzip.open(folder / f"{part}-{name}-ubyte.gz", "wb") as file:
                file.write(header + array.tobytes())


def mnist(runs):
    from train_scripts import train_mnist as script

    write_digits(runs / "digits")
    options = {**FIT, "held_out": 20, "draw_every": 20, "data": str(runs / "digits")}
    return script.main, dataclasses.replace(script.PRESETS["patch-mnist"], **options)


def nth_farthest(runs):
    from train_scripts import train_nth_farthest as script

    sizes = {"num_vectors": 3, "dimension": 2, "stages": ((2, 1, 2, 0), (3, 1, 3, 1))}
    rest = {
        "optimizer": "adam",
        "draw_every": 10,
        "evaluation_questions": 100,
        "stage_rows": 1,
        "new_dense_steps": (11,),
        "jit_compile": False,
    }
    return script.main, dataclasses.replace(script.FAST, **FIT, **sizes, **rest)


def decision_transformer(runs):
    import keras
    from counting_episodes import offline

    from rrl_tf.models import DecisionTransformer
    from rrl_tf.offline import Scaling
    from rrl_tf.offline import decision_transformer as training
    from rrl_tf.training import make_replicas

    data = offline((3, 9, 5, 12, 4, 7), discrete=True)
    config = training.DecisionTransformerConfig(**FIT, held_out=0.3)

    def main(config):
        replicas = make_replicas(config, config.batch_size)
        keras.utils.set_random_seed(config.seed)
        scaling = Scaling.of(config.split(data)[0])
        sizes = {"width": 16, "num_blocks": 1, "context_length": 6, "dropout": 0.0}
        network = DecisionTransformer.from_preset(
            "fast", state_size=2, action_size=3, discrete=True, heads=("action",), **sizes
        )
        return training.train_decision_transformer(data, network, scaling, config, replicas)

    return main, config


def double_dqn(runs):
    from train_scripts import train_dqn as script

    steps = {"steps": 96, "num_envs": 4, "learning_starts": 15, "updates_per_step": 0.25}
    every = {"log_every": 32, "evaluate_every": 96, "checkpoint_every": 48}
    sizes = {
        "jit_compile": False,
        "batch_size": 8,
        "replay_capacity": 200,
        "evaluation_episodes": 2,
    }
    config = script.Config(env="CartPole-v1", learning_rate=1e-4, **steps, **every, **sizes)
    return (lambda config: script.main(config)[0]), config


_TASKS = (mnist, nth_farthest, decision_transformer, double_dqn)
NAMES = tuple(task.__name__ for task in _TASKS)


def train(runs, task, devices, name, **fields):
    """Train a task in a run folder of the given name and return the run."""
    main, config = {each.__name__: each for each in _TASKS}[task](runs)
    places = {"runs": str(runs), "name": name, "devices": devices}
    return main(dataclasses.replace(config, **places, **fields))


def environment():
    """Return the environment variables of a process that runs this file or tests."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (TESTS.parent, TESTS))),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def checkpoints(run):
    """Return the complete checkpoints in a run folder."""
    return sorted(path for path in (run / "checkpoints").iterdir() if path.name.isdigit())


def assert_equal(run, expected):
    """Check that two run folders have the same log and weights, except for rounding."""
    logs = [_rows(path / "metrics.csv") for path in (run, expected)]
    for row, other in zip(*logs, strict=True):
        assert row == pytest.approx(other, rel=1e-4, abs=1e-5)
    (state, other), last = zip(*map(_newest_state, (run, expected)))
    assert last[0] == last[1] and state.keys() == other.keys()
    for name, array in other.items():
        np.testing.assert_allclose(state[name], array, rtol=1e-6, atol=1e-5, err_msg=name)


def _rows(file):
    with file.open(newline="") as table:
        return [
            {name: float(cell) for name, cell in row.items() if cell and name[:5] != "time/"}
            for row in csv.DictReader(table)
        ]


def _newest_state(run):
    (checkpoint,) = checkpoints(run)
    with np.load(checkpoint / "arrays.npz") as arrays:
        return dict(arrays), checkpoint.name


def make_logical_devices():
    """Split the CPU into `LOGICAL_DEVICES` devices. Call it before TensorFlow is initialized."""
    import tensorflow as tf

    (processor,) = tf.config.list_physical_devices("CPU")
    if count := int(os.environ.get("LOGICAL_DEVICES", 0)):
        one = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(processor, [one] * count)


def signalled(number, step):
    """Send this process a signal before the log row of a step is written."""
    from rrl_tf.training import MetricsLog

    write = MetricsLog.write

    def writing(self, at, metrics):
        if at == step:
            os.kill(os.getpid(), number)
        write(self, at, metrics)

    MetricsLog.write = writing


def main():
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    from rrl_tf._tf_logging import load_tensorflow

    load_tensorflow()
    make_logical_devices()
    if at := os.environ.get("SIGNAL"):
        signalled(*map(int, at.split(":")))
    runs = pathlib.Path(sys.argv[1])
    for run in sys.argv[2:]:
        task, count, name, *fields = run.split(":", 3)
        train(runs, task, int(count), name, **json.loads(fields[0] if fields else "{}"))


if __name__ == "__main__":
    main()
