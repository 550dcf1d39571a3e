"""Trains a classifier of MNIST digits: relations, convolutions, attention on patches, dense layers.

python -m train_scripts.train_mnist                         # ours, on perturbed digits
python -m train_scripts.train_mnist --preset book           # the book's relational module
python -m train_scripts.train_mnist --preset book-cnn       # what the book compares it with
python -m train_scripts.train_mnist --preset patch-mnist    # the blog's attention, clean digits
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import keras
import numpy as np

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
    EarlyStop,
    FitConfig,
    FitRun,
    LogImages,
    checksum,
    make_replicas,
    require_multiple,
    require_not_negative,
    require_positive,
)
from train_scripts import command_line, mnist_pictures

IMAGE_SHAPE = (28, 28, 1)
MODELS: dict[str, Any] = {
    "relational": RelationalClassifier,
    "convolutional": ConvolutionalClassifier,
    "patch_attention": PatchAttentionClassifier,
    "mlp": MLPClassifier,
}


@dataclasses.dataclass(frozen=True)
class Config(FitConfig):
    """Every number of a run. A step is one update."""

    preset: str = "fast"
    runs: str = "runs/mnist"
    data: str | None = None
    """Folder with the four original files, or of TensorFlow Datasets; its own by default."""

    model: Literal["relational", "convolutional", "patch_attention", "mlp"] = "relational"
    """Which classifier of `rrl_tf.models`."""
    network: str = "fast"
    """Preset of that classifier."""

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
    warmup_steps: int = 50
    patience: int = 0
    """Stop after so many rows of the log without a better `eval/accuracy`; 0 never does."""

    log_every: int = 50
    """Steps between rows of the log; a divisor of `steps`."""
    checkpoint_every: int = 100
    """Steps between checkpoints, a multiple of `log_every`."""
    draw_every: int = 500
    """Steps between pictures in TensorBoard, a multiple of `log_every`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "steps", "batch_size", "held_out")
        require_positive(self, "log_every", "checkpoint_every", "draw_every")
        require_multiple(self, ("steps", "checkpoint_every", "draw_every"), "log_every")
        require_not_negative(self, "shift", "rotation", "spots", "patience", "test_seed")
        self.optimizer_options(self.steps)  # raises where the schedule has no steps left


FAST = Config()
BOOK = dataclasses.replace(
    FAST, preset="book", network="book", learning_rate=1e-3, schedule="constant", warmup_steps=0
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


def main(config: Config) -> FitRun:
    """Trains a classifier of MNIST digits; the same command again continues."""
    replicas = make_replicas(config, config.batch_size)
    splits = load_mnist(config.data)
    training, validation = held_out(splits["train"], config.held_out)
    if config.batch_size > len(training.labels):
        raise InvalidInput(
            f"batch_size must be at most the {len(training.labels):,} images to train on; "
            f"received {config.batch_size}"
        )
    keras.utils.set_random_seed(config.seed)
    run = FitRun(
        config,
        make_model(config),
        steps=config.steps,
        steps_per_epoch=config.log_every,
        checkpoint_every=config.checkpoint_every,
        may_change=("data",),
        identity={"data_checksum": checksum(*splits["train"])},
        stop=EarlyStop("eval/accuracy", config.patience, mode="max"),
        replicas=replicas,
    )
    if not run.is_finished():
        prepare, size = preprocessor(config), config.batch_size
        shown = mnist_pictures.one_of_each(*prepared(splits["test"], prepare, config.test_seed))
        run.fit(
            batches(training, size, prepare, config.seed, run.step, config.replacement),
            validation_data=prepared(validation, prepare, config.test_seed),
            validation_batch_size=250,
            callbacks=[
                LogImages(run.log, lambda m: mnist_pictures.images(m, *shown), config.draw_every)
            ],
        )
        run.by_chief(finish, run, splits["test"])
    return run


def finish(run: FitRun, test: Split) -> None:
    """The test, pictures and export of a run that has just been trained."""
    config, model, folder = run.config, run.model, run.folder
    inputs = {name: prepared(test, f, config.test_seed)[0] for name, f in tests(config).items()}
    logits = {name: model.predict(x, batch_size=250, verbose=0) for name, x in inputs.items()}
    summary = {
        "step": run.step,
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
    run.finish(
        summary,
        f"of the {len(test.labels):,} test images {summary['test/perturbed']:.2%} right when "
        f"perturbed, {summary['test/clean']:.2%} when clean; {summary['parameters']:,} parameters",
        [*paths, version],
    )


def make_model(config: Config) -> keras.Model:
    """A compiled classifier with new weights."""
    model = MODELS[config.model].from_preset(config.network, dtype=config.dtype)
    model.build((None, *IMAGE_SHAPE))
    model.compile(
        keras.optimizers.Adam(**config.optimizer_options(config.steps)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=config.jit_compile,
    )
    return model


def preprocessor(config: Config) -> Callable[..., Any]:
    """The function of (images, seed) that makes the model's input."""
    return tests(config)["perturbed" if config.perturbed else "clean"]


def tests(config: Config) -> dict[str, Callable[..., Any]]:
    """Name → how the test images are prepared; every model is asked both, however it learnt."""
    perturbed = Perturbation(config.shift, config.rotation, config.spots)
    return {"perturbed": perturbed, "clean": clean}


def held_out(split: Split, count: int) -> list[Split]:
    """The images to train on and `count` others, the same ones whatever the seed."""
    if count >= len(split.labels):
        raise InvalidInput(
            f"held_out must leave some of the {len(split.labels):,} images to train on; "
            f"received {count:,}"
        )
    order = np.random.default_rng(0).permutation(len(split.labels))
    parts = np.sort(order[count:]), np.sort(order[:count])
    return [Split(split.images[part], split.labels[part]) for part in parts]


def accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    """Share of the rows whose largest logit is the label's."""
    return float((logits.argmax(-1) == labels).mean())


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="fast")
