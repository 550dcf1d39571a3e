"""Probes decode labels from activations, and random labels only at chance."""

import numpy as np
import pytest
from interpreted_networks import agent, functional, states

from rrl_tf.errors import InvalidInput
from rrl_tf.interpret import probe, probe_places, untrained

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(300, 2, 4))


def test_label_is_decoded_on_held_out_states():
    labels = np.where(FEATURES[:, 0, 1] > 0.5, "near", "far")
    found = probe(FEATURES, labels)
    assert found.accuracy > 0.85
    assert abs(found.shuffled - 0.5) < 0.05
    three = probe(FEATURES, np.digitize(FEATURES[:, 1, 0], (-0.5, 0.5)))
    assert three.accuracy > 0.6 and three.chance == pytest.approx(1 / 3)


def test_random_labels_stay_at_chance():
    found = [probe(FEATURES, RNG.random(300) < 0.3, seed=seed) for seed in range(10)]
    assert abs(np.mean([each.accuracy for each in found]) - 0.5) < 0.03
    assert max(abs(each.accuracy - 0.5) for each in found) < 0.12


def test_states_of_a_group_are_not_split():
    groups = np.repeat(np.arange(30), 10)
    features = RNG.normal(size=(30, 64))[groups] + 0.01 * RNG.normal(size=(300, 64))
    labels = (RNG.random(30) < 0.5)[groups]
    assert probe(features, labels).accuracy > 0.95
    assert probe(features, labels, groups).accuracy < 0.75


@pytest.mark.parametrize(
    ("labels", "groups", "message"),
    [
        (np.zeros(300), None, "1 classes and 300 groups"),
        (np.arange(299), None, r"shape \(300,\).*received the shapes \(299,\)"),
        (np.arange(300) % 2, np.arange(300) % 3, "2 classes and 3 groups"),
    ],
)
def test_wrong_labels_raise_an_error(labels, groups, message):
    with pytest.raises(InvalidInput, match=message):
        probe(FEATURES, labels, groups)


def test_one_fold_is_an_error():
    with pytest.raises(InvalidInput, match=r"`folds` must be at least 2 and finite; received 1"):
        probe(FEATURES, np.arange(300) % 2, folds=1)


def test_places_are_probed_with_both_controls():
    x = states(120)
    labels = {"second feature": x[:, 1, 2, 1] > 0, "random": RNG.random(120) < 0.5}
    rows = probe_places(agent(), x, labels, folds=3, entity=np.full(120, 6))
    assert [(row["place"], row["label"]) for row in rows] == [
        (place, label)
        for place in ("round_1/before", "round_1/after", "round_2/after")
        for label in labels
    ]
    assert rows[0]["accuracy"] > 0.7 and rows[0]["untrained network"] > 0.7
    assert {row["chance"] for row in rows} == {0.5}
    [row] = probe_places(agent(), x, {"random": labels["random"]}, places=["round_1/after"])
    assert abs(row["accuracy"] - 0.5) < 0.2
    with pytest.raises(InvalidInput, match=r"one of round_1/before.*received 'round_9/after'"):
        probe_places(agent(), x, labels, places=["round_9/after"])


@pytest.mark.parametrize("model", [agent, functional])
def test_untrained_copy_has_other_weights_of_the_same_shapes(model):
    twin = untrained(model())
    assert twin is not model()
    for weight, own in zip(twin.weights, model().weights, strict=True):
        assert weight.shape == own.shape
    assert np.abs(np.array(twin.weights[0]) - np.array(model().weights[0])).max() > 0.01
