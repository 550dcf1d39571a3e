"""Random graphs: distances by a plain search, edges drawn as said, fresh batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.data.graphs import RandomGraphs, connected, random_graphs


def searched(edges, start):
    """Node → edges from the start, by a queue."""
    distance, queue = {start: 0}, [start]
    for node in queue:
        for other in range(len(edges)):
            if edges[node][other] and other not in distance:
                distance[other] = distance[node] + 1
                queue.append(other)
    return distance


@given(size=st.integers(1, 9), seed=st.integers(0, 2**32), share=st.floats(0, 1))
def test_distances_are_what_a_search_finds(size, seed, share):
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


def test_nodes_have_as_many_neighbors_as_said():
    few = random_graphs(3000, 10, (1.0, 2.0), seed=1)
    assert few.edges.sum(axis=-1).mean() == pytest.approx(1.5, abs=0.05)
    assert few.nodes[..., 0].mean(axis=0) == pytest.approx(np.full(10, 0.1), abs=0.02)
    assert random_graphs(5, 7, (6, 6)).edges.sum() == 5 * 7 * 6


def test_batches_are_fresh_and_can_be_continued():
    arguments = {"batch_size": 4, "steps": 3, "num_nodes": 6, "seed": 7}
    data = RandomGraphs(**arguments)
    first = [data[i][0]["edges"] for i in range(len(data))]
    assert (first[0] != first[1]).any()
    data.on_epoch_end()
    inputs, targets = data[1]
    again, same = RandomGraphs(**arguments, epoch=1)[1]
    assert (inputs["edges"] == again["edges"]).all() and (targets == same).all()
    assert not any((inputs["edges"] == other).all() for other in first)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random_graphs(0, 3), "num_graphs.*received 0"),
        (lambda: random_graphs(1, 3, (1.0, 3.0)), "neighbors must be from 0 to 2; received 3.0"),
        (lambda: RandomGraphs(2, 0, 3), "steps.*received 0"),
        (lambda: RandomGraphs(0, 2, 3), "num_graphs.*received 0"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
