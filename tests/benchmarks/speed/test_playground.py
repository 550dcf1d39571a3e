"""What the benchmark reads off a page."""

import numpy as np
import pytest

from benchmarks.speed import playground
from serving.playground.static_page import write_page

pytestmark = pytest.mark.tf_only


@pytest.mark.parametrize(
    ("name", "preset"), [("index.html", "doorkey-5x5"), ("digits.html", "mnist-relational")]
)
def test_moves_and_bytes_are_those_of_the_page(name, preset, browser, web_server, tmp_path):
    page = write_page(tmp_path / "page", [preset])
    visit = playground.Visit(browser, f"{web_server(tmp_path)}/page/{name}")
    opened = visit.received()
    loaded = (name, "style.css", "layers.js", "network.js", f"{preset}.safetensors")
    assert opened > sum((page / name).stat().st_size for name in loaded)
    times = visit.moves(30)  # of more than one level
    assert len(times) == 30 and min(times) > 0
    assert visit.received() - opened < 1000  # nobody is asked but for the icon, which comes late


def test_a_line_has_the_middle_of_many_and_one_as_it_is():
    many = playground.row("a move", "served", "policy", [3.0, 1.0, 2.0], "ms", 20)
    assert many["median"] == 2 and many["10 to 90 %"] == "1.2 to 2.8" and many["at most"] == 20
    one = playground.row("opened", "served", "policy", [np.float64(0.5)], "MB")
    assert one["median"] == 0.5 and one["10 to 90 %"] is None
