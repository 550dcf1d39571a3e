"""Trains a model that answers questions about the objects of a picture and their relations.

python -m train_scripts.train_sort_of_clevr                # relations
python -m train_scripts.train_sort_of_clevr --preset cnn   # convolutions and dense layers
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import textwrap
from typing import Any, Literal

import keras
import numpy as np
from matplotlib.figure import Figure

from rrl_tf import viz
from rrl_tf.data.sort_of_clevr_task import (
    ANSWERS,
    IMAGE_SIZE,
    QUESTION_SIZE,
    TEXTS,
    Pictures,
    SortOfClevr,
    examples,
    in_words,
    ink,
    kinds_of,
    sort_of_clevr,
)
from rrl_tf.export import export_answerer
from rrl_tf.models import ConvolutionalAnswerer, RelationalAnswerer
from rrl_tf.training import (
    MUTABLE,
    FitConfig,
    FitRun,
    LogImages,
    make_optimizer,
    make_replicas,
    require_multiple,
    require_positive,
)
from rrl_tf.training.optimizers import OptimizerName
from train_scripts import command_line

IMAGE_SHAPE = (IMAGE_SIZE, IMAGE_SIZE, 3)
TEST_SEED, VALIDATION_SEED = 2**32 - 1, 2**32 - 2
"""Of pictures that are evaluated; no training draws them, whatever its seed."""
TITLE_WIDTH = 20
"""Letters that have room over a picture."""
MODELS: dict[str, Any] = {"relational": RelationalAnswerer, "convolutional": ConvolutionalAnswerer}


@dataclasses.dataclass(frozen=True)
class Config(FitConfig):
    """Every number of a run. A step is one update."""

    preset: str = "fast"
    runs: str = "runs/sort_of_clevr"

    model: Literal["relational", "convolutional"] = "relational"
    """Which answerer of `rrl_tf.models`."""
    network: str = "fast"
    """Preset of that answerer."""
    optimizer: OptimizerName = "muon"
    """Muon updates matrices by the orthogonal part of their momentum, and the rest as Adam."""
    learning_rate: float = 2e-3
    learning_rate_end: float = 1e-5
    warmup_steps: int = 200
    clip_norm: float | None = 1.0

    steps: int = 6000
    """Updates, a multiple of `log_every`."""
    batch_size: int = 32
    """Pictures."""
    questions_each: int = 10
    """Non-relational questions about a picture, and as many relational ones."""
    validation_pictures: int = 250
    """For `eval/` in the log; the same ones for every run."""
    test_pictures: int = 2000
    """For the evaluation at the end; the same ones for every run."""

    log_every: int = 250
    """Steps between rows of the log; a divisor of `steps`."""
    checkpoint_every: int = 500
    """Steps between checkpoints, a multiple of `log_every`."""
    draw_every: int = dataclasses.field(default=2000, metadata=MUTABLE)
    """Steps between pictures in TensorBoard, a multiple of `log_every`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "steps", "batch_size", "questions_each")
        require_positive(self, "validation_pictures", "test_pictures")
        require_positive(self, "log_every", "checkpoint_every", "draw_every")
        require_multiple(self, ("steps", "checkpoint_every", "draw_every"), "log_every")
        self.optimizer_options(self.steps)  # raises where the schedule has no steps left


FAST = Config()
PRESETS = {
    "fast": FAST,
    "cnn": dataclasses.replace(FAST, preset="cnn", model="convolutional"),
}


def main(config: Config) -> FitRun:
    """Trains an answerer of questions about pictures; the same command again continues."""
    replicas = make_replicas(config, config.batch_size)
    keras.utils.set_random_seed(config.seed)
    run = FitRun(
        config,
        make_model(config),
        steps=config.steps,
        steps_per_epoch=config.log_every,
        checkpoint_every=config.checkpoint_every,
        replicas=replicas,
    )
    if not run.is_finished():
        validation = sort_of_clevr(config.validation_pictures, seed=VALIDATION_SEED)
        run.fit(
            SortOfClevr(
                config.batch_size,
                config.log_every,
                config.questions_each,
                config.seed,
                epoch=run.step // config.log_every,
            ),
            measure=lambda step: accuracies(run.model, validation),
            callbacks=[LogImages(run.log, lambda m: pictures(m, validation), config.draw_every)],
        )
        run.by_chief(finish, run)
    return run


def make_model(config: Config) -> keras.Model:
    """A compiled answerer with new weights."""
    model = MODELS[config.model].from_preset(config.network, dtype=config.dtype)
    model.build({"images": (None, *IMAGE_SHAPE), "questions": (None, None, QUESTION_SIZE)})
    model.compile(
        make_optimizer(config.optimizer, **config.optimizer_options(config.steps)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=config.jit_compile,
    )
    return model


def answered(model: keras.Model, shown: Pictures) -> np.ndarray:
    """The model's answers `(M, Q)`."""
    return model.predict(examples(shown)[0], batch_size=50, verbose=0).argmax(-1)


def accuracies(model: keras.Model, shown: Pictures) -> dict[str, float]:
    """Shares of right answers to relational and to other questions."""
    right = answered(model, shown) == shown.answers
    relational = kinds_of(shown.questions) >= len(TEXTS) // 2
    return {
        "eval/relational": float(right[relational].mean()),
        "eval/non_relational": float(right[~relational].mean()),
    }


def finish(run: FitRun) -> None:
    """The test, pictures and export of a run that has just been trained."""
    config, model, folder = run.config, run.model, run.folder
    test = sort_of_clevr(config.test_pictures, seed=TEST_SEED)
    right, kinds = answered(model, test) == test.answers, kinds_of(test.questions)
    of_kinds = [float(right[kinds == kind].mean()) for kind in range(len(TEXTS))]
    summary = {
        "parameters": model.count_params(),
        "test/relational": float(right[kinds >= len(TEXTS) // 2].mean()),
        "test/non_relational": float(right[kinds < len(TEXTS) // 2].mean()),
        "test/of_kinds": dict(zip((text.format("...") for text in TEXTS), of_kinds)),
        "cpu_minutes": sum(row["time/epoch_cpu"] for row in run.log.rows) / 60,
    }
    figure = attention_figure(model, test)
    version = export_answerer(
        folder.export,
        model,
        ink,
        IMAGE_SHAPE,
        QUESTION_SIZE,
        {"answer_names": list(ANSWERS), "scores": summary},
    )
    run.finish(
        summary,
        f"of {right.size:,} questions about {len(right):,} new pictures "
        f"{summary['test/relational']:.1%} of the relational and "
        f"{summary['test/non_relational']:.1%} of the others right; "
        f"{summary['parameters']:,} parameters",
        [*draw(figure, folder.figures), version],
    )


def draw(figure: Figure | None, figures: pathlib.Path) -> list[pathlib.Path]:
    """Writes what the model attends to, if it attends, and returns the paths."""
    return [] if figure is None else [viz.save_figure(figure, figures / "attention.png")]


def pictures(model: keras.Model, shown: Pictures) -> dict[str, np.ndarray]:
    """What TensorBoard shows during training: name → uint8 RGB."""
    figure = attention_figure(model, shown)
    return {} if figure is None else {"attention": viz.figure_to_image(figure)}


def attention_figure(model: keras.Model, shown: Pictures) -> Figure | None:
    """A question of every kind and what it attends to; `None` if the model does not attend.

    Of each cell the largest attention over the heads is drawn.
    """
    if not isinstance(model, RelationalAnswerer):
        return None
    kinds = kinds_of(shown.questions)
    asked = [next(zip(*np.nonzero(kinds == kind))) for kind in range(len(TEXTS))]
    which = tuple(np.array(asked).T)  # a picture and a question of each kind
    inputs, _ = examples(shown)
    inputs = {
        "images": inputs["images"][which[0]],
        "questions": inputs["questions"][which][:, None],
    }
    logits, scores = model(inputs, return_attention_scores=True)
    answers = keras.ops.convert_to_numpy(logits)[:, 0].argmax(-1)
    grid = model.grid_shape(inputs["images"].shape)
    maps = {
        name.replace("_", " "): to_cells(keras.ops.convert_to_numpy(each), grid)
        for name, each in scores.items()
    }
    titles = [
        title(*each) for each in zip(inputs["questions"][:, 0], answers, shown.answers[which])
    ]
    stride = math.prod(model.conv_strides)
    return viz.questions_figure(shown.images[which[0]] / 255, titles, maps, stride)


def to_cells(scores: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """The largest attention over the heads of the last entity, a question, to the cells."""
    rows, columns = grid
    return scores[:, :, -1, : rows * columns].max(axis=1).astype("float32").reshape(-1, *grid)


def title(question: np.ndarray, answer: int, right: int) -> str:
    """A question and what it was answered, in lines that fit over its picture."""
    said = ANSWERS[answer] if answer == right else f"{ANSWERS[answer]}, not {ANSWERS[right]}"
    return "\n".join([*textwrap.wrap(in_words(question), TITLE_WIDTH), said])


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="fast")
