"""Figures become arrays and complete files."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from rrl_tf.viz import figure_to_image, save_figure, save_film, style


def test_figure_to_image_is_rgb_from_the_top():
    figure = Figure(figsize=(2, 1), dpi=50)
    figure.add_axes((0, 0.5, 1, 0.5), facecolor="red").set_axis_on()
    image = figure_to_image(figure)
    assert image.shape == (50, 100, 3) and image.dtype == np.uint8
    assert image[10, 50].tolist() == [255, 0, 0]
    assert image[40, 50].tolist() == [255, 255, 255]


def test_saved_and_drawn_pictures_agree(tmp_path):
    figure = Figure(figsize=(2, 1), dpi=60)
    figure.add_axes((0.1, 0.1, 0.8, 0.8), facecolor="teal")
    path = save_figure(figure, tmp_path / "new" / "figure.png")
    with Image.open(path) as image:
        np.testing.assert_array_equal(np.array(image.convert("RGB")), figure_to_image(figure))
    assert [each.name for each in path.parent.iterdir()] == ["figure.png"]


@pytest.mark.parametrize("name", ["figure.png", "figure.pdf", "figure"])
def test_pictures_and_films_contain_their_caption(tmp_path, name):
    path = save_figure(style.new_figure(1, 1, "what is drawn: é"), tmp_path / name)
    if name != "figure.pdf":
        with Image.open(path) as image:
            assert image.info["Description"] == "what is drawn: é"
    film = save_film(np.zeros((2, 4, 4, 3), "uint8"), tmp_path / "film.gif", caption="an episode")
    with Image.open(film) as image:
        assert image.info["comment"] == b"an episode"


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "figure.png"
    path.write_bytes(b"old")
    figure = Figure(figsize=(1, 1))

    def half_written(aside, **_):
        aside.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(figure, "savefig", half_written)
    with pytest.raises(OSError, match="disk full"):
        save_figure(figure, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "images", [np.zeros((4, 4, 3), np.uint8), np.zeros((0, 4, 4, 3), np.uint8)]
)
def test_save_film_names_a_bad_shape(images, tmp_path):
    with pytest.raises(ValueError, match="`images` must have shape"):
        save_film(images, tmp_path / "film.gif")
    assert not list(tmp_path.iterdir())


def test_viz_needs_no_framework_no_environment_and_no_display():
    code = (
        "import sys, rrl_tf.viz\n"
        "unwanted = {'tensorflow', 'keras', 'gymnasium', 'minigrid', 'matplotlib.pyplot'}\n"
        "sys.exit(', '.join(unwanted & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
