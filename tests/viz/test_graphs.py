"""Graph figures: distances between nodes follow paths, widths of lines attention."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from rrl_tf.viz import graph_attention_figure, graph_layout, style

PATH = np.eye(5, k=1) + np.eye(5, k=-1) > 0  # 0 - 1 - 2 - 3 - 4
PATH_BUT_LAST = PATH & ~np.eye(5, dtype=bool)[4] & ~np.eye(5, dtype=bool)[:, 4:]


def apart(places):
    return np.linalg.norm(places[:, None] - places[None], axis=-1)


def test_a_path_lies_on_a_line():
    steps = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    np.testing.assert_allclose(apart(graph_layout(PATH)), steps, atol=0.05)


def test_components_do_not_overlap():
    distances = apart(graph_layout(PATH_BUT_LAST))
    assert distances[4, :4].min() > 1
    assert distances[~np.eye(5, dtype=bool)].min() > 0.5
    np.testing.assert_array_equal(distances, apart(graph_layout(PATH_BUT_LAST)))
    assert graph_layout(np.zeros((1, 1))).shape == (1, 2)


def figure_of(attention, probability):
    connected = np.arange(5) < 4
    rounds = {"round 1": (attention, probability), "round 2": (attention, 1 - probability)}
    return graph_attention_figure(PATH_BUT_LAST, 1, connected, rounds)


def test_width_of_half_a_line_is_the_attention_of_its_node():
    attention = np.zeros((2, 5, 5))
    attention[:, 1] = [[0.5, 0, 0.5, 0, 0], [1.0, 0, 0, 0, 0]]
    attention[:, 0, 1] = 0.1
    figure = figure_of(attention, np.linspace(0, 1, 5))
    assert len(figure.axes) == 2
    [axes, _] = figure.axes
    edges, halves, nodes = axes.collections
    places = np.asarray(nodes.get_offsets())
    assert len(edges.get_segments()) == 3  # each edge once
    drawn = {}
    for segment, width in zip(halves.get_segments(), halves.get_linewidths(), strict=True):
        start, end = (
            int(np.abs(places - p).sum(-1).argmin())
            for p in (segment[0], 2 * segment[1] - segment[0])
        )
        drawn[start, end] = width
    assert set(drawn) == {(0, 1), (1, 0), (1, 2)}
    assert drawn[1, 0] / drawn[1, 2] == pytest.approx(0.75 / 0.25)
    assert drawn[1, 0] / drawn[0, 1] == pytest.approx(0.75 / 0.1)


def test_nodes_show_probability_and_correct_answer():
    probability = np.linspace(0, 1, 5)
    figure = figure_of(np.zeros((1, 5, 5)), probability)
    for axes, shares in zip(figure.axes, (probability, 1 - probability), strict=True):
        nodes = axes.collections[-1]
        np.testing.assert_array_equal(nodes.get_array(), shares)
        assert nodes.get_clim() == (0, 1)
        rings = [style.TEXT, style.ACCENT, style.TEXT, style.TEXT, style.LINE]
        np.testing.assert_allclose(nodes.get_edgecolors(), [to_rgba(ring) for ring in rings])


RIGHT = (np.zeros((2, 5, 5)), np.zeros(5))


@pytest.mark.parametrize(
    ("edges", "marked", "connected", "rounds", "message"),
    [
        (PATH[:3], 0, np.ones(5), {"r": RIGHT}, r"edges must have shape \(N, N\).*\(3, 5\)"),
        (np.triu(PATH), 0, np.ones(5), {"r": RIGHT}, "edges must be symmetric"),
        (np.bool_(True), 0, np.ones(5), {"r": RIGHT}, r"edges must have.*received shape \(\)"),
        (PATH, 5, np.ones(5), {"r": RIGHT}, "marked must be one of 5 nodes; received 5"),
        (
            PATH,
            0,
            np.ones(4),
            {"r": RIGHT},
            r"connected must have shape \(5,\); received shape \(4,\)",
        ),
        (PATH, 0, np.ones(5), {}, "at least one round"),
        (
            PATH,
            0,
            np.ones(5),
            {"r": (RIGHT[0][0], RIGHT[1])},
            r"rounds\['r'\].*received shape \(5, 5\)",
        ),
        (PATH, 0, np.ones(5), {"r": (RIGHT[0], np.ones(4))}, r"\(5,\); received shape \(4,\)"),
    ],
)
def test_invalid_arguments_raise(edges, marked, connected, rounds, message):
    with pytest.raises(ValueError, match=message):
        graph_attention_figure(edges, marked, connected, rounds)
