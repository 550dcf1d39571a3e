"""Train a model to answer questions about the objects of a picture and their relations.

python -m train_scripts.train_sort_of_clevr                # relations
python -m train_scripts.train_sort_of_clevr --preset cnn   # convolutions and dense layers
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from typing import TYPE_CHECKING, Literal

import numpy as np

from rrl_tf import data, training, viz
from rrl_tf.training.config import SupervisedConfig, require_positive
from train_scripts import command_line

if TYPE_CHECKING:  # `--help` is shown without Keras
    import keras
    from matplotlib.figure import Figure

TEST_SEED, VALIDATION_SEED = 2**32 - 1, 2**32 - 2
"""Seeds of the pictures for evaluation; training never draws these pictures."""
TITLE_WIDTH = 20
"""Number of characters that fit above a picture."""


@dataclasses.dataclass(frozen=True)
class Config(SupervisedConfig):
    """Set the options of a run. A step is one update."""

    runs: str = "runs/sort_of_clevr"
    model: Literal["relational", "convolutional"] = "relational"
    """Model of `rrl_tf.models`."""
    network: str = "fast"
    """Architecture of that model."""
    questions_each: int = 10
    """Number of non-relational questions about a picture; there are as many relational ones."""
    validation_pictures: int = 250
    """Number of pictures for `eval/` in the log; the pictures are the same for every run."""
    test_pictures: int = 2000
    """Number of pictures for the final evaluation; the pictures are the same for every run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "questions_each", "validation_pictures", "test_pictures")


FAST = Config(
    preset="fast",
    optimizer="muon",
    learning_rate=2e-3,
    learning_rate_end=1e-5,
    warmup_steps=200,
    clip_norm=1.0,
    steps=6000,
    batch_size=32,
    log_every=250,
    checkpoint_every=500,
    draw_every=2000,
)
PRESETS = {
    "fast": FAST,
    "cnn": dataclasses.replace(FAST, preset="cnn", model="convolutional"),
}
ABOUT = {
    "fast": "attention between cells and questions",
    "cnn": "convolutions and dense layers",
}


def main(config: Config) -> training.FitRun:
    """Train a model to answer questions about pictures. Repeat the command to resume the run."""
    import keras

    replicas = training.make_replicas(config, config.batch_size)
    keras.utils.set_random_seed(config.seed)
    run = training.FitRun(
        config,
        make_model(config),
        steps=config.steps,
        steps_per_epoch=config.log_every,
        checkpoint_every=config.checkpoint_every,
        replicas=replicas,
    )
    if not run.is_finished():
        validation = data.sample_sort_of_clevr(config.validation_pictures, seed=VALIDATION_SEED)
        run.fit(
            data.SortOfClevr(
                config.batch_size,
                config.log_every,
                config.questions_each,
                config.seed,
                epoch=run.step // config.log_every,
            ),
            measure=lambda step: accuracies("eval", is_right(run.model, validation), validation),
            callbacks=[
                training.LogFigures(
                    run.log, lambda m: attention_figures(m, validation), config.draw_every
                )
            ],
        )
        run.by_chief(finish, run)
    return run


def make_model(config: Config) -> keras.Model:
    """Return a compiled model with new weights."""
    from rrl_tf.models import ConvolutionalVQA, RelationalVQA

    model_class = RelationalVQA if config.model == "relational" else ConvolutionalVQA
    model = model_class.from_preset(config.network, dtype=config.dtype)
    pictures = data.sort_of_clevr
    model.build(
        {
            "images": (None, *pictures.IMAGE_SHAPE),
            "questions": (None, None, pictures.QUESTION_SIZE),
        }
    )
    return training.compile_classifier(model, config)


def is_right(model: keras.Model, shown: data.Pictures) -> np.ndarray:
    """Return which questions `(M, Q)` the model answers correctly."""
    logits = model.predict(data.sort_of_clevr.examples(shown)[0], batch_size=50, verbose=0)
    return logits.argmax(-1) == shown.answers


def accuracies(prefix: str, right: np.ndarray, shown: data.Pictures) -> dict[str, float]:
    """Return the accuracy on all, on relational and on non-relational questions."""
    relational = data.sort_of_clevr.kinds_of(shown.questions) >= len(data.sort_of_clevr.TEXTS) // 2
    return {
        f"{prefix}/accuracy": float(right.mean()),
        f"{prefix}/relational": float(right[relational].mean()),
        f"{prefix}/non_relational": float(right[~relational].mean()),
    }


def finish(run: training.FitRun) -> None:
    """Test, draw and export the trained model."""
    from rrl_tf.export import export_vqa

    config, model = run.config, run.model
    test = data.sample_sort_of_clevr(config.test_pictures, seed=TEST_SEED)
    right, kinds = is_right(model, test), data.sort_of_clevr.kinds_of(test.questions)
    summary = {
        "parameters": model.count_params(),
        **accuracies("test", right, test),
        "test/of_kinds": {
            text.format("..."): float(right[kinds == kind].mean())
            for kind, text in enumerate(data.sort_of_clevr.TEXTS)
        },
        "cpu_minutes": sum(row["time/epoch_cpu"] for row in run.log.rows) / 60,
    }
    version = export_vqa(
        run.folder.export,
        model,
        data.sort_of_clevr.ink,
        data.sort_of_clevr.IMAGE_SHAPE,
        data.sort_of_clevr.QUESTION_SIZE,
        {"answer_names": list(data.sort_of_clevr.ANSWERS), "scores": summary},
    )
    run.finish(
        summary,
        f"test accuracy {summary['test/relational']:.1%} on relational and "
        f"{summary['test/non_relational']:.1%} on other questions ({right.size:,} questions about "
        f"{len(right):,} new pictures); {summary['parameters']:,} parameters",
        [version],
        attention_figures(model, test),
    )


def attention_figures(model: keras.Model, shown: data.Pictures) -> dict[str, Figure]:
    """Draw one question of every kind and its attention, the maximum over the heads."""
    from keras import ops

    from rrl_tf.models import RelationalVQA

    if not isinstance(model, RelationalVQA):
        return {}
    kinds = data.sort_of_clevr.kinds_of(shown.questions)
    first = [next(zip(*np.nonzero(kinds == kind))) for kind in range(len(data.sort_of_clevr.TEXTS))]
    pictures, numbers = np.array(first).T  # a picture and a question of each kind
    questions = shown.questions[pictures, numbers]
    images = data.sort_of_clevr.ink(shown.images[pictures])
    inputs = {"images": images, "questions": questions[:, None]}
    logits, scores = model(inputs, return_attention_scores=True)
    grid = model.grid_shape(images.shape)
    maps = {
        name.replace("_", " "): to_cells(ops.convert_to_numpy(each), grid)
        for name, each in scores.items()
    }
    answers = ops.convert_to_numpy(logits)[:, 0].argmax(-1)
    titles = [*map(title, questions, answers, shown.answers[pictures, numbers])]
    stride = math.prod(model.conv_strides)
    figure = viz.questions_figure(shown.images[pictures] / 255, titles, maps, stride)
    return {"attention": figure}


def to_cells(scores: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Return the largest attention in any head from the question, the last entity, to each cell."""
    rows, columns = grid
    return scores[:, :, -1, : rows * columns].max(axis=1).astype("float32").reshape(-1, *grid)


def title(question: np.ndarray, answer: int, right: int) -> str:
    """Return a question and its answer in lines that fit above a picture."""
    names, text = data.sort_of_clevr.ANSWERS, data.sort_of_clevr.question_text(question)
    name = names[answer] if answer == right else f"{names[answer]}, not {names[right]}"
    return "\n".join([*textwrap.wrap(text, TITLE_WIDTH), name])


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="fast", about=ABOUT)
