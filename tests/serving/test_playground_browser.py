"""The playground in a real browser: Debian's Chromium, driven by playwright."""

import shutil

import pytest

from rrl_tf.envs import DoorKeyStart, make_doorkey
from rrl_tf.presets import preset_folder

playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.tf_only,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt-get install chromium)"),
]
SMALL = DoorKeyStart(size=5, wall=2, door=2, key=(1, 3), agent=(1, 1), direction=0)
LARGE = DoorKeyStart(size=8, wall=4, door=3, key=(2, 6), agent=(1, 2), direction=3)
FASTEST = "document.getElementById('speed').value = 4"


@pytest.fixture(scope="module")
def server(tools, exported, tmp_path_factory):
    """Serves a policy, one with a memory, and one that has nothing to do with DoorKey."""
    presets = {name: preset_folder(name) / "policy" for name in ("doorkey-5x5", "doorkey-8x8")}
    models = [
        f'config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }}'
        for name, path in (presets | {"tiny": exported}).items()
    ]
    file = tmp_path_factory.mktemp("page") / "models.txt"
    file.write_text(f"model_config_list {{ {' '.join(models)} }}")
    with tools.serve("", model_config_file=str(file), playground=True) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture
def visit(browser, server):
    """Opens the page on a level; in the end nothing may stand in the browser's console."""
    said, contexts = [], []

    def visit(start=SMALL, model="doorkey-5x5", width=1100, **options):
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        cells = {name: "{},{}".format(*getattr(start, name)) for name in ("key", "agent")}
        level = "&".join(f"{name}={value}" for name, value in (vars(start) | cells).items())
        page.goto(f"http://127.0.0.1:{server.rest_port}/playground/#model={model}&{level}")
        page.wait_for_selector("#problem:not([hidden]), .action.chosen")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert said == []


def status(page, text):
    page.get_by_text(text).wait_for(timeout=60_000)
    return page.inner_text("#status")


def steps_of_session(server, start):
    """How many steps the policy with a memory takes, played from Python."""
    from serving.client import connect
    from serving.sessions import MemorySession

    env = make_doorkey(start.size, observation="compass")
    observation, _ = env.reset(options={"start": start})
    reward, steps, over = 0.0, 0, False
    with connect(f"http://127.0.0.1:{server.rest_port}", "doorkey-8x8") as client:
        session = MemorySession(client)
        while not over:
            action = session.act(observation, reward)
            observation, reward, terminated, truncated, _ = env.step(action)
            steps, over = steps + 1, terminated or truncated
    assert terminated
    return steps


def test_the_policy_plays_to_the_goal(visit):
    page = visit()
    page.evaluate(FASTEST)
    page.click("#play")
    assert status(page, "Goal reached").startswith("Goal reached after ")
    page.click("#restart")
    assert status(page, "Agent in column").startswith("Agent in column 1, row 1, looks right")


def test_a_policy_with_a_memory_plays_as_from_python(visit, server):
    page = visit(LARGE, "doorkey-8x8")
    page.evaluate(FASTEST)
    page.click("#play")
    steps = steps_of_session(server, LARGE)
    assert f"after {steps} steps" in status(page, "Goal reached")


def test_keys_and_buttons_act_and_rewind(visit):
    page = visit()
    page.focus("#board")
    for key in ("ArrowRight", "ArrowUp", " "):  # turns down, walks, picks up
        page.keyboard.press(key)
    assert "row 2, looks down; key carried; door locked" in status(page, "key carried")
    page.click("text=Turn left")
    page.keyboard.press("Enter")
    assert "looks right; key carried; door open" in status(page, "door open")
    page.click("#back")
    assert "door locked" in status(page, "Step 4 of 5") and page.input_value("#time") == "4"
    page.fill("#time", "2")
    assert "key in column 1, row 3" in status(page, "Step 2 of 5")
    page.wait_for_selector(".action.chosen")
    page.click("#step")  # what came after is forgotten
    assert "key carried" in status(page, "Step 3 of 3")


def test_attention_is_that_of_the_cell_one_points_at(visit):
    page = visit()
    heads = page.locator(".head")
    heads.nth(3).wait_for()
    assert heads.count() == 4
    label = heads.first.get_attribute("aria-label")
    assert "cell 4,7 of the view" in label  # the agent's own
    heads.first.focus()
    page.keyboard.press("ArrowLeft")
    assert "cell 3,7 of the view" in heads.first.get_attribute("aria-label")
    page.focus("#board")
    assert heads.first.get_attribute("aria-label") == label
    box = page.locator("#board").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)  # the door
    assert "cell 5,6 of the view" in heads.first.get_attribute("aria-label")


def test_the_editor_places_pieces_and_refuses_what_cannot_be(visit):
    page = visit()
    page.click("summary")

    def click(x, y):
        side = page.locator("#board").bounding_box()["width"]
        at = {"x": (x + 0.5) * side / 5, "y": (y + 0.5) * side / 5}
        page.locator("#board").click(position=at)

    page.check("input[value=key]")
    click(1, 2)
    assert "key in column 1, row 2" in status(page, "key in column 1, row 2")
    click(3, 1)
    assert "left of the wall" in page.inner_text("#refusal")
    assert "key in column 1, row 2" in page.inner_text("#status")
    page.check("input[value=door]")
    click(2, 1)
    assert page.inner_text("#refusal") == "" and "door=1" in page.url
    page.click("#turn")
    assert "looks down" in status(page, "looks down")
    page.check("input[value=agent]")
    page.focus("#board")
    for key in ("ArrowLeft", "ArrowDown", "ArrowDown", "Enter"):  # from the door's cell
        page.keyboard.press(key)
    assert "Agent in column 1, row 3" in status(page, "Agent in column 1, row 3")


def test_a_model_of_something_else_is_said_so(visit):
    page = visit(model="tiny")
    said = page.inner_text("#problem")
    assert "“tiny” is not a DoorKey policy" in said and said.endswith("you can.")
    page.click("text=Turn left")
    assert "looks up" in status(page, "looks up") and page.locator("#play").is_disabled()


def test_a_server_that_is_gone_is_said_so(browser, server):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.rest_port}/playground/")
    page.wait_for_selector(".action.chosen")
    context.set_offline(True)
    page.click("#step")
    page.get_by_text("The server does not answer").wait_for()
    context.set_offline(False)
    page.click("#step")
    page.locator("#problem").wait_for(state="hidden")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_whole_and_all_has_a_name(visit, scheme):
    page = visit(width=320, color_scheme=scheme, has_touch=True)
    page.locator(".head").nth(3).wait_for()
    page.tap("summary")
    assert page.evaluate("document.documentElement.scrollWidth") == 320
    named = "e => e.ariaLabel || e.textContent.trim() || e.labels?.[0]?.textContent.trim()"
    parts = "button, input, select, #board"
    assert all(page.locator(parts).evaluate_all(f"all => all.map({named})"))
    small = "all => all.filter(e => e.getBoundingClientRect().height < 40).length"
    assert page.locator("button").evaluate_all(small) == 0
