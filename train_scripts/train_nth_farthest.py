"""Trains a memory to find the n-th farthest of some vectors from one of them.

python -m train_scripts.train_nth_farthest                     # the Relational Memory Core
python -m train_scripts.train_nth_farthest --preset fast-lstm  # an LSTM with as many parameters
python -m train_scripts.train_nth_farthest --preset five       # five vectors instead of four
python -m train_scripts.train_nth_farthest --preset paper      # the whole task, for a GPU
"""

import dataclasses
from typing import Literal

import keras
import numpy as np
from tqdm import tqdm
from tqdm.keras import TqdmCallback

from rrl_tf import viz
from rrl_tf.data.nth_farthest_task import NthFarthest, nth_farthest, nth_farthest_floors
from rrl_tf.models import MemorySequenceClassifier
from rrl_tf.training import (
    Checkpoint,
    LogImages,
    LogMetrics,
    MetricsLog,
    Profile,
    RunFolder,
)
from train_scripts import command_line

EVALUATION_SEED = 2**32 - 1
"""Of the questions that are evaluated; training's begin with the run's seed."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Every number of a run. A step is one update, an epoch `steps_per_epoch` of them."""

    preset: str = "fast"
    """Where the numbers below come from."""
    seed: int = 0
    """Of the weights and the questions."""
    name: str = ""
    """Folder under `runs`; by default the preset and the seed."""
    runs: str = "runs/nth_farthest"
    """Where runs are kept."""

    num_vectors: int = 4
    """Vectors in a question, and possible answers."""
    dimension: int = 4
    """Of a vector."""
    order: Literal["paper", "sonnet"] = "paper"
    """Whether n counts from the farthest vector or from the nearest."""
    stages: tuple[tuple[int, int], ...] = ()
    """A curriculum: pairs of how many vectors and how many of their numbers there are to compare,
    from easy to hard; the whole task comes after the last. Empty trains on the whole task."""
    stage_passed: float = 0.3
    """When a stage is passed: how far the accuracy of an epoch has come from that of the policy
    without geometry, 0, to perfection, 1."""
    stage_epochs: int = 15
    """A stage that is not passed ends after so many epochs."""

    network: str = "fast"
    """Preset of `MemorySequenceClassifier`."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Precision of the network."""
    optimizer: Literal["muon", "adam"] = "muon"
    """Muon updates matrices by the orthogonal part of their momentum, and the rest as Adam."""
    learning_rate: float = 1e-3
    """The largest step size."""
    learning_rate_end: float = 5e-5
    """The step size at the end, after half a cosine."""
    warmup_steps: int = 500
    """A straight line from 0 to the largest step size."""
    clip_norm: float | None = None
    """Largest global norm of the gradient."""
    jit_compile: bool = True
    """Compile the step with XLA."""

    epochs: int = 80
    steps_per_epoch: int = 200
    batch_size: int = 256
    evaluate_every: int = 10
    """Epochs between evaluations and checkpoints."""
    evaluation_questions: int = 20_000
    """The same ones for every run, of the whole task."""
    profile_from: int | None = None
    """Record 20 steps from this one on for TensorBoard's profiler."""


FAST = Config(stages=((3, 1), (4, 1), (4, 2), (4, 3)))
FIVE = dataclasses.replace(
    FAST,
    preset="five",
    num_vectors=5,
    stages=((3, 1), (4, 1), (5, 1), (5, 2), (5, 3)),
    network="five",
    epochs=100,
)
PAPER = Config(
    preset="paper",
    num_vectors=8,
    dimension=16,
    network="paper",
    optimizer="adam",
    learning_rate=1e-4,
    learning_rate_end=1e-4,
    clip_norm=0.1,
    epochs=10_000,
    batch_size=1600,
)
PRESETS = {
    f"{task.preset}{core}": dataclasses.replace(
        task, preset=f"{task.preset}{core}", network=f"{task.network}{core}"
    )
    for task in (FAST, FIVE, PAPER)
    for core in ("", "-lstm", "-transformer")
}


def main(config):
    """Trains a memory on the Nth farthest task; the same command again continues."""
    keras.utils.set_random_seed(config.seed)
    questions = evaluation_questions(config)
    folder = RunFolder(
        command_line.run_path(config), dataclasses.asdict(config), may_change=("profile_from",)
    )
    model = make_model(config, questions[0].shape)
    checkpoint = Checkpoint(folder, model, config.evaluate_every)
    log = MetricsLog(folder.path, until_step=checkpoint.step)
    log.settings(dataclasses.asdict(config))
    if folder.is_finished(checkpoint.step):
        print(f"{folder.path} is trained already, to step {checkpoint.step:,}")
        return folder, model
    data = training_questions(config, checkpoint.epoch)
    model.fit(
        data,
        validation_data=questions,
        validation_batch_size=2000,
        validation_freq=config.evaluate_every,
        initial_epoch=checkpoint.epoch,
        epochs=config.epochs,
        callbacks=[
            LogMetrics(log),
            RaiseStage(log, data, config),
            LogImages(log, lambda m: pictures(m, config), config.evaluate_every),
            *([] if config.profile_from is None else [Profile(folder.path, config.profile_from)]),
            TqdmCallback(verbose=0, tqdm_class=tqdm, mininterval=0.5),
            checkpoint,
        ],
        shuffle=False,  # Keras would draw the order of the batches anew after a resume
        verbose=0,
    )
    finish(config, folder, model, questions, log)
    return folder, model


class RaiseStage(keras.callbacks.Callback):
    """Goes on to the next stage of the curriculum when the log says that one is passed.

    It reads the whole log every time, so a run that was interrupted is where it was.
    """

    def __init__(self, log, data, config):
        super().__init__()
        self._log, self._data, self._config = log, data, config
        data.stage = self.stage()

    def stage(self):
        """The number of the stage after the last row of the log."""
        stage = epochs = 0
        for row in self._log.rows:
            epochs += 1
            vectors, _ = self._data.stages[stage]
            # Who knows that the last rank asks for vector m, and guesses the rest, scores this.
            floor = 2 / vectors
            passed = row["train/accuracy"] >= floor + self._config.stage_passed * (1 - floor)
            if passed or epochs == self._config.stage_epochs:
                stage, epochs = min(stage + 1, len(self._data.stages) - 1), 0
        return stage

    def on_epoch_end(self, epoch, logs=None):
        self._data.stage = self.stage()


def training_questions(config, epoch):
    """Fresh questions from that epoch on, of the stages and then of the whole task."""
    return NthFarthest(
        config.batch_size,
        config.steps_per_epoch,
        config.num_vectors,
        config.dimension,
        config.order,
        config.seed,
        (*config.stages, (config.num_vectors, config.dimension)),
        epoch,
    )


def evaluation_questions(config, count=None):
    """Questions of the whole task with their answers."""
    return nth_farthest(
        count or config.evaluation_questions,
        config.num_vectors,
        config.dimension,
        config.order,
        EVALUATION_SEED,
    )


def make_model(config, shape):
    """A compiled classifier with new weights."""
    model = MemorySequenceClassifier.from_preset(
        config.network, num_classes=config.num_vectors, dtype=config.dtype
    )
    model.build((None, *shape[1:]))
    model.compile(
        make_optimizer(config),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=config.jit_compile,
    )
    return model


def make_optimizer(config):
    """Muon or Adam with a warm-up and half a cosine."""
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0,
        config.epochs * config.steps_per_epoch - config.warmup_steps,
        alpha=config.learning_rate_end / config.learning_rate,
        warmup_target=config.learning_rate,
        warmup_steps=config.warmup_steps,
    )
    if config.optimizer == "adam":
        return keras.optimizers.Adam(schedule, global_clipnorm=config.clip_norm)
    return keras.optimizers.Muon(
        schedule,
        exclude_layers=["head"],
        weight_decay=1e-4,
        global_clipnorm=config.clip_norm,
    )


def finish(config, folder, model, questions, log):
    """Last evaluation and picture of a run that has just been trained."""
    sequences, answers = questions
    right = model.predict(sequences, batch_size=2000, verbose=0).argmax(-1) == answers
    floors = nth_farthest_floors(config.num_vectors, config.dimension)
    first = config.dimension + config.num_vectors * (1 if config.order == "paper" else 2)
    ranks = sequences[:, 0, first : first + config.num_vectors].argmax(-1)
    summary = {
        "step": int(log.rows[-1]["step"]),
        "parameters": model.count_params(),
        "eval/accuracy": float(right.mean()),
        "eval/accuracy_of_n": [float(right[ranks == n].mean()) for n in range(config.num_vectors)],
        "floors": floors,
        "training_minutes": sum(row["time/epoch"] for row in log.rows) / 60,
    }
    paths = draw(config, model, folder)
    folder.finish(summary)
    print(
        f"step {summary['step']:,}: {right.mean():.1%} of {len(right):,} new questions right. "
        f"Without relations: {', '.join(f'{name} {v:.1%}' for name, v in floors.items())}\n"
        f"{summary['parameters']:,} parameters, {summary['training_minutes']:.0f} minutes of "
        f"training\nwritten: {', '.join(map(str, [*paths, folder.path / 'evaluation.json']))}"
    )


def draw(config, model, folder):
    """Writes what the model attends to, if it attends, and returns the paths."""
    figure = attention_figure(model, config)
    if figure is None:
        return []
    viz.save_figure(figure, folder.figures / "attention.png")
    return [folder.figures / "attention.png"]


def pictures(model, config):
    """What TensorBoard shows during training: name → uint8 RGB."""
    figure = attention_figure(model, config)
    return {} if figure is None else {"attention": viz.figure_to_image(figure)}


def attention_figure(model, config):
    """Attention on the first question of the evaluation; `None` if the model does not attend.

    A memory's is shown vector by vector, a transformer's block by block.
    """
    (sequence, *_), (answer, *_) = evaluation_questions(config, 1)
    _, attention = model(sequence[None], return_attention_scores=True)
    if not attention:
        return None
    blocks = [
        keras.ops.convert_to_numpy(keras.ops.cast(v, "float32"))[0] for v in attention.values()
    ]
    vectors = names_of_vectors(config, sequence, answer)
    if model.core_name == "transformer":
        names = [f"block {i}" for i in range(1, len(blocks) + 1)]
        return viz.memory_attention_figure(np.stack(blocks), vectors, names)
    slots = [f"slot {i}" for i in range(1, model.core.cell.mem_slots + 1)]
    return viz.memory_attention_figure(blocks[-1], [*slots, "input"], vectors, len(slots))


def names_of_vectors(config, sequence, answer):
    """The label of every vector of a question, and which of them are m and the answer."""
    labels, first, second = np.split(sequence[:, config.dimension :], 3, axis=-1)  # each (T, T)
    m = (second if config.order == "paper" else first)[0].argmax()
    names = []
    for label in labels.argmax(-1):
        roles = [role for role, which in (("m", m), ("answer", answer)) if label == which]
        names.append(" = ".join([f"vector {label}", *roles]))
    return names


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="fast")
