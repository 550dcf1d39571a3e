"""Memory attention figures: contents of panels, and errors."""

import numpy as np
import pytest

from rrl_tf.viz import figure_to_image, memory_attention_figure

RNG = np.random.default_rng(0)


def random_scores(times=3, heads=2, entities=4):
    scores = np.exp(RNG.normal(size=(times, heads, entities, entities)))
    return scores / scores.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("queries", [None, 3])
def test_every_panel_shows_its_step_and_head(queries):
    scores = random_scores()
    figure = memory_attention_figure(scores, ["a", "b", "c", "input"], ["x", "y", "z"], queries)
    panels = [axes for axes in figure.axes if axes.get_images()]
    places = sorted((axes.get_position().x0, -axes.get_position().y1) for axes in panels)
    assert len(panels) == len(set(places)) == 6
    for axes in panels:
        place = axes.get_position()
        t = sorted({left for left, _ in places}).index(place.x0)
        head = sorted({top for _, top in places}).index(-place.y1)
        (image,) = axes.get_images()
        np.testing.assert_allclose(image.get_array(), scores[t, head, :queries])
        assert image.get_clim() == (0, scores[:, :, :queries].max())
        assert axes.get_title() == (["x", "y", "z"][t] if head == 0 else "")
        rows = [label.get_text() for label in axes.get_yticklabels()]
        assert rows == (["a", "b", "c", "input"][:queries] if t == 0 else [])
        columns = [label.get_text() for label in axes.get_xticklabels()]
        assert columns == (["a", "b", "c", "input"] if head == 1 else [])
    image = figure_to_image(figure)
    assert image.dtype == np.uint8


def test_the_colour_bar_has_a_label():
    figure = memory_attention_figure(random_scores(), ["a", "b", "c", "input"], ["x", "y", "z"])
    [bar] = [axes for axes in figure.axes if not axes.get_images()]
    assert bar.get_ylabel() == "attention"
    figure.draw_without_rendering()
    assert bar.get_tightbbox().x1 <= figure.bbox.x1


def test_masked_steps_and_half_precision_can_be_drawn():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    scores = np.zeros((1, 1, 2, 2)).astype(ml_dtypes.bfloat16)
    assert figure_to_image(memory_attention_figure(scores, ["1", "in"], ["t"])).ndim == 3


@pytest.mark.parametrize(
    ("scores", "entities", "steps", "queries", "message"),
    [
        (np.ones((2, 3, 3)), "abc", "xy", None, r"\(T, H, N, N\).*\(2, 3, 3\)"),
        (np.ones((2, 1, 3, 4)), "abc", "xy", None, r"\(T, H, N, N\).*\(2, 1, 3, 4\)"),
        (np.ones((2, 1, 3, 3)), "ab", "xy", None, "entities must be 3 names.*'ab'"),
        (np.ones((2, 1, 3, 3)), "abc", "x", None, "steps must be 2 names.*'x'"),
        (np.ones((2, 1, 3, 3)), "abc", "xy", 4, "queries must be 1 to 3.*4"),
    ],
)
def test_mismatched_arguments_raise(scores, entities, steps, queries, message):
    with pytest.raises(ValueError, match=message):
        memory_attention_figure(scores, entities, steps, queries)
