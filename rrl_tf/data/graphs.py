"""Random graphs: which nodes are connected with the marked one?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import keras
import numpy as np

from rrl_tf._arguments import (
    Seed,
    batch_generator,
    natural,
    number_from,
    positive_int,
    random_generator,
)
from rrl_tf.errors import InvalidInput


class Graphs(NamedTuple):
    """M undirected graphs of N nodes, one of them marked.

    Attributes:
        nodes: `(M, N, 2)` float32, (1, 0) for the marked node and (0, 1) for the others.
        edges: `(M, N, N)` bool, symmetric, without loops.
        distances: `(M, N)` int32, edges on the shortest path from the marked node; -1 for none.
    """

    nodes: np.ndarray
    edges: np.ndarray
    distances: np.ndarray


def random_graphs(
    num_graphs: int, num_nodes: int, neighbors: tuple[float, float] = (1.0, 2.0), seed: Seed = 0
) -> Graphs:
    """Draws graphs in which every two nodes are joined with the same probability.

    Around one neighbour a node, such a graph falls into pieces of many sizes, with long shortest
    paths (Erdős and Rényi, 1960).

    Args:
        num_graphs: M.
        num_nodes: N.
        neighbors: neighbours that a node has on average; every graph's number is drawn uniformly
            between these two.
        seed: int, sequence of ints or `numpy.random.Generator`.

    Returns:
        `Graphs`.

    Raises:
        InvalidInput: for numbers that are not positive, more neighbours than other nodes, two
            numbers of them in the wrong order, or what is no seed.

    Example:

    >>> graphs = random_graphs(100, num_nodes=12)
    >>> graphs.nodes.shape, graphs.edges.shape, graphs.distances.shape
    ((100, 12, 2), (100, 12, 12), (100, 12))
    """
    count, size = positive_int("num_graphs", num_graphs), positive_int("num_nodes", num_nodes)
    low, high = _least_and_most(neighbors, size - 1)
    rng = random_generator(seed)
    probability = rng.uniform(low, high, size=(count, 1, 1)) / max(size - 1, 1)
    upper = np.triu(rng.random((count, size, size)) < probability, k=1)
    edges = upper | upper.transpose(0, 2, 1)
    marked = rng.integers(size, size=count)
    is_marked = np.arange(size) == marked[:, None]
    nodes = np.stack([is_marked, ~is_marked], axis=-1).astype("float32")
    return Graphs(nodes, edges, _distances(edges, marked))


def _least_and_most(neighbors, others):
    pair = tuple(neighbors) if isinstance(neighbors, Iterable) else ()
    for each in pair:
        number_from("neighbors", each, 0, others)
    if len(pair) != 2 or pair[0] > pair[1]:
        raise InvalidInput(
            f"neighbors must be two numbers, the smaller one first; received {neighbors!r}"
        )
    return pair


def _distances(edges, marked):
    """Breadth first from the marked nodes of all graphs at once: `(M, N)`, -1 out of reach."""
    rows = np.arange(len(edges))
    distances = np.full(edges.shape[:2], -1, np.int32)
    distances[rows, marked] = 0
    for step in range(1, edges.shape[1]):
        reached = (edges & (distances == step - 1)[:, None]).any(axis=-1) & (distances < 0)
        distances[reached] = step
    return distances


class RandomGraphs(keras.utils.PyDataset):
    """Fresh graphs for `fit`: an epoch is `steps` batches that are never seen again.

    Inputs are `{"nodes", "edges"}`, and targets 1 for a node that is connected with the marked one
    and 0 for another. A batch depends on the seed, the epoch and its number alone, so training that
    continues from a checkpoint sees what it would have seen; no seed of `random_graphs` below
    2**128 gives the same graphs.

    Args:
        batch_size: B, graphs in a batch.
        steps: batches in an epoch.
        num_nodes: N.
        neighbors: as of `random_graphs`.
        seed: int from 0 up.
        epoch: what epochs are counted up from; Keras counts once before the first as well.

    Raises:
        InvalidInput: as `random_graphs`.

    Example:

    >>> data = RandomGraphs(batch_size=128, steps=100, num_nodes=12)
    >>> inputs, targets = data[0]
    >>> inputs["nodes"].shape, inputs["edges"].shape, targets.shape
    ((128, 12, 2), (128, 12, 12), (128, 12))
    """

    def __init__(
        self,
        batch_size: int,
        steps: int,
        num_nodes: int,
        neighbors: tuple[float, float] = (1.0, 2.0),
        seed: int = 0,
        epoch: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.batch_size, self.steps = batch_size, positive_int("steps", steps)
        self.num_nodes, self.neighbors = num_nodes, neighbors
        self.seed, self.epoch = natural("seed", seed), natural("epoch", epoch)
        self[0]  # raises for bad arguments

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        rng = batch_generator(self.seed, self.epoch, index)
        return connected(random_graphs(self.batch_size, self.num_nodes, self.neighbors, rng))

    def on_epoch_end(self) -> None:
        self.epoch += 1


def connected(graphs: Graphs) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What a model is shown of graphs, and which nodes `(M, N)` are connected with the marked."""
    inputs = {"nodes": graphs.nodes, "edges": graphs.edges}
    return inputs, (graphs.distances >= 0).astype("int32")
