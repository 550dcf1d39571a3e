"""Data sets and generators: numpy in, numpy or `tf.data` out.

A package is loaded when something of it is first asked for: episodes need no TensorFlow.
"""

import importlib

_MODULES = {
    "episodes": ("Episode", "OfflineData", "RecordedEnv"),
    "graphs": ("Graphs", "RandomGraphs", "random_graphs"),
    "mnist": ("Split", "load_mnist"),
    "mnist_batches": ("batches", "prepared"),
    "nth_farthest_task": ("NthFarthest", "nth_farthest", "nth_farthest_floors"),
    "perturb": (
        "Perturbation",
        "add_spots",
        "brightened",
        "clean",
        "rotate_and_shift",
        "scaled",
    ),
    "recording": ("Player", "record_episodes"),
    "scaling": ("Scaling",),
    "sort_of_clevr_task": ("Pictures", "SortOfClevr", "sort_of_clevr"),
    "sources": ("load_episodes",),
    "text": (
        "Characters",
        "TextLanes",
        "character_frequencies_bits",
        "load_text",
        "split_text",
    ),
    "windows": ("LastSteps", "Windows"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(f"rrl_tf.data.{_HOME[name]}"), name)
    raise AttributeError(f"module 'rrl_tf.data' has no attribute {name!r}")
