"""The playground without a server in a real browser, below a path as on a larger site."""

import numpy as np
import pytest

from rrl_tf import load_policy
from serving.playground.static_page import write_page

pytestmark = pytest.mark.tf_only


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the web server, two levels above the page."""
    folder = tmp_path_factory.mktemp("web")
    presets = ["doorkey-5x5", "doorkey-6x6", "dt-doorkey", "mnist-relational"]
    write_page(folder / "somebody" / "play", presets)
    return folder


@pytest.fixture
def address(web_server, folder):
    return f"{web_server(folder)}/somebody/play/"


@pytest.fixture
def visit(open_page, address):
    return lambda level="", **options: open_page(address + level, ".action.chosen", **options)


def play(page, size):
    """Play a level with the policy to the end."""
    page.evaluate("document.getElementById('speed').value = 4")
    page.click("#play")
    page.get_by_text("Solved:").wait_for()
    assert page.input_value("#size") == f"{size}"


def test_the_policy_plays_to_the_goal_without_a_server(visit, address):
    page = visit()
    play(page, 5)
    asked = page.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
    assert {url.removeprefix(address) for url in asked} >= {"main.js", "doorkey-5x5.safetensors"}
    assert all(url.startswith(address) for url in asked)
    assert not any("predict" in url or "doorkey-6x6" in url for url in asked)


def test_a_recurrent_policy_plays(visit):
    page = visit("#model=doorkey-6x6&size=6&wall=2&door=1&key=1,1&agent=1,2&direction=0")
    play(page, 6)
    assert page.locator("#heads .head").count() == 4


def test_a_chosen_policy_starts_with_a_level_of_its_size(visit):
    page = visit()
    page.select_option("#model", "doorkey-6x6")
    page.get_by_text("trained for 6 × 6").wait_for()
    page.wait_for_selector(".action.chosen")
    assert page.input_value("#size") == "6"


CARRY = "#model=doorkey-6x6&size=6&wall=2&door=1&key=1,1&agent=1,2&direction=3"  # faces the key


def texts(page, kind):
    return page.locator(f".action .{kind}").all_inner_texts()


def test_a_part_that_is_switched_off_changes_values_and_choice(visit):
    page = visit(CARRY)
    labels = [
        f"{part} {i}" for i in (1, 2) for part in ("round", "head 1 of round", "head 2 of round")
    ]
    boxes = page.locator("#parts input")
    assert boxes.evaluate_all("all => all.map(e => e.ariaLabel)") == [*labels, "memory"]
    before = texts(page, "value")
    assert page.inner_text("#difference") == "Nothing is changed."
    page.focus("#parts input")
    page.keyboard.press("Space")  # round 1
    page.wait_for_selector("#actions.compared .newly-chosen")
    assert texts(page, "value") == before != texts(page, "new-value")
    assert page.inner_text("#difference").startswith("Without round 1, the choice is ")
    assert page.get_by_label("head 1 of round 1").is_disabled()
    assert page.locator("#heads .head.off").count() == 2
    page.locator(".newly-chosen[aria-label*='the choice after the change']").wait_for()
    page.click("#step")  # the changed network acts
    page.get_by_text("Step 1 of 1").wait_for()
    page.click("#restore")
    page.wait_for_selector("#actions:not(.compared) .chosen")
    assert boxes.evaluate_all("all => all.every(e => e.checked && !e.disabled)")


def test_a_cell_is_hidden_by_a_click_and_shown_by_another(visit):
    page = visit(CARRY)
    occlusion = page.locator("#effects button")
    page.locator("#effects button[aria-label*='falls by']").or_(
        page.locator("#effects button[aria-label*='rises by']")
    ).wait_for()
    occlusion.focus()
    page.keyboard.press("ArrowUp")  # to the key, in front of the agent
    label = occlusion.get_attribute("aria-label")
    fall = label.partition("cell 4,6 of the view is hidden, the Q value ")[2].partition(";")[0]
    assert "by 0." in fall
    page.keyboard.press("Enter")
    page.wait_for_selector("#effects button[aria-pressed=true]")
    said = page.inner_text("#difference")
    assert said.startswith("Without 1 cell, ") and said.endswith(f" {fall}.")
    assert page.locator("#board .hidden-cell").count() == 1
    side = page.locator("#board").bounding_box()["width"] / 6
    page.locator("#board").click(position={"x": 1.5 * side, "y": 1.5 * side})
    page.wait_for_selector("#effects button[aria-pressed=false]")
    assert page.inner_text("#difference") == "Nothing is changed."
    page.locator("#board").click(position={"x": 4.5 * side, "y": 4.5 * side})  # not visible
    page.locator("#effects button .caption").click()
    assert page.locator("#board .hidden-cell").count() == 0
    assert page.locator("#rollout svg").count() == 1


def test_other_policies_cannot_be_changed(visit):
    page = visit()
    assert page.locator("#changes, #attribution").locator("visible=true").count() == 2
    page.select_option("#model", "dt-doorkey")
    page.locator("#returns").wait_for()
    assert page.locator("#changes, #attribution").locator("visible=true").count() == 0


def test_a_decision_transformer_has_a_target_return(visit):
    page = visit("#model=dt-doorkey&size=5&wall=2&door=2&key=1,3&agent=1,1&direction=0")
    play(page, 5)
    assert page.locator("#heads .head").count() == 2
    page.click("#restart")
    page.focus("#target")
    page.keyboard.press("Home")
    page.get_by_text("remaining target 0.00").wait_for()
    chosen = page.locator(".action.chosen")
    chosen.wait_for()
    assert "probability 0.2" in chosen.get_attribute("aria-label")  # unsure with a target of 0


def pixels(page):
    """Return the network input that the page draws."""
    alpha = page.evaluate(
        """() => {
          const canvas = document.querySelector("#seen canvas");
          const { data } = canvas.getContext("2d").getImageData(0, 0, 28, 28);
          return Array.from({ length: 28 * 28 }, (_, i) => data[4 * i + 3]);
        }"""
    )
    return np.reshape(alpha, (28, 28)).astype("uint8")


def test_digits_are_classified(visit, open_page, address):
    page = visit()
    page.select_option("#model", "mnist-relational")
    page.get_by_text("Prediction: 3,").wait_for()
    assert page.url == f"{address}digits.html#model=mnist-relational"
    page.click("#examples button:text('8')")
    page.get_by_text("Prediction: 8,").wait_for()
    assert page.locator(".head").count() == 8
    label, scores = load_policy("mnist-relational").classify(
        pixels(page), return_attention_scores=True
    )
    assert label == 8
    share = round(100 * scores["round_2"][3, 24].max())  # of the patch in the middle
    assert f"attends most, {share} %," in page.locator(".head").nth(7).get_attribute("aria-label")
    asked = page.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
    assert all(url.startswith(address) for url in asked)
    page.select_option("#model", "doorkey-5x5")
    page.wait_for_selector(".action.chosen")


def test_each_page_starts_with_its_first_model(open_page, address):
    page = open_page(f"{address}digits.html", ".class.chosen, .action.chosen")
    assert page.url == f"{address}digits.html#model=mnist-relational"


def test_a_new_address_changes_an_open_page(visit, address):
    page = visit()
    other = "model=doorkey-6x6&size=6&wall=2&door=1&key=1,1&agent=1,2&direction=0"
    page.evaluate(f"location.hash = '{other}'")
    page.get_by_text("Agent in column 1, row 2, facing right; key in column 1, row 1").wait_for()
    page.get_by_text("trained for 6 × 6").wait_for()
    assert page.url == f"{address}#{other}"
    page.evaluate("location.hash = 'model=mnist-relational'")
    page.get_by_text("Prediction: 3,").wait_for()


UNKNOWN = "The address names an unknown model; another one is shown."
IMPOSSIBLE = "The address names an invalid level; another one is shown."
LEVEL = {"size": "5", "wall": "2", "door": "2", "key": "1,3", "agent": "1,1", "direction": "0"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, ""),
        ({"model": "nope"}, UNKNOWN),
        ({"size": "3"}, IMPOSSIBLE),
        ({"size": "5.5"}, IMPOSSIBLE),
        ({"wall": "9"}, IMPOSSIBLE),
        ({"direction": "7"}, IMPOSSIBLE),
        ({"direction": ""}, IMPOSSIBLE),
        ({"model": "nope", "agent": "0,0"}, f"{UNKNOWN} {IMPOSSIBLE}"),
    ],
)
def test_an_invalid_address_shows_a_notice(change, told, visit):
    fields = {"model": "doorkey-5x5", **LEVEL, **change}
    page = visit("#" + "&".join(f"{name}={value}" for name, value in fields.items()))
    assert page.locator("#problem").text_content() == told
    assert page.locator("#problem").is_visible() == bool(told)
    page.click("#new-level")
    page.wait_for_selector(".action.chosen")
    page.locator("#problem").wait_for(state="hidden")


def test_an_invalid_address_of_digits_shows_a_notice(open_page, address):
    page = open_page(f"{address}digits.html#model=nope", ".class.chosen")
    assert page.inner_text("#problem") == UNKNOWN
    page.click("#clear")
    page.locator("#problem").wait_for(state="hidden")


def test_a_remaining_target_of_zero_has_no_sign(visit):
    page = visit("#" + "&".join(f"{name}={value}" for name, value in LEVEL.items()))
    page.select_option("#model", "dt-doorkey")
    page.locator("#returns").wait_for()
    page.focus("#board")
    begin, door, goal = ["Enter", "ArrowRight", "ArrowUp", " "], ["ArrowLeft", "Enter"], ["ArrowUp"]
    for key in [*begin, *door, *goal * 2, "ArrowRight", *goal]:  # the first one does nothing
        page.keyboard.press(key)
    page.get_by_text("Solved: goal reached after 10 steps, reward 0.964.").wait_for()
    page.fill("#target", "0.96")
    page.get_by_text("Return so far 0.96, remaining target 0.00.").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_whole_digits_page(open_page, address, scheme, usable_on_a_phone):
    options = {"width": 320, "color_scheme": scheme, "has_touch": True}
    page = open_page(f"{address}digits.html#model=mnist-relational", ".class.chosen", **options)
    page.locator(".head").nth(7).wait_for()
    usable_on_a_phone(page, "#seen, #paper")


def test_keys_act_and_back_rewinds(visit):
    page = visit()
    page.focus("#board")
    page.keyboard.press("ArrowLeft")
    page.get_by_text("Step 1 of 1").wait_for()
    page.click("#back")
    page.get_by_text("Step 0 of 1").wait_for()


@pytest.mark.parametrize("name", ["index.html", "digits.html"])
def test_a_page_opened_as_a_file_shows_a_hint(name, browser, folder, visit):
    context = browser.new_context()
    page = context.new_page()
    page.goto((folder / "somebody" / "play" / name).as_uri())
    page.get_by_text("python -m http.server").wait_for()
    context.close()
    assert not visit().get_by_text("python -m http.server").count()


@pytest.fixture
def visit_without(browser, address):
    """Function that opens a page with another response for one file.

    Uncaught errors in the page fail the test.
    """
    context, uncaught = browser.new_context(), []
    context.add_init_script("delete Crypto.prototype.subtle")  # as over plain HTTP

    def visit_without(page_file, file, **answer):
        page = context.new_page()
        page.on("pageerror", lambda error: uncaught.append(str(error)))
        respond = (lambda route: route.fulfill(**answer)) if answer else (lambda r: r.abort())
        page.route(f"**/{file}", respond)
        page.goto(address + page_file)
        page.locator("#problem").wait_for()
        page.unroute(f"**/{file}")
        return page

    yield visit_without
    context.close()
    assert uncaught == []


@pytest.mark.parametrize("answer", [{}, {"status": 404}])
@pytest.mark.parametrize("name", ["doorkey-5x5", "mnist-relational"])
def test_missing_weights_are_reported_and_requested_again(name, answer, visit_without):
    page_file = "digits.html" if name == "mnist-relational" else ""
    page = visit_without(f"{page_file}#model={name}", f"{name}.safetensors", **answer)
    told = f"The file {name}.safetensors is missing or unreadable: reload the page."
    assert page.inner_text("#problem") == told
    assert page.locator("body.stale").count() == 1  # values are dimmed
    page.click("#examples button:text('8')" if page_file else "#step")
    page.wait_for_selector(".chosen")
    page.locator("#problem").wait_for(state="hidden")
    assert page.locator("body.stale").count() == 0


UNREADABLE = (
    "The file config.json is missing or unreadable: reload the page, or write it with "
    "serving.playground.static_page.write_page."
)
NONE = "No model is loaded: config.json lists none."


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({}, UNREADABLE),
        ({"status": 404}, UNREADABLE),
        ({"body": '{"models": [{"na'}, UNREADABLE),
        ({"body": "{}"}, NONE),
        ({"body": "null"}, NONE),
        ({"body": '{"models": []}'}, NONE),
    ],
)
@pytest.mark.parametrize("page_file", ["", "digits.html"])
def test_a_page_without_models_shows_a_problem(page_file, answer, told, visit_without):
    assert visit_without(page_file, "config.json", **answer).inner_text("#problem") == told


def test_digits_are_classified_after_an_error(visit_without, folder):
    weights = (folder / "somebody" / "play" / "mnist-relational.safetensors").read_bytes()
    other = weights.replace(b"kernel", b"kernal", 1)
    page = visit_without("digits.html", "mnist-relational.safetensors", body=other)
    assert "weights of mnist-relational are damaged" in page.inner_text("#problem")
    page.click("#examples button:text('8')")
    page.get_by_text("Prediction: 8,").wait_for()


@pytest.mark.parametrize(
    ("page_file", "task", "legend"),
    [
        ("", "reach the green goal", ["agent", "locked door", "not visible to the agent"]),
        ("digits.html", "recognise the digit", ["query patch"]),
    ],
)
def test_a_page_explains_itself(page_file, task, legend, open_page, address):
    page = open_page(address + page_file, ".chosen")
    assert task in page.inner_text("#task")
    entries = page.locator("#legend li")
    assert {*legend, "attention, from low to high"} <= {*entries.all_inner_texts()}
    assert page.locator("#legend li svg").count() == entries.count()
    explanation = page.locator("#about").get_by_text("Attention: the fractions in which")
    assert not explanation.is_visible()
    page.click("text=What is this?")
    assert explanation.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_whole_page_with_labels(visit, scheme, usable_on_a_phone):
    page = visit(width=320, color_scheme=scheme, has_touch=True)
    page.locator(".head").nth(3).wait_for()
    page.tap("#editor summary")
    usable_on_a_phone(page, "#board")
