"""Pictures of what an agent sees, attends to and learns: arrays in, figures and images out."""

from rrl_tf.viz.attention import attention_figure, attention_grid
from rrl_tf.viz.curves import learning_curves
from rrl_tf.viz.film import film
from rrl_tf.viz.output import figure_to_image, save_figure, save_film

__all__ = [
    "attention_figure",
    "attention_grid",
    "figure_to_image",
    "film",
    "learning_curves",
    "save_figure",
    "save_film",
]
