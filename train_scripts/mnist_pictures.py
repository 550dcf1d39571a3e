"""What a classifier of digits attends to, and the digits it gets wrong."""

from __future__ import annotations

import inspect
import pathlib
from typing import Any

import keras
import numpy as np
from keras import ops
from matplotlib.figure import Figure

from rrl_tf import viz

SHOWN = 10


def one_of_each(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An image of every class, drawn at random but always the same, and its label."""
    order = np.random.default_rng(0).permutation(len(labels))
    first = [order[(labels[order] == label).argmax()] for label in range(10)]
    return images[first], labels[first]


def attention_figure(model: keras.Model, images: Any, labels: np.ndarray) -> Figure | None:
    """Images, what the model takes them for, and where it attends to; `None` if it does not attend.

    Args:
        model: classifier of `rrl_tf.models`.
        images: its input, `(M, height, width, 1)`.
        labels: `(M,)`.
    """
    if not attends(model):
        return None
    return digits_figure(model, images, labels)


def digits_figure(model: keras.Model, images: Any, labels: np.ndarray) -> Figure:
    """Images, what the model takes them for and, if it attends, where to."""
    answer = model(images, **({"return_attention_scores": True} if attends(model) else {}))
    logits, scores = answer if attends(model) else (answer, {})
    maps = {
        name.replace("_", " "): viz.most_attended(
            ops.convert_to_numpy(ops.cast(each, "float32")), model.grid_shape(images.shape)
        )
        for name, each in scores.items()
    }
    answers = ops.convert_to_numpy(logits).argmax(-1)
    titles = [
        f"{label}" if label == answer else f"{label}, taken for {answer}"
        for label, answer in zip(labels, answers)
    ]
    return viz.digits_figure(np.asarray(images)[..., 0], titles, maps)


def attends(model: keras.Model) -> bool:
    """Whether the model has attention to show."""
    return "return_attention_scores" in inspect.signature(model.call).parameters


def images(model: keras.Model, images: Any, labels: np.ndarray) -> dict[str, np.ndarray]:
    """What TensorBoard shows during training: name → uint8 RGB."""
    figure = attention_figure(model, images, labels)
    return {} if figure is None else {"attention": viz.figure_to_image(figure)}


def draw(
    model: keras.Model,
    images: np.ndarray,
    labels: np.ndarray,
    logits: np.ndarray,
    figures: pathlib.Path,
) -> list[pathlib.Path]:
    """Draws attention, and the digits that the model is most sure of and wrong about.

    Args:
        model: classifier of `rrl_tf.models`.
        images: its input, `(M, height, width, 1)`.
        labels: `(M,)`.
        logits: `(M, K)`, its answers.
        figures: folder that the pictures go to.

    Returns:
        The paths of all pictures.
    """
    drawn = {"attention": attention_figure(model, *one_of_each(images, labels))}
    wrong = surest_mistakes(logits, labels)[:SHOWN]
    if len(wrong):
        drawn["mistakes"] = digits_figure(model, images[wrong], labels[wrong])
    return [
        viz.save_figure(figure, figures / f"{name}.png")
        for name, figure in drawn.items()
        if figure is not None
    ]


def surest_mistakes(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Indices of the wrong answers, the one that had the highest probability first."""
    logits = np.asarray(logits, np.float64)
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    sure = (shares / shares.sum(-1, keepdims=True)).max(-1)
    wrong = np.flatnonzero(logits.argmax(-1) != labels)
    return wrong[np.argsort(-sure[wrong], kind="stable")]
