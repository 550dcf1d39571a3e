"""Sample random graphs for the task of finding the nodes connected to a marked node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rrl_tf._arguments import Seed, number_from, positive_int, random_generator
from rrl_tf.data._fresh_batches import FreshBatches
from rrl_tf.errors import InvalidInput


class Graphs(NamedTuple):
    """M undirected graphs of N nodes, each graph with one marked node.

    Attributes:
        nodes: `(M, N, 2)` float32, (1, 0) for the marked node and (0, 1) for the others.
        edges: `(M, N, N)` bool, symmetric; no node has an edge to itself.
        distances: `(M, N)` int32, length of the shortest path from the marked node in edges, or -1
            for nodes that are not connected to it.
    """

    nodes: np.ndarray
    edges: np.ndarray
    distances: np.ndarray


def random_graphs(
    num_graphs: int, num_nodes: int, neighbors: tuple[float, float] = (1.0, 2.0), seed: Seed = 0
) -> Graphs:
    """Sample graphs in which any two nodes have an edge with the same probability.

    If nodes have about one neighbour on average, such a graph has components of many sizes and long
    shortest paths (Erdős and Rényi, 1960).

    Args:
        num_graphs: number of graphs M.
        num_nodes: number of nodes N per graph.
        neighbors: `(low, high)`. Each graph draws the expected number of neighbours of its nodes
            uniformly from this range.
        seed: int, sequence of ints or `numpy.random.Generator`.

    Returns:
        `Graphs`.

    Raises:
        InvalidInput: if a number of graphs or nodes is not positive, `neighbors` is not two
            ascending numbers from 0 to N - 1, or the seed is invalid.

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
            f"`neighbors` must be two numbers, the smaller one first; received {neighbors!r}"
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
    """Return the distances `(M, N)` from the marked nodes by breadth-first search, or -1."""
    rows = np.arange(len(edges))
    distances = np.full(edges.shape[:2], -1, np.int32)
    distances[rows, marked] = 0
    for step in range(1, edges.shape[1]):
        reached = (edges & (distances == step - 1)[:, None]).any(axis=-1) & (distances < 0)
        distances[reached] = step
    return distances


class RandomGraphs(FreshBatches):
    """A dataset for `fit` that samples new graphs in every batch.

    Inputs are a dict with the keys `"nodes"` and `"edges"`, as in `Graphs`. Targets `(B, N)` are 1
    for nodes that are connected to the marked node and 0 for the others. `random_graphs` never
    returns the same graphs for a seed below 2**128, so it can generate test data.

    Args:
        batch_size: number of graphs B in a batch.
        steps, seed, epoch: as in `FreshBatches`.
        num_nodes, neighbors: as in `random_graphs`.

    Raises:
        InvalidInput: if an argument is invalid, as in `FreshBatches` and `random_graphs`.

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
        self[0]  # raises an error for invalid arguments

    def draw(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Sample the inputs and targets of one batch."""
        return connected(random_graphs(self.batch_size, self.num_nodes, self.neighbors, rng))


def connected(graphs: Graphs) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return inputs for a model, and targets `(M, N)`: 1 for nodes connected to the marked node."""
    inputs = {"nodes": graphs.nodes, "edges": graphs.edges}
    return inputs, (graphs.distances >= 0).astype("int32")
