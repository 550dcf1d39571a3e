"""Random graphs: distances, numbers of neighbours and invalid arguments."""

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.data.graphs import RandomGraphs, connected, random_graphs
from rrl_tf.errors import InvalidInput


def searched(edges, start):
    """Return a dict node → distance from the start, by breadth-first search."""
    distance, queue = {start: 0}, [start]
    for node in queue:
        for other in range(len(edges)):
            if edges[node][other] and other not in distance:
                distance[other] = distance[node] + 1
                queue.append(other)
    return distance


@given(size=st.integers(1, 9), seed=st.integers(0, 2**32), share=st.floats(0, 1))
def test_distances_equal_a_plain_search(size, seed, share):
    neighbors = (share * (size - 1), size - 1)
    graphs = random_graphs(6, size, neighbors, seed)
    assert graphs.nodes.dtype == np.float32 and graphs.distances.dtype == np.int32
    for nodes, edges, distances in zip(*graphs):
        assert (edges == edges.T).all() and not edges.diagonal().any()
        (marked,) = np.nonzero(nodes[:, 0])[0]
        assert (nodes.sum(axis=-1) == 1).all()
        found = searched(edges, marked)
        assert [found.get(i, -1) for i in range(size)] == distances.tolist()
    inputs, targets = connected(graphs)
    assert (targets == (graphs.distances >= 0)).all() and inputs["edges"] is graphs.edges


def test_mean_number_of_neighbors_is_the_given_one():
    few = random_graphs(3000, 10, (1.0, 2.0), seed=1)
    assert few.edges.sum(axis=-1).mean() == pytest.approx(1.5, abs=0.05)
    assert few.nodes[..., 0].mean(axis=0) == pytest.approx(np.full(10, 0.1), abs=0.02)
    assert random_graphs(5, 7, (6, 6)).edges.sum() == 5 * 7 * 6


NO_PAIRS = [(2, 1), 1.5, (1, 2, 1), (), None, ("a", 1), (1, None), (1, [2])]


@pytest.mark.parametrize("neighbors", NO_PAIRS, ids=repr)
@pytest.mark.parametrize("make", [random_graphs, functools.partial(RandomGraphs, steps=1)])
def test_invalid_neighbors_raise(make, neighbors):
    with pytest.raises(InvalidInput, match=r"neighbors`? must be .*; received") as raised:
        make(2, num_nodes=4, neighbors=neighbors)
    assert str(raised.value).rpartition("received ")[2] in repr(neighbors)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random_graphs(0, 3), "num_graphs.*received 0"),
        (lambda: random_graphs(1, 3, (1.0, 3.0)), "`neighbors` must be from 0 to 2; received 3.0"),
        (lambda: RandomGraphs(2, 0, 3), "steps.*received 0"),
        (lambda: RandomGraphs(0, 2, 3), "num_graphs.*received 0"),
    ],
)
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ValueError, match=message):
        make()
