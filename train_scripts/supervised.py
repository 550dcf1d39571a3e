"""Parts of the scripts that train with `keras.Model.fit`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from matplotlib.figure import Figure

from rrl_tf import viz
from rrl_tf.training import FitRun, LogImages, make_optimizer
from rrl_tf.training.config import MUTABLE, FitConfig, require_multiple, require_positive
from rrl_tf.training.optimizers import OptimizerName

Figures = Mapping[str, Figure]


@dataclasses.dataclass(frozen=True)
class SupervisedConfig(FitConfig):
    """Options of a supervised run. A step is one update."""

    optimizer: OptimizerName = "adam"
    """Muon updates matrices by the orthogonal part of their momentum, and the rest as Adam."""
    steps: int = 1000
    """Updates, a multiple of `log_every`."""
    batch_size: int = 32
    """Examples in a batch."""
    log_every: int = 50
    """Steps between rows of the log; a divisor of `steps`."""
    checkpoint_every: int = 100
    """Steps between checkpoints, a multiple of `log_every`."""
    draw_every: int = dataclasses.field(default=500, metadata=MUTABLE)
    """Steps between figures in TensorBoard, a multiple of `log_every`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "steps", "batch_size", "log_every", "checkpoint_every", "draw_every")
        require_multiple(self, ("steps", "checkpoint_every", "draw_every"), "log_every")
        self.optimizer_options(self.steps)  # raises if the schedule has no steps left


def open_run(config: SupervisedConfig, model: keras.Model, **options: Any) -> FitRun:
    """Open the run of a compiled model; `options` are those of `FitRun`."""
    return FitRun(
        config,
        model,
        steps=config.steps,
        steps_per_epoch=config.log_every,
        checkpoint_every=config.checkpoint_every,
        **options,
    )


def compile_classifier(
    model: keras.Model,
    config: FitConfig,
    steps: int,
    optimizer: OptimizerName = "adam",
    metrics: Sequence[Any] = ("accuracy",),
) -> keras.Model:
    """Compile a model whose outputs are logits of classes, for a run of so many steps."""
    model.compile(
        make_optimizer(optimizer, **config.optimizer_options(steps)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=list(metrics),
        jit_compile=config.jit_compile,
    )
    return model


def log_figures(
    run: FitRun, draw: Callable[[keras.Model], Figures], every: int
) -> keras.callbacks.Callback:
    """Return a callback that logs the figures of `draw(model)`, a dict name -> figure."""

    def images(model):
        return {name: viz.figure_to_image(figure) for name, figure in draw(model).items()}

    return LogImages(run.log, images, every)


def save_figures(figures: Figures, folder: pathlib.Path) -> list[pathlib.Path]:
    """Write figures as PNG files and return their paths."""
    return [viz.save_figure(figure, folder / f"{name}.png") for name, figure in figures.items()]
