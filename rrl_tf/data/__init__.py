"""Provide datasets and generators for supervised learning, as NumPy arrays or `tf.data`."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "graphs": "Graphs RandomGraphs connected random_graphs",
    "mnist": "Split batches load_mnist preprocessed",
    "nth_farthest": "NthFarthest nth_farthest_floors sample_nth_farthest",
    "perturb": "Perturbation add_spots brightened clean rotate_and_shift scaled",
    "sort_of_clevr": "Pictures SortOfClevr sample_sort_of_clevr",
    "text": "Characters TextBatches character_frequencies_bits load_text split_text",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
