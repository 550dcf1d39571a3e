"""Train a memory to find which of several vectors is the n-th farthest from one of them.

python -m train_scripts.train_nth_farthest                     # the Relational Memory Core
python -m train_scripts.train_nth_farthest --preset fast-lstm  # an LSTM with as many parameters
python -m train_scripts.train_nth_farthest --preset five       # five vectors instead of four
python -m train_scripts.train_nth_farthest --preset paper      # eight vectors of 16 numbers
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from rrl_tf import data, training, viz
from rrl_tf._arguments import positive_ints
from rrl_tf.training.config import SupervisedConfig, require_fraction, require_positive
from train_scripts import command_line

if TYPE_CHECKING:  # `--help` is shown without Keras
    import keras
    from matplotlib.figure import Figure

EVALUATION_SEED = 2**32 - 1
"""Seed of the questions for evaluation; training never draws these questions."""


@dataclasses.dataclass(frozen=True)
class Config(SupervisedConfig):
    """Set the options of a run. A step is one update."""

    runs: str = "runs/nth_farthest"
    network: str = "fast"
    """Architecture of `MemorySequenceClassifier`."""

    num_vectors: int = 4
    """Number of vectors in a question, and of possible answers."""
    dimension: int = 4
    """Size of a vector."""
    order: Literal["paper", "sonnet"] = "paper"
    """Whether n counts from the farthest vector or from the nearest."""
    stages: tuple[tuple[int, int, int, int], ...] = ()
    """A curriculum from easy to hard. A stage is the number of vectors, the number of components
    that are not zero, the number of sampled ranks, counted from the farthest vector, and the
    smallest number of vectors before vector m. The whole task follows the last stage; empty trains
    on it alone."""
    stage_passed: float = 0.3
    """Accuracy in a log entry that passes a stage, on a scale from 0 for *no geometry* to 1 for
    only correct answers."""
    stage_rows: int = 15
    """Number of log entries after which a stage ends even if it is not passed."""
    new_dense_steps: tuple[int, ...] = ()
    """Updates after which the dense layers on the memory get their initial weights again, so that
    they forget what they learned from an early memory. The memory keeps its weights. The change
    takes place at the next log entry."""
    evaluation_questions: int = 20_000
    """Number of questions of the whole task, for every evaluation at a checkpoint in every run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "stage_rows", "evaluation_questions")
        require_fraction(self, "stage_passed")
        positive_ints("new_dense_steps", self.new_dense_steps)


FAST = Config(
    preset="fast",
    stages=((3, 1, 3, 0), (4, 1, 4, 0), (4, 2, 4, 0), (4, 3, 4, 0)),
    optimizer="muon",
    learning_rate_end=5e-5,
    warmup_steps=500,
    jit_compile=True,
    steps=16_000,
    batch_size=256,
    log_every=200,
    checkpoint_every=2000,
    draw_every=2000,
)
FIVE = dataclasses.replace(
    FAST,
    preset="five",
    num_vectors=5,
    stages=((3, 1, 3, 0), (4, 1, 4, 0), (5, 1, 5, 0), (5, 2, 5, 0), (5, 3, 5, 0)),
    network="five",
    steps=20_000,
)
PAPER = dataclasses.replace(
    FAST,
    preset="paper",
    num_vectors=8,
    dimension=16,
    # The farthest vector only, with more and more components. Three or more vectors come before
    # vector m, so that the memory must store them.
    stages=(
        (8, 1, 1, 0),
        *((8, components, 1, 3) for components in (2, 3, 4, 6, 8, 12, 16)),
        (8, 16, 1, 0),
    ),
    stage_passed=0.65,
    stage_rows=25,
    network="eight",
    new_dense_steps=(20_000, 40_000),
    learning_rate=2e-3,
    jit_compile=False,  # XLA is slower on a CPU at these sizes
    batch_size=128,
    steps=80_000,
    checkpoint_every=1000,
)
PRESETS = {
    f"{task.preset}{core}": dataclasses.replace(
        task, preset=f"{task.preset}{core}", network=f"{task.network}{core}"
    )
    for task in (FAST, FIVE, PAPER)
    for core in ("", "-lstm", "-transformer")
}
SIZES = {
    "fast": "four vectors of 4 numbers",
    "five": "five vectors of 4 numbers",
    "paper": "eight vectors of 16 numbers",
}
CORES = {"": "a Relational Memory", "-lstm": "an LSTM", "-transformer": "a causal transformer"}
ABOUT = {f"{size}{core}": f"{CORES[core]} on {SIZES[size]}" for size in SIZES for core in CORES}


def main(config: Config) -> training.FitRun:
    """Train a memory on the Nth farthest task. Repeat the command to resume the run."""
    import keras

    replicas = training.make_replicas(config, config.batch_size)
    questions = evaluation_questions(config)
    batches = training_questions(config)
    keras.utils.set_random_seed(config.seed)
    run = training.FitRun(
        config,
        make_model(config, questions[0].shape),
        steps=config.steps,
        steps_per_epoch=config.log_every,
        checkpoint_every=config.checkpoint_every,
        replicas=replicas,
    )
    if not run.is_finished():
        batches.epoch = run.step // config.log_every

        def raise_stage(*_):
            batches.stage = current_stage(run.log.rows, batches, config)

        def renew_dense_layers(epoch, _):
            if epoch in (math.ceil(step / config.log_every) for step in config.new_dense_steps):
                set_initial_weights((*run.model.hidden, run.model.head))

        raise_stage()
        run.fit(
            batches,
            validation_data=questions,
            validation_batch_size=2000,
            validation_freq=max(1, config.checkpoint_every // config.log_every),
            callbacks=[
                keras.callbacks.LambdaCallback(renew_dense_layers, raise_stage),
                training.LogFigures(
                    run.log, lambda m: attention_figures(m, config), config.draw_every
                ),
            ],
        )
        run.by_chief(finish, run, questions)
    return run


def set_initial_weights(layers: Iterable[keras.layers.Dense]) -> None:
    """Set the initial weights again: an initializer returns the same numbers in every call."""
    for layer in layers:
        layer.kernel.assign(layer.kernel_initializer(layer.kernel.shape))
        layer.bias.assign(layer.bias_initializer(layer.bias.shape))


def current_stage(
    log: Iterable[Mapping[str, float]], questions: data.NthFarthest, config: Config
) -> int:
    """Return the first stage of the curriculum that the rows of the log have not passed.

    It depends on the whole log, so a resumed run continues at the stage of the interrupted run.
    """
    stage = rows = 0
    for row in log:
        rows += 1
        vectors, _, ranks, _ = questions.stages[stage]
        vectors = vectors or questions.num_vectors
        # The accuracy of a model that knows that the last rank is vector m, and guesses
        # otherwise. If the last rank is not sampled, the answer is not m.
        floor = 2 / vectors if ranks in (None, vectors) else 1 / (vectors - 1)
        passed = row["train/accuracy"] >= floor + config.stage_passed * (1 - floor)
        if passed or rows == config.stage_rows:
            stage, rows = min(stage + 1, len(questions.stages) - 1), 0
    return stage


def training_questions(config: Config) -> data.NthFarthest:
    """Return fresh questions of the stages and then of the whole task."""
    return data.NthFarthest(
        config.batch_size,
        config.log_every,
        config.num_vectors,
        config.dimension,
        config.order,
        config.seed,
        (*config.stages, (config.num_vectors, config.dimension, config.num_vectors, 0)),
    )


def evaluation_questions(config: Config, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return questions of the whole task and their answers."""
    return data.sample_nth_farthest(
        count or config.evaluation_questions,
        config.num_vectors,
        config.dimension,
        config.order,
        EVALUATION_SEED,
    )


def make_model(config: Config, shape: tuple[int, ...]) -> keras.Model:
    """Return a compiled classifier with new weights."""
    from rrl_tf.models import MemorySequenceClassifier

    model = MemorySequenceClassifier.from_preset(
        config.network, num_classes=config.num_vectors, dtype=config.dtype
    )
    model.build((None, *shape[1:]))
    return training.compile_classifier(model, config)


def finish(run: training.FitRun, questions: tuple[np.ndarray, np.ndarray]) -> None:
    """Evaluate, draw and export the trained model."""
    from rrl_tf.export import export_classifier

    config, model = run.config, run.model
    sequences, answers = questions
    right = model.predict(sequences, batch_size=2000, verbose=0).argmax(-1) == answers
    floors = data.nth_farthest_floors(config.num_vectors, config.dimension)
    labels, n, m = question_parts(config, sequences)
    position = (labels == m[:, None]).argmax(-1)
    needs_distances = n != (config.num_vectors - 1 if config.order == "paper" else 0)

    def accuracies(groups, selected=True):
        chosen = [right[selected & (groups == i)] for i in range(config.num_vectors)]
        return [float(each.mean()) if len(each) else None for each in chosen]

    summary = {
        "parameters": model.count_params(),
        "eval/accuracy": float(right.mean()),
        "eval/accuracy_of_n": accuracies(n),
        # by the number of vectors before vector m, without the questions whose answer is m
        "eval/accuracy_of_position": accuracies(position, needs_distances),
        "floors": floors,
        "training_minutes": sum(row["time/epoch"] for row in run.log.rows) / 60,
    }
    version = export_classifier(
        run.folder.export,
        model,
        lambda sequence: sequence,
        sequences.shape[1:],
        {
            "data": f"Nth farthest, {config.num_vectors} vectors of {config.dimension} numbers",
            "class_names": [f"vector {i}" for i in range(config.num_vectors)],
            "scores": summary,
        },
        input_name="sequence",
        input_dtype="float32",
    )
    run.finish(
        summary,
        f"accuracy {right.mean():.1%} on {len(right):,} new questions. Without relations: "
        f"{', '.join(f'{name} {v:.1%}' for name, v in floors.items())}\n"
        f"{summary['parameters']:,} parameters, {summary['training_minutes']:.0f} minutes of "
        "training",
        [version],
        attention_figures(model, config),
    )


def attention_figures(model: keras.Model, config: Config) -> dict[str, Figure]:
    """Draw the attention on the first question of the evaluation; none for an LSTM.

    The attention of a memory is drawn for each vector, that of a transformer for each block.
    """
    from keras import ops

    (sequence, *_), (answer, *_) = evaluation_questions(config, 1)
    _, attention = model(sequence[None], return_attention_scores=True)
    if not attention:
        return {}
    blocks = [ops.convert_to_numpy(ops.cast(v, "float32"))[0] for v in attention.values()]
    vectors = vector_names(config, sequence, answer)
    if model.core == "transformer":
        names = [f"block {i}" for i in range(1, len(blocks) + 1)]
        return {"attention": viz.memory_attention_figure(np.stack(blocks), vectors, names)}
    slots = [f"slot {i}" for i in range(1, model.core_layer.cell.mem_slots + 1)]
    entities = [*slots, "input"]
    figure = viz.memory_attention_figure(blocks[-1], entities, vectors, len(slots))
    return {"attention": figure}


def question_parts(
    config: Config, sequences: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels `(..., T)` and the n and m of questions `(..., T, F)` as integers `(...)`."""
    labels, first, second = np.split(sequences[..., config.dimension :], 3, axis=-1)
    n, m = (first, second) if config.order == "paper" else (second, first)
    return labels.argmax(-1), n[..., 0, :].argmax(-1), m[..., 0, :].argmax(-1)


def vector_names(config: Config, sequence: np.ndarray, answer: int) -> list[str]:
    """Return the label of every vector of a question, with marks for m and the answer."""
    labels, _, m = question_parts(config, sequence)
    names = []
    for label in labels:
        roles = [role for role, which in (("m", m), ("answer", answer)) if label == which]
        names.append(" = ".join([f"vector {label}", *roles]))
    return names


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="fast", about=ABOUT)
