"""Batches of generated data never repeat, and resumed training receives the same batches."""

import functools
import re

import keras
import numpy as np
import pytest

from rrl_tf.data import (
    NthFarthest,
    RandomGraphs,
    SortOfClevr,
    random_graphs,
    sample_nth_farthest,
    sample_sort_of_clevr,
)
from rrl_tf.data.graphs import connected
from rrl_tf.data.sort_of_clevr import examples
from rrl_tf.errors import InvalidInput

# Name -> (data set, function that samples one batch with an integer seed).
DATA = {
    "graphs": (
        functools.partial(RandomGraphs, 4, num_nodes=8),
        lambda seed: connected(random_graphs(4, 8, seed=seed)),
    ),
    "nth farthest": (
        functools.partial(NthFarthest, 4, num_vectors=3, dimension=2),
        lambda seed: sample_nth_farthest(4, 3, 2, seed=seed),
    ),
    "sort of clevr": (
        functools.partial(SortOfClevr, 2, questions_each=2),
        lambda seed: examples(sample_sort_of_clevr(2, 2, seed)),
    ),
}


def content(batch):
    return b"".join(np.asarray(part).tobytes() for part in keras.tree.flatten(batch))


@pytest.mark.parametrize("name", DATA)
def test_batches_differ_and_those_of_an_epoch_are_reproducible(name):
    make, sample = DATA[name]
    data = make(steps=3, seed=7)
    first = [content(data[i]) for i in range(3)]
    data.on_epoch_end()
    second = [content(data[i]) for i in range(3)]
    assert len({*first, *second}) == 6
    resumed = make(steps=3, seed=7, epoch=1)
    assert [content(resumed[i]) for i in range(3)] == second
    # Regression: NumPy pads seeds with zeros, so [seed, 0, 0] gives the same batch as the seed.
    assert content(sample(7)) not in first


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", ["seed", "epoch"])
@pytest.mark.parametrize("wrong", [-1, 1.5, "x", None])
def test_invalid_seeds_and_epochs_raise(data, name, wrong):
    make, _ = DATA[data]
    with pytest.raises(InvalidInput, match=f"{name}.* must be .*received {re.escape(repr(wrong))}"):
        make(steps=1, **{name: wrong})
