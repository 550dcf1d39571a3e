"""Random graphs with the question which nodes are connected with a marked one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rrl_tf._arguments import Seed, number_from, positive_int, random_generator
from rrl_tf.data._fresh_batches import FreshBatches
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
    """Sample graphs in which every two nodes are connected by an edge with equal probability.

    With about one neighbour per node, such a graph has components of many sizes, with long shortest
    paths (Erdős and Rényi, 1960).

    Args:
        num_graphs: M.
        num_nodes: N.
        neighbors: bounds of a node's mean number of neighbours, which each graph draws uniformly.
        seed: int, sequence of ints or `numpy.random.Generator`.

    Returns:
        `Graphs`.

    Raises:
        InvalidInput: if a number is not positive, `neighbors` exceeds the number of other nodes or
            is not in ascending order, or the seed is invalid.

    Example:

    >>> graphs = random_graphs(100, num_nodes=12)
    >>> graphs.nodes.shape, graphs.edges.shape, graphs.distances.shape
    ((100, 12, 2), (100, 12, 12), (100, 12))
    """
    count, size = positive_int("num_graphs", num_graphs), positive_int("num_nodes", num_nodes)
    pair = tuple(neighbors) if isinstance(neighbors, Iterable) else ()
    for each in pair:
        number_from("neighbors", each, 0, size - 1)
    if len(pair) != 2 or pair[0] > pair[1]:
        raise InvalidInput(
            f"neighbors must be two numbers, the smaller one first; received {neighbors!r}"
        )
    rng = random_generator(seed)
    probability = rng.uniform(*pair, size=(count, 1, 1)) / max(size - 1, 1)
    upper = np.triu(rng.random((count, size, size)) < probability, k=1)
    edges = upper | upper.transpose(0, 2, 1)
    marked = rng.integers(size, size=count)
    is_marked = np.arange(size) == marked[:, None]
    nodes = np.stack([is_marked, ~is_marked], axis=-1).astype("float32")
    return Graphs(nodes, edges, _distances(edges, marked))


def _distances(edges, marked):
    """Return distances from the marked nodes `(M, N)`, -1 for unreachable ones, breadth first."""
    rows = np.arange(len(edges))
    distances = np.full(edges.shape[:2], -1, np.int32)
    distances[rows, marked] = 0
    for step in range(1, edges.shape[1]):
        reached = (edges & (distances == step - 1)[:, None]).any(axis=-1) & (distances < 0)
        distances[reached] = step
    return distances


class RandomGraphs(FreshBatches):
    """New graphs in every batch, for `fit`.

    Inputs are `{"nodes", "edges"}`, and targets are 1 for nodes connected with the marked one and 0
    for others. No seed of `random_graphs` below 2**128 gives the same graphs.

    Args:
        batch_size: B, graphs in a batch.
        steps, seed, epoch: as in `FreshBatches`.
        num_nodes, neighbors: as in `random_graphs`.

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
        super().__init__(steps, seed, epoch, **kwargs)
        self.batch_size, self.num_nodes, self.neighbors = batch_size, num_nodes, neighbors
        self[0]  # raises for invalid arguments

    def draw(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the graphs of a batch, and which nodes are connected with the marked one."""
        return connected(random_graphs(self.batch_size, self.num_nodes, self.neighbors, rng))


def connected(graphs: Graphs) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return a model's inputs, and which nodes `(M, N)` are connected with the marked one."""
    inputs = {"nodes": graphs.nodes, "edges": graphs.edges}
    return inputs, (graphs.distances >= 0).astype("int32")
