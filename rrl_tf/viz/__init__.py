"""Pictures of what an agent sees, attends to and learns: arrays in, figures and images out."""

from rrl_tf.viz.attention import attention_figure, attention_grid
from rrl_tf.viz.cost import cost_figure
from rrl_tf.viz.curves import learning_curve_panels, learning_curves
from rrl_tf.viz.digits import digits_figure, most_attended
from rrl_tf.viz.episode_memory import VIEW, EpisodeMemory
from rrl_tf.viz.equivariance import equivariance_figure
from rrl_tf.viz.film import film
from rrl_tf.viz.frames import attention_paid, frame_attention_figure, overlay
from rrl_tf.viz.gates import gates_figure
from rrl_tf.viz.graphs import graph_attention_figure, graph_layout
from rrl_tf.viz.memory import memory_attention_figure
from rrl_tf.viz.output import figure_to_image, save_figure, save_film
from rrl_tf.viz.questions import questions_figure
from rrl_tf.viz.returns import returns_figure
from rrl_tf.viz.robustness import robustness_figure

__all__ = [
    "VIEW",
    "EpisodeMemory",
    "attention_figure",
    "attention_grid",
    "attention_paid",
    "cost_figure",
    "digits_figure",
    "equivariance_figure",
    "figure_to_image",
    "film",
    "frame_attention_figure",
    "gates_figure",
    "graph_attention_figure",
    "graph_layout",
    "learning_curve_panels",
    "learning_curves",
    "memory_attention_figure",
    "most_attended",
    "overlay",
    "questions_figure",
    "returns_figure",
    "robustness_figure",
    "save_figure",
    "save_film",
]
