"""Films of episodes: frame, attention and values of each step."""

import numpy as np
import pytest
from PIL import Image

from rrl_tf.viz import film, save_film, style
from rrl_tf.viz.attention import initials
from rrl_tf.viz.episode_film import _Page

NAMES = ("left", "right", "forward")


def episode(steps=4, heads=2, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.ones(49), size=(steps, heads, 49))
    return {
        "frames": rng.integers(0, 256, (steps + 1, 5, 5, 3)).astype(np.uint8).repeat(8, 1),
        "scores": scores,
        "cells": [{"agent": (3, 6), "key": (t % 7, 2)} for t in range(steps)],
        "q_values": rng.normal(size=(steps, len(NAMES))),
        "actions": rng.integers(len(NAMES), size=steps),
        "rewards": np.eye(steps)[-1],
        "action_names": NAMES,
    }


def rgb(colour):
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])


def near(image, colour, tolerance=12):
    """Mask of the pixels of an image whose colour is close to `colour`."""
    return (np.abs(image.astype(int) - rgb(colour)) <= tolerance).all(axis=-1)


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 8])
def test_one_image_per_step_and_one_for_the_end(heads):
    images = film(**episode(steps=3, heads=heads))
    assert images.dtype == np.uint8
    assert len(images) == 4
    assert 600 <= images.shape[2] <= 800


def test_captions_of_an_episode_that_did_not_end(monkeypatch):
    captions = []
    monkeypatch.setattr(_Page, "show_frame", lambda page, frame, *texts: captions.append(texts))
    film(**episode(steps=3))
    film(**episode(steps=3), ended=False)
    assert captions[3] == ("the end, after 3 steps", "return 1.00")
    assert captions[7] == ("cut, after 3 steps", "return so far 1.00")
    assert [captions[1][0], captions[5][0]] == ["step 2 of 3", "step 2 of the first 3"]


def test_a_film_without_attention_has_frame_and_values():
    given = {**episode(steps=3), "scores": None, "cells": None}
    images = film(**given)
    assert len(images) == 4
    assert images.shape[2] < film(**episode(steps=3)).shape[2]
    chosen = [near(image, style.ACCENT).sum() for image in images]
    assert min(chosen[:3]) > 50 > chosen[3]


def test_a_wide_frame_is_drawn_as_wide_and_long_names_have_room():
    given = {**episode(steps=1), "scores": None, "cells": None}
    square = film(**{**given, "frames": np.zeros((2, 20, 20, 3), np.uint8)})
    wide = film(**{**given, "frames": np.zeros((2, 20, 30, 3), np.uint8)})
    assert wide.shape[1] == square.shape[1]
    assert wide.shape[2] - square.shape[2] == pytest.approx(0.5 * 210, abs=2)
    named = film(**{**given, "action_names": ("DOWNRIGHTFIRE", "b", "c")})
    assert named.shape[2] > square.shape[2]


def test_each_picture_shows_its_own_frame():
    given = episode(steps=2)
    given["frames"] = np.zeros((3, 8, 8, 3), np.uint8)
    colours = ("#ff0000", "#00ff00", "#0000ff")
    given["frames"][:] = np.array([rgb(c) for c in colours])[:, None, None]
    images = film(**given)
    for t, colour in enumerate(colours):
        left = images[t][:, : images.shape[2] // 3]
        assert [near(left, c).sum() > 10_000 for c in colours] == [c == colour for c in colours]


def test_attention_lands_on_its_cell():
    given = episode(steps=2, heads=1)
    given["scores"] = np.zeros((2, 1, 49, 49))
    given["cells"] = [{"agent": (3, 6)}] * 2
    given["scores"][0, 0, 27, 5 * 7 + 1] = 1  # (5, 1): right of and above the agent
    given["scores"][1, 0, 27, 1 * 7 + 5] = 1
    images = film(**given)
    darkest = "#06244f"
    first = np.argwhere(near(images[0], darkest)).mean(axis=0)
    second = np.argwhere(near(images[1], darkest)).mean(axis=0)
    # Four cells to the right and four up, 30 pixels each.
    np.testing.assert_allclose(first - second, [-120, 120], atol=3)


def test_the_chosen_action_is_orange():
    given = episode(steps=3, heads=1)
    given["scores"] = np.zeros((3, 1, 49, 49))
    given["q_values"] = np.ones((3, 3))
    given["actions"] = np.array([0, 2, 1])
    images = film(**given)
    right = images.shape[2] * 4 // 5
    heights = [
        np.argwhere(near(image[:, right:], style.ACCENT))[:, 0].mean() for image in images[:3]
    ]
    assert heights[0] < heights[2] < heights[1]
    assert not near(images[3][:, right:], style.ACCENT).any()


def test_the_mean_of_the_heads_can_be_shown():
    given = episode()
    given["scores"] = given["scores"].mean(axis=1, keepdims=True)
    assert len(film(**given)) == 5


def test_the_title_names_round_and_even_attention():
    heads = np.zeros((2, 7, 7))
    heads[:, 5:] = 1 / 14
    values, title = np.zeros((1, 3)), "attention from agent, round 1"
    page = _Page(np.zeros((8, 8, 3)), heads[None], values, NAMES, title, {"agent": "A"})
    page.show_attention(heads, {"agent": (3, 6)}, (3, 6))
    texts = [text.get_text() for text in page.figure.texts]
    assert "attention from agent, round 1\n0 to 0.14; even would be 0.07" in texts
    given = episode(steps=1)
    assert (film(**given, round_name="round 1") != film(**given)).any()


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 8])
def test_the_key_to_the_letters_is_on_the_page_and_left_of_the_values(heads):
    """Regression: six labels of KeyCorridor covered the actions' names."""
    labels = ("agent", "red key", "red door", "yellow door", "green ball", "blue door")
    pictures = np.full((1, heads, 7, 7), 1 / 49)
    frame, values = np.zeros((8, 8, 3)), np.zeros((1, 3))
    page = _Page(frame, pictures, values, NAMES, "attention from agent", initials(labels))
    (letters,) = [text for text in page.figure.texts if "Y yellow door" in text.get_text()]
    *shown, bars = page.figure.axes
    box = letters.get_window_extent()
    assert box.x1 < bars.get_tightbbox().x0 and box.y0 > 0
    assert box.y1 < min(axes.get_window_extent().y0 for axes in shown[1:])


def test_an_entity_has_the_same_letters_in_every_step():
    """Regression: a red door was R until the red key came into view, and RD in the key."""
    labels = ("agent", "red door", "red key")
    pictures = np.full((2, 1, 7, 7), 1 / 49)
    frame, values = np.zeros((8, 8, 3)), np.zeros((2, 3))
    page = _Page(frame, pictures, values, NAMES, "attention from agent", initials(labels))
    for seen in (labels[:2], labels, labels[::2]):
        cells = {label: (3, number) for number, label in enumerate(seen)}
        page.show_attention(pictures[0], cells, (3, 0))
        written = {text.get_text() for axes in page.figure.axes for text in axes.texts}
        assert {"agent": "A", "red door": "RD", "red key": "RK"}[seen[-1]] in written
        assert len(written & {"A", "R", "RD", "RK"}) == len(seen)
        assert "R" not in written


def test_the_last_image_fades_all_but_the_frame():
    given = episode(steps=2)
    given["frames"] = np.full((3, 40, 40, 3), 200, np.uint8)
    *_, last, end = film(**given)
    dark, faded = (image[80:, image.shape[1] // 3 :].min() for image in (last, end))
    assert dark < 60 and 120 < faded < 200
    left = slice(75, 280), slice(22, 226)
    np.testing.assert_array_equal(last[left], end[left])


def test_a_gif_has_all_images_with_their_durations(tmp_path):
    images = film(**episode(steps=20))
    path = save_film(images, tmp_path / "deeper" / "episode.gif", seconds=0.4, last_seconds=2)
    assert [each.name for each in path.parent.iterdir()] == ["episode.gif"]
    assert path.stat().st_size < 1_500_000
    with Image.open(path) as gif:
        assert gif.n_frames == 21
        assert gif.info["loop"] == 0
        durations = []
        for t in range(gif.n_frames):
            gif.seek(t)
            durations.append(gif.info["duration"])
            error = np.abs(np.array(gif.convert("RGB")).astype(int) - images[t])
            assert error.mean() < 2
    assert durations == [400] * 20 + [2000]


def test_few_colours_survive_exactly(tmp_path):
    images = np.random.default_rng(0).integers(0, 2, (3, 6, 9, 3)).astype(np.uint8) * 255
    path = save_film(images, tmp_path / "exact.gif")
    with Image.open(path) as gif:
        for t, image in enumerate(images):
            gif.seek(t)
            np.testing.assert_array_equal(np.array(gif.convert("RGB")), image)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"frames": np.zeros((4, 8, 8, 3), np.uint8)}, r"frames .*\(5,\).*\(4,\)"),
        ({"frames": np.zeros((8, 8, 3), np.uint8)}, r"frames .*\(8, 8, 3\)"),
        ({"scores": np.zeros((2, 49, 49))}, r"scores .*\(2, 49, 49\)"),
        ({"q_values": np.zeros((4, 5))}, r"q_values .*\(4, 3\).*\(4, 5\)"),
        ({"actions": np.array([0, 1, 2, 3])}, r"0\.\.2"),
        ({"actions": np.zeros(4)}, "integers.*float64"),
        ({"rewards": np.zeros(5)}, r"rewards .*\(5,\)"),
        ({"cells": [{"agent": (3, 6)}]}, "cells"),
        ({"source": "goal"}, r"cells\[0\] has no 'goal'"),
    ],
)
def test_invalid_input_raises(changed, message):
    with pytest.raises(ValueError, match=message):
        film(**(episode() | changed))
