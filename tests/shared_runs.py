"""Tiny runs of every task for processes of their own: `python shared_runs.py RUNS RUN ...`.

A RUN is `TASK:DEVICES:NAME`, or `TASK:DEVICES:NAME:JSON` with fields of its configuration. In the
environment, `LOGICAL_DEVICES` is how many virtual CPU devices there are, and `KILLED_AT` the row of
the log at which the process is killed.
"""

import dataclasses
import gzip
import json
import os
import pathlib
import signal
import struct
import sys

import numpy as np

FIT = {
    "steps": 20,
    "log_every": 5,
    "checkpoint_every": 10,
    "batch_size": 8,
    "learning_rate": 1e-4,
    "warmup_steps": 2,
}


def write_digits(folder):
    """MNIST's four files with a few images: a bright bar, its row is the label."""
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

    options = {**FIT, "held_out": 20, "draw_every": 20, "data": str(runs / "digits")}
    return script.main, dataclasses.replace(script.PRESETS["patch-mnist"], **options)


def nth_farthest(runs):
    from train_scripts import train_nth_farthest as script

    sizes = {"num_vectors": 3, "dimension": 2, "stages": ((2, 1), (3, 1)), "optimizer": "adam"}
    epochs = {"epochs": 4, "steps_per_epoch": 5, "evaluate_every": 2, "evaluation_questions": 100}
    rest = {"batch_size": 8, "learning_rate": 1e-4, "warmup_steps": 2, "stage_epochs": 1}
    rest["jit_compile"] = False
    return script.main, dataclasses.replace(script.FAST, **sizes, **epochs, **rest)


def text(runs):
    from train_scripts import train_text as script

    file = runs / "text.txt"
    file.write_text("to be or not to be, that is the question. " * 40)
    sizes = {"embedding": 4, "mem_slots": 2, "head_size": 3, "num_heads": 2, "sample_length": 5}
    rest = {"text": str(file), "lanes": 8, "length": 8, "epochs": 1, "learning_rate": 1e-4}
    return script.main, dataclasses.replace(script.PRESETS["rmc"], **sizes, **rest)


def decision_transformer(runs):
    import keras
    from counting_episodes import offline

    from rrl_tf.data import Scaling
    from rrl_tf.models import DecisionTransformer
    from rrl_tf.training import decision_transformer as training
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


TASKS = (mnist, nth_farthest, text, decision_transformer, double_dqn)


def train(runs, task, devices, name, **fields):
    """The run of a task, in a folder of that name."""
    main, config = {each.__name__: each for each in TASKS}[task](runs)
    places = {"runs": str(runs), "name": name, "devices": devices}
    return main(dataclasses.replace(config, **places, **fields))


def killed_at(step):
    """Ends this process without a word when the training comes to a step."""
    from rrl_tf.training import MetricsLog

    write = MetricsLog.write

    def dying(self, at, metrics):
        if at >= step:
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, at, metrics)

    MetricsLog.write = dying


def main():
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    from rrl_tf.quiet import load_tensorflow

    load_tensorflow()
    import tensorflow as tf

    if devices := int(os.environ.get("LOGICAL_DEVICES", 0)):
        (processor,) = tf.config.list_physical_devices("CPU")
        one = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(processor, [one] * devices)
    if step := os.environ.get("KILLED_AT"):
        killed_at(int(step))
    runs = pathlib.Path(sys.argv[1])
    for run in sys.argv[2:]:
        task, count, name, *fields = run.split(":", 3)
        train(runs, task, int(count), name, **json.loads(fields[0] if fields else "{}"))


if __name__ == "__main__":
    main()
