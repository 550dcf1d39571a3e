"""Draw figures and animations of attention, learning and memory from arrays."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "attention": "attention_figure attention_grid attention_paid frame_attention_figure overlay",
    "curves": "learning_curves returns_figure robustness_figure",
    "episode_memory": "EpisodeMemory VIEW gates_figure",
    "episode_film": "film",
    "graphs": "graph_attention_figure graph_layout",
    "interpretation": "attribution_figure dots_figure patching_figure removal_figure",
    "maps": "digits_figure memory_attention_figure most_attended questions_figure",
    "output": "figure_to_image save_figure save_film",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
