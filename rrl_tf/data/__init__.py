"""Supervised data sets and generators: NumPy in, NumPy or `tf.data` out."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "graphs": "Graphs RandomGraphs random_graphs",
    "mnist": "Split load_mnist",
    "mnist_batches": "batches prepared",
    "nth_farthest_task": "NthFarthest nth_farthest nth_farthest_floors",
    "perturb": "Perturbation add_spots brightened clean rotate_and_shift scaled",
    "sort_of_clevr_task": "Pictures SortOfClevr sort_of_clevr",
    "text": "Characters TextLanes character_frequencies_bits load_text split_text",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
