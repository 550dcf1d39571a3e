"""Train a classifier of MNIST digits: relational, convolutional, patch attention or dense.

python -m train_scripts.train_mnist                         # ours, on perturbed digits
python -m train_scripts.train_mnist --preset book           # the book's relational module
python -m train_scripts.train_mnist --preset book-cnn       # the book's convolutional baseline
python -m train_scripts.train_mnist --preset patch-mnist    # the blog's attention, clean digits
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rrl_tf import data, training, viz
from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import MUTABLE, SupervisedConfig, require_not_negative, require_positive
from train_scripts import command_line

if TYPE_CHECKING:  # `--help` is shown without Keras
    import keras
    from matplotlib.figure import Figure

IMAGE_SHAPE = (28, 28, 1)
MODELS = {
    "relational": "RelationalClassifier",
    "convolutional": "ConvolutionalClassifier",
    "patch_attention": "PatchAttentionClassifier",
    "mlp": "MLPClassifier",
}
"""Value of `model` -> class in `rrl_tf.models`."""


@dataclasses.dataclass(frozen=True)
class Config(SupervisedConfig):
    """Set the options of a run. A step is one update."""

    runs: str = "runs/mnist"
    data: str | None = dataclasses.field(default=None, metadata=MUTABLE)
    """Folder with the four original files, or a data folder of TensorFlow Datasets; by default the
    data folder that TensorFlow Datasets uses."""

    model: Literal["relational", "convolutional", "patch_attention", "mlp"] = "relational"
    """Classifier of `rrl_tf.models`."""
    network: str = "fast"
    """Architecture of that classifier."""

    perturbed: bool = True
    """Perturb the digits in training and in the test with shifts, rotations and white pixels."""
    shift: int = 6
    """Largest shift in pixels, along either axis."""
    rotation: int = 30
    """Largest rotation in degrees."""
    spots: int = 10
    """Minimum number of white pixels drawn."""
    held_out: int = 2000
    """Number of training images held out for the `eval/` metrics and for early stopping."""
    test_seed: int = 0
    """Seed of the perturbation of the 10,000 test images."""

    batch_size: int = 300
    replacement: bool = True
    """Sample images with replacement; otherwise use each image once per epoch."""
    patience: int = 0
    """Stop after this many log entries without a better `eval/accuracy`; 0 never stops."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "held_out")
        require_not_negative(self, "shift", "rotation", "spots", "patience", "test_seed")


FAST = Config(preset="fast", learning_rate=3e-3, warmup_steps=50)
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
ABOUT = {
    "fast": "ours, on perturbed digits",
    "fast-long": "the same with six times the updates",
    "book": "the book's relational module",
    "book-cnn": "the book's convolutional baseline",
    "patch-mnist": "the blog's attention between patches, on clean digits",
    "patch-mnist-mlp": "the blog's dense baseline",
}


def main(config: Config) -> training.FitRun:
    """Train a classifier of MNIST digits. Repeat the command to resume the run."""
    import keras

    replicas = training.make_replicas(config, config.batch_size)
    splits = data.load_mnist(config.data)
    learned, validation = held_out(splits["train"], config.held_out)
    if config.batch_size > len(learned.labels):
        raise InvalidInput(
            f"batch_size must be at most the {len(learned.labels):,} images to train on; "
            f"received {config.batch_size}"
        )
    keras.utils.set_random_seed(config.seed)
    run = training.FitRun(
        config,
        make_model(config),
        steps=config.steps,
        steps_per_epoch=config.log_every,
        checkpoint_every=config.checkpoint_every,
        identity={"data_checksum": training.checksum(*splits["train"])},
        stop=training.EarlyStop("eval/accuracy", config.patience, mode="max"),
        replicas=replicas,
    )
    if not run.is_finished():
        perturb = perturbations(config)["perturbed" if config.perturbed else "clean"]
        size, replacement = config.batch_size, config.replacement
        shown = one_of_each(*data.preprocessed(splits["test"], perturb, config.test_seed))
        run.fit(
            data.batches(learned, size, perturb, config.seed, run.step, replacement),
            validation_data=data.preprocessed(validation, perturb, config.test_seed),
            validation_batch_size=250,
            callbacks=[
                training.LogFigures(
                    run.log, lambda m: attention_figures(m, *shown), config.draw_every
                )
            ],
        )
        run.by_chief(finish, run, splits["test"])
    return run


def finish(run: training.FitRun, test: data.Split) -> None:
    """Test, draw and export the trained model."""
    from rrl_tf.export import export_classifier

    config, model = run.config, run.model
    inputs = {
        name: data.preprocessed(test, perturb, config.test_seed)[0]
        for name, perturb in perturbations(config).items()
    }
    logits = {name: model.predict(x, batch_size=250, verbose=0) for name, x in inputs.items()}
    summary = {
        "step": run.step,
        "parameters": model.count_params(),
        **{
            f"test/{name}": float((each.argmax(-1) == test.labels).mean())
            for name, each in logits.items()
        },
    }
    kind = "perturbed" if config.perturbed else "clean"
    figures = attention_figures(model, *one_of_each(inputs[kind], test.labels))
    version = export_classifier(
        run.folder.export,
        model,
        data.clean,
        IMAGE_SHAPE[:2],
        {"data": "MNIST", "class_names": [str(digit) for digit in range(10)], "scores": summary},
    )
    run.finish(
        summary,
        f"test accuracy {summary['test/perturbed']:.2%} on perturbed and "
        f"{summary['test/clean']:.2%} on clean images ({len(test.labels):,} each); "
        f"{summary['parameters']:,} parameters",
        [version],
        figures,
    )


def make_model(config: Config) -> keras.Model:
    """Return a compiled classifier with new weights."""
    from rrl_tf import models

    model_class = getattr(models, MODELS[config.model])
    model = model_class.from_preset(config.network, dtype=config.dtype)
    model.build((None, *IMAGE_SHAPE))
    return training.compile_classifier(model, config)


def perturbations(config: Config) -> dict[str, Callable[..., Any]]:
    """Return the functions of (images, seed) with which every model is tested."""
    perturbed = data.Perturbation(config.shift, config.rotation, config.spots)
    return {"perturbed": perturbed, "clean": data.clean}


def held_out(split: data.Split, count: int) -> list[data.Split]:
    """Return the images to train on and `count` others, which are the same for every seed."""
    if count >= len(split.labels):
        raise InvalidInput(
            f"held_out must leave some of the {len(split.labels):,} images to train on; "
            f"received {count:,}"
        )
    order = np.random.default_rng(0).permutation(len(split.labels))
    parts = np.sort(order[count:]), np.sort(order[:count])
    return [data.Split(split.images[part], split.labels[part]) for part in parts]


def one_of_each(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return one image of every class, always the same, and its label."""
    order = np.random.default_rng(0).permutation(len(labels))
    first = [order[(labels[order] == label).argmax()] for label in range(10)]
    return images[first], labels[first]


def attention_figures(model: keras.Model, images: Any, labels: np.ndarray) -> dict[str, Figure]:
    """Draw images `(M, height, width, 1)` with the model's answers and its attention, if any."""
    from keras import ops

    from rrl_tf.models import PatchAttentionClassifier, RelationalClassifier

    if not isinstance(model, (RelationalClassifier, PatchAttentionClassifier)):
        return {}
    logits, scores = model(images, return_attention_scores=True)
    maps = {
        name.replace("_", " "): viz.most_attended(
            ops.convert_to_numpy(ops.cast(each, "float32")), model.grid_shape(images.shape)
        )
        for name, each in scores.items()
    }
    titles = [
        f"{label}" if label == answer else f"{label}, predicted {answer}"
        for label, answer in zip(labels, ops.convert_to_numpy(logits).argmax(-1))
    ]
    return {"attention": viz.digits_figure(np.asarray(images)[..., 0], titles, maps)}


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="fast", about=ABOUT)
