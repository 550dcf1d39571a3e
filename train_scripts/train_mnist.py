"""Trains a classifier of MNIST digits: relations, convolutions, attention on patches, dense layers.

python -m train_scripts.train_mnist                         # ours, on perturbed digits
python -m train_scripts.train_mnist --preset book           # the book's relational module
python -m train_scripts.train_mnist --preset book-cnn       # what the book compares it with
python -m train_scripts.train_mnist --preset patch-mnist    # the blog's attention, clean digits
"""

import dataclasses
from typing import Literal

import keras
import numpy as np
from tqdm import tqdm
from tqdm.keras import TqdmCallback

from rrl_tf.data.mnist import Split, load_mnist
from rrl_tf.data.mnist_batches import batches, prepared
from rrl_tf.data.perturb import Perturbation, clean
from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_classifier
from rrl_tf.models import (
    ConvolutionalClassifier,
    MLPClassifier,
    PatchAttentionClassifier,
    RelationalClassifier,
)
from rrl_tf.training import (
    Checkpoint,
    EarlyStop,
    LogImages,
    LogMetrics,
    MetricsLog,
    Profile,
    RunFolder,
)
from train_scripts import command_line, mnist_pictures

IMAGE_SHAPE = (28, 28, 1)
MODELS = {
    "relational": RelationalClassifier,
    "convolutional": ConvolutionalClassifier,
    "patch_attention": PatchAttentionClassifier,
    "mlp": MLPClassifier,
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Every number of a run. A step is one update."""

    preset: str = "fast"
    """Where the numbers below come from."""
    seed: int = 0
    """Of the weights, the images drawn and their perturbation."""
    name: str = ""
    """Folder under `runs`; by default the preset and the seed."""
    runs: str = "runs/mnist"
    """Where runs are kept."""
    data: str | None = None
    """Folder with the four original files, or of TensorFlow Datasets; its own by default."""

    model: Literal["relational", "convolutional", "patch_attention", "mlp"] = "relational"
    """Which classifier of `rrl_tf.models`."""
    network: str = "fast"
    """Preset of that classifier."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Precision of the network."""
    jit_compile: bool = False
    """Compile the step with XLA; on a CPU its convolutions are slower than without."""

    perturbed: bool = True
    """Move, turn and spot the digits, in training and in the test; or take them as they are."""
    shift: int = 6
    """Pixels, along either axis."""
    rotation: int = 30
    """Degrees."""
    spots: int = 10
    """White pixels, at least so many drawn."""
    held_out: int = 2000
    """Images of the training set kept from training: `eval/` in the log, and early stopping."""
    test_seed: int = 0
    """Of the perturbation of the 10,000 test images."""

    steps: int = 1000
    batch_size: int = 300
    replacement: bool = True
    """Draw every image of a batch from all; or each image once before any comes again."""
    learning_rate: float = 3e-3
    """Adam's step size; the largest one, with a schedule."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """Constant, or a straight line up for `warmup_steps` and half a cosine down to 0."""
    warmup_steps: int = 50
    patience: int = 0
    """Stop after so many rows of the log without a better `eval/accuracy`; 0 never does."""

    log_every: int = 50
    """Steps between rows of the log; a divisor of `steps`."""
    checkpoint_every: int = 100
    """Steps between checkpoints, a multiple of `log_every`."""
    draw_every: int = 500
    """Steps between pictures in TensorBoard, a multiple of `log_every`."""
    profile_from: int | None = None
    """Record 20 steps from this one on for TensorBoard's profiler."""


FAST = Config()
BOOK = dataclasses.replace(
    FAST, preset="book", network="book", learning_rate=1e-3, schedule="constant"
)
PATCHES = dataclasses.replace(
    BOOK,
    preset="patch-mnist",
    model="patch_attention",
    network="patch-mnist",
    perturbed=False,
    steps=4688,  # five times through 60,000 images
    batch_size=64,
    replacement=False,
    learning_rate=3e-3,
    log_every=293,
    checkpoint_every=586,
    draw_every=2344,
)
PRESETS = {
    "fast": FAST,
    "fast-long": dataclasses.replace(
        FAST, preset="fast-long", steps=6000, log_every=200, checkpoint_every=400, draw_every=2000
    ),
    "book": BOOK,
    "book-cnn": dataclasses.replace(BOOK, preset="book-cnn", model="convolutional"),
    "patch-mnist": PATCHES,
    "patch-mnist-mlp": dataclasses.replace(PATCHES, preset="patch-mnist-mlp", model="mlp"),
}


def main(config):
    """Trains a classifier of MNIST digits; the same command again continues."""
    check_intervals(config)
    splits = load_mnist(config.data)
    training, validation = held_out(splits["train"], config.held_out)
    keras.utils.set_random_seed(config.seed)
    folder = RunFolder(
        command_line.run_path(config), dataclasses.asdict(config), may_change=("data",)
    )
    model = make_model(config)
    checkpoint = Checkpoint(folder, model, config.checkpoint_every // config.log_every)
    log = MetricsLog(folder.path, until_step=checkpoint.step)
    log.settings(dataclasses.asdict(config))
    stop = EarlyStop(log, "eval/accuracy", config.patience or config.steps, mode="max")
    if folder.is_finished(checkpoint.step):
        print(f"{folder.path} is trained already, to step {checkpoint.step:,}")
        return folder, model
    if not stop.reached:
        model.fit(
            batches(
                training,
                config.batch_size,
                preparation(config),
                config.seed,
                checkpoint.step,
                config.replacement,
            ),
            validation_data=prepared(validation, preparation(config), seed=config.test_seed),
            validation_batch_size=250,
            initial_epoch=checkpoint.epoch,
            epochs=config.steps // config.log_every,
            steps_per_epoch=config.log_every,
            callbacks=callbacks(config, folder, log, splits["test"], stop, checkpoint),
            shuffle=False,
            verbose=0,
        )
    finish(config, folder, model, splits["test"], log)
    return folder, model


def callbacks(config, folder, log, test, stop, checkpoint):
    """What happens between the steps; the order matters, see `rrl_tf.training.callbacks`."""
    images, labels = mnist_pictures.one_of_each(
        *prepared(test, preparation(config), config.test_seed)
    )
    draw_every = config.draw_every // config.log_every
    return [
        LogMetrics(log),
        LogImages(log, lambda m: mnist_pictures.images(m, images, labels), draw_every),
        *([] if config.profile_from is None else [Profile(folder.path, config.profile_from)]),
        TqdmCallback(verbose=0, tqdm_class=tqdm, mininterval=0.5),
        stop,
        checkpoint,
    ]


def finish(config, folder, model, test, log):
    """The test, pictures and export of a run that has just been trained."""
    step = int(log.rows[-1]["step"])
    inputs = {name: prepared(test, f, config.test_seed)[0] for name, f in tests(config).items()}
    logits = {name: model.predict(x, batch_size=250, verbose=0) for name, x in inputs.items()}
    summary = {
        "step": step,
        "parameters": model.count_params(),
        **{f"test/{name}": accuracy(each, test.labels) for name, each in logits.items()},
    }
    kind = "perturbed" if config.perturbed else "clean"
    paths = mnist_pictures.draw(model, inputs[kind], test.labels, logits[kind], folder.figures)
    version = export_classifier(
        folder.export,
        model,
        clean,
        IMAGE_SHAPE[:2],
        {"data": "MNIST", "class_names": [str(digit) for digit in range(10)], "scores": summary},
    )
    folder.finish(summary)
    print(
        f"step {step:,}: of the {len(test.labels):,} test images {summary['test/perturbed']:.2%} "
        f"right when perturbed, {summary['test/clean']:.2%} when clean; "
        f"{summary['parameters']:,} parameters\nwritten: {', '.join(map(str, [*paths, version]))}"
    )


def make_model(config):
    """A compiled classifier with new weights."""
    model = MODELS[config.model].from_preset(config.network, dtype=config.dtype)
    model.build((None, *IMAGE_SHAPE))
    model.compile(
        keras.optimizers.Adam(learning_rate(config)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=config.jit_compile,
    )
    return model


def learning_rate(config):
    """Adam's step size, a number or a schedule."""
    if config.schedule == "constant":
        return config.learning_rate
    return keras.optimizers.schedules.CosineDecay(
        0.0,
        decay_steps=config.steps - config.warmup_steps,
        warmup_target=config.learning_rate,
        warmup_steps=config.warmup_steps,
    )


def preparation(config):
    """The function of (images, seed) that makes the model's input."""
    return tests(config)["perturbed" if config.perturbed else "clean"]


def tests(config):
    """Name → how the test images are prepared; every model is asked both, however it learnt."""
    perturbed = Perturbation(config.shift, config.rotation, config.spots)
    return {"perturbed": perturbed, "clean": clean}


def held_out(split, count):
    """The images to train on and `count` others, the same ones whatever the seed."""
    order = np.random.default_rng(0).permutation(len(split.labels))
    parts = np.sort(order[count:]), np.sort(order[:count])
    return [Split(split.images[part], split.labels[part]) for part in parts]


def accuracy(logits, labels):
    """Share of the rows whose largest logit is the label's."""
    return float((logits.argmax(-1) == labels).mean())


def check_intervals(config):
    """Raises a `ValueError` where the log would not come out even, or a schedule not end."""
    if config.schedule == "cosine" and config.steps <= config.warmup_steps:
        raise InvalidInput(
            f"steps must be more than the {config.warmup_steps} of warmup_steps; "
            f"received {config.steps}"
        )
    for name, value, divisor in (
        ("steps", config.steps, "log_every"),
        ("checkpoint_every", config.checkpoint_every, "log_every"),
        ("draw_every", config.draw_every, "log_every"),
    ):
        if value % getattr(config, divisor):
            raise InvalidInput(
                f"{name} must be a multiple of {divisor}; received {value} and "
                f"{getattr(config, divisor)}"
            )


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="fast")
