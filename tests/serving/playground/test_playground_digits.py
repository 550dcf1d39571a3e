"""The playground's page for digits: scaling of drawings, predictions and attention."""

import json
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

from rrl_tf.data.perturb import rotate_and_shift
from rrl_tf.pretrained import pretrained_folder

pytestmark = pytest.mark.tf_only
FOLDER = pathlib.Path(__file__).parents[3] / "serving" / "playground" / "static"
PAPER = 90  # pixels on a side, in the tests without a browser


def drawing(rng):
    """Return grey strokes: rectangles, some of them thin, anywhere on the paper."""
    ink = np.zeros((PAPER, PAPER))
    for _ in range(rng.integers(1, 5)):
        (x, y), (width, height) = rng.integers(0, PAPER - 3, 2), rng.integers(2, 40, 2)
        ink[y : y + height, x : x + width] = rng.uniform(0.3, 1.0)
    # Noise keeps the center of mass off the exact middle between two pixels.
    return ink * rng.uniform(0.9, 1.0, ink.shape)


def parts(length, scale):
    """Return (boxes, length): the part of each pixel that lies in each box of `scale` pixels."""
    edges = np.minimum(np.arange(np.ceil(length / scale - 1e-9) + 1) * scale, length)
    pixels = np.arange(length)
    below = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.maximum(below, 0)


def like_mnist(ink):
    """Do the same as the page: scale to a box of 20 pixels by areas, then center by mass."""
    rows, columns = np.nonzero(ink > 0.05)
    cut = ink[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    scale = max(cut.shape) / 20
    small = parts(cut.shape[0], scale) @ cut @ parts(cut.shape[1], scale).T / scale**2
    middles = [np.arange(size) + 0.5 for size in small.shape]
    y, x = (small.sum(1 - axis) @ middles[axis] / small.sum() for axis in (0, 1))
    frame = np.zeros((84, 84))  # space for parts outside the image
    down, right = (int(np.floor(28 + 14 - at + 0.5)) for at in (y, x))
    frame[down : down + small.shape[0], right : right + small.shape[1]] = small
    return frame[28:56, 28:56]


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory):
    """(drawings, images, degrees, shifts, JavaScript's results for them)."""
    if not (node := shutil.which("node")):
        pytest.skip("needs node, to run the page's code (apt-get install nodejs)")
    folder, rng = tmp_path_factory.mktemp("ink"), np.random.default_rng(0)
    drawings = [drawing(rng) for _ in range(40)] + [np.zeros((PAPER, PAPER))]
    images = rng.integers(0, 256, (40, 28, 28))
    degrees, shifts = rng.integers(-90, 91, 40), rng.integers(-10, 11, (40, 2))
    asked = {
        "side": PAPER,
        "drawings": [ink.ravel().tolist() for ink in drawings],
        "images": images.reshape(40, -1).tolist(),
        "ways": np.column_stack([degrees, shifts]).tolist(),
    }
    (folder / "asked.json").write_text(json.dumps(asked))
    code = shutil.copy(FOLDER / "ink.js", folder / "ink.mjs")
    command = [node, str(pathlib.Path(__file__).with_name("ink.mjs")), str(code)]
    done = subprocess.run(
        [*command, str(folder / "asked.json")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return drawings, images, degrees, shifts, json.loads(done.stdout)


def test_drawings_are_laid_out_like_mnist(laid_out):
    drawings, *_, answer = laid_out
    *laid, empty = (np.reshape(values, (28, 28)) for values in answer["laid"])
    for ink, image in zip(drawings, laid):
        np.testing.assert_allclose(image, like_mnist(ink), atol=1e-9)
        assert image.min() >= 0 and image.max() <= 1 + 1e-9
    assert not empty.any()


def test_rotation_and_shift_equal_those_of_training(laid_out):
    _, images, degrees, shifts, answer = laid_out
    expected = rotate_and_shift(images[..., None].astype("float32"), degrees, shifts)[..., 0]
    # float32 rarely rounds a position between two pixels to the other pixel.
    assert np.mean(expected != np.reshape(answer["turned"], (40, 28, 28))) < 1e-3


@pytest.fixture(scope="module")
def server(tools):
    with tools.serve(pretrained_folder("mnist-relational") / "policy", playground=True) as running:
        yield running


@pytest.fixture
def visit(open_page, server):
    def visit(**options):
        address = f"http://127.0.0.1:{server.rest_port}/playground/"
        return open_page(address, ".class.chosen", **options)

    return visit


@pytest.fixture(scope="module")
def classify(server):
    """Function that returns a Python client's outputs for an image."""
    from serving.client import connect

    with connect(f"http://127.0.0.1:{server.rest_port}", "tiny") as client:
        yield lambda image: client.predict({"image": image}, "classify_with_attention")


def read(page, digit):
    page.get_by_text(f"Prediction: {digit},").wait_for(timeout=60_000)


def sent_by(page, act):
    """Return the image of the last request after an action."""
    with page.expect_response("**:predict") as response:
        act()
    return np.array(json.loads(response.value.request.post_data)["inputs"]["image"], np.uint8)


def test_every_example_is_classified(visit):
    page = visit()
    assert page.url.endswith("/digits.html#model=tiny")
    for digit in range(10):
        page.click(f"#examples button:text('{digit}')")
        read(page, digit)


def test_a_drawing_is_classified(visit):
    page = visit()
    page.click("#clear")
    page.get_by_text("Draw a digit or choose").wait_for()
    box = page.locator("#paper").bounding_box()
    for i, (x, y) in enumerate([(0.3, 0.2), (0.7, 0.2), (0.5, 0.5), (0.42, 0.85)]):  # a seven
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=8)
        page.mouse.down() if i == 0 else None
    page.mouse.up()
    read(page, 7)
    page.mouse.move(box["x"], box["y"])  # the pen is up
    page.click("#undo")
    page.get_by_text("Draw a digit or choose").wait_for()


def test_an_empty_drawing_has_no_prediction(visit):
    page = visit()
    read(page, 3)
    page.click("#clear")
    page.get_by_text("Draw a digit or choose").wait_for()
    page.wait_for_timeout(500)  # a reply in progress has arrived
    assert page.locator(".class.chosen, .head").count() == 0
    assert page.locator("#seen .attention, #seen .patch").count() == 0
    assert "".join(page.locator(".class .value").all_inner_texts()) == ""
    assert set(page.locator(".class .bar").evaluate_all("all => all.map(e => e.style.width)")) == {
        "0px"
    }
    page.click("#examples button:text('8')")
    read(page, 8)
    assert page.locator(".head").count() == 8


def answering(outputs):
    """Return a route handler that replies with these outputs instead of the server."""
    return lambda route: route.fulfill(json={"outputs": outputs})


def test_an_improbable_second_class_is_hidden(visit):
    page = visit()
    likely = [0.9994, 0.0006, *8 * [0.0]], [0.9996, 0.0004, *8 * [0.0]]
    told = ("0, 99.9 %; second 1, 0.1 %.", "0, 100.0 %.")
    for probabilities, words in zip(likely, told):
        outputs = {"class": [0], "probabilities": [probabilities]}
        page.route("**:predict", answering(outputs))
        page.click("#examples button:text('0')")
        page.get_by_text("Prediction: 0").wait_for()
        page.get_by_text(f"Prediction: {words}", exact=True).wait_for()


def test_a_single_model_is_named(visit):
    page = visit()
    assert page.inner_text("#model-name") == "Model tiny"
    assert page.locator("#model-choice").is_hidden()


def test_bars_and_attention_equal_the_servers_reply(visit, classify):
    page = visit()
    image = sent_by(page, lambda: page.click("#examples button:text('5')"))
    read(page, 5)
    answer = classify(image)
    (shown,) = page.locator(".class.chosen .value").all_inner_texts()
    assert shown == f"{100 * answer['probabilities'][0].max():.1f} %"
    heads = page.locator(".head")
    assert heads.count() == 8
    box = page.locator("#seen").bounding_box()
    for x, y in ((0, 0), (4, 2)):
        page.mouse.move(*(box[a] + (i + 0.5) * box["width"] / 7 for a, i in (("x", x), ("y", y))))
        for number, (name, head) in enumerate([("round_1", 0), ("round_2", 3)]):
            scores = answer[f"attention_{name}"][0, head, 7 * y + x]
            label = heads.nth(7 * number).get_attribute("aria-label")
            row, column = divmod(int(scores.argmax()), 7)
            assert f"patch {x + 1},{y + 1} attends most" in label
            assert label.endswith(f"{round(100 * scores.max())} %, to patch {column + 1},{row + 1}")


def test_sliders_work_with_the_keyboard(visit):
    page = visit()
    before = sent_by(page, lambda: page.click("#examples button:text('4')"))
    page.focus("#right")
    moved = sent_by(page, lambda: page.keyboard.press("ArrowRight"))
    np.testing.assert_array_equal(moved, np.roll(before, 1, axis=2))
    assert page.inner_text("#right-value") == "1 px"
    turned = sent_by(page, lambda: page.fill("#turn", "90"))
    assert (turned != moved).any() and page.inner_text("#turn-value") == "90°"
    again = sent_by(page, lambda: page.click("#reset"))
    np.testing.assert_array_equal(again, before)


def test_arrow_keys_move_the_query_patch(visit):
    page = visit()
    page.focus("#seen")
    page.keyboard.press("ArrowUp")
    assert "patch 4,3 attends most" in page.locator(".head").first.get_attribute("aria-label")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_whole_page_with_labels(visit, scheme, usable_on_a_phone):
    page = visit(width=320, color_scheme=scheme, has_touch=True)
    page.tap("#examples button:text('8')")
    read(page, 8)
    usable_on_a_phone(page, "#seen, #paper")
