"""The playground in a real browser: Debian's Chromium, driven by playwright."""

import numpy as np
import pytest

from rrl_tf.envs import DoorKeyStart, doorkey_task, make_doorkey
from rrl_tf.export import export_recurrent_policy
from rrl_tf.models import RecurrentQNetwork
from rrl_tf.pretrained import pretrained_folder

pytestmark = pytest.mark.tf_only
SMALL = DoorKeyStart(size=5, wall=2, door=2, key=(1, 3), agent=(1, 1), direction=0)
LARGE = DoorKeyStart(size=8, wall=4, door=3, key=(2, 6), agent=(1, 2), direction=3)
FASTEST = "document.getElementById('speed').value = 4"


def export_slots(base):
    """Export a policy whose memory slots attend to the cells of the view."""
    task = doorkey_task((5,))
    network = RecurrentQNetwork.from_preset(
        "relational-memory-entities",
        task.preprocessor,
        num_actions=5,
        core_arguments={"mem_slots": 3, "head_size": 4, "num_heads": 2},
    )
    network.build({"observation": (None, *task.preprocessor.shape)})
    details = {"environment": task.name, "action_names": list(task.action_names)}
    export_recurrent_policy(base, network, task.preprocessor, (7, 7, 4), details=details)


@pytest.fixture(scope="module")
def server(tools, exported, tmp_path_factory):
    """A server of policies of all kinds, and of one for another environment."""
    names = ("doorkey-5x5", "doorkey-8x8", "dt-doorkey")
    presets = {name: pretrained_folder(name) / "policy" for name in names}
    presets["slots"] = tmp_path_factory.mktemp("slots")
    export_slots(presets["slots"])
    models = [
        f'config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }}'
        for name, path in (presets | {"tiny": exported}).items()
    ]
    file = tmp_path_factory.mktemp("page") / "models.txt"
    file.write_text(f"model_config_list {{ {' '.join(models)} }}")
    with tools.serve("", model_config_file=str(file), playground=True) as running:
        yield running


@pytest.fixture
def visit(open_page, server):
    """Function that opens the page on a level."""

    def visit(start=SMALL, model="doorkey-5x5", **options):
        cells = {name: "{},{}".format(*getattr(start, name)) for name in ("key", "agent")}
        level = "&".join(f"{name}={value}" for name, value in (vars(start) | cells).items())
        address = f"http://127.0.0.1:{server.rest_port}/playground/#model={model}&{level}"
        return open_page(address, "#problem:not([hidden]), .action.chosen", **options)

    return visit


def status(page, text):
    page.get_by_text(text).wait_for(timeout=60_000)
    return page.inner_text("#status")


def steps_of_session(server, start):
    """Return the number of steps of the recurrent policy, played from Python."""
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


def steps_of_window(server, target):
    """Return the number of steps of the Decision Transformer, played from Python."""
    from serving.client import connect
    from serving.sessions import WindowSession

    env = make_doorkey(SMALL.size, observation="compass")
    observation, _ = env.reset(options={"start": SMALL})
    reward, steps, over = 0.0, 0, False
    with connect(f"http://127.0.0.1:{server.rest_port}", "dt-doorkey") as client:
        session = WindowSession(client, target)
        while not over:
            action = session.act(observation, reward)
            observation, reward, terminated, truncated, _ = env.step(action)
            steps, over = steps + 1, terminated or truncated
    assert terminated
    return steps


def slots_scores(server):
    """Return the attention of the memory slots in the first step."""
    from serving.client import connect
    from serving.sessions import MemorySession

    observation, _ = make_doorkey(SMALL.size, observation="compass").reset(options={"start": SMALL})
    with connect(f"http://127.0.0.1:{server.rest_port}", "slots") as client:
        _, scores = MemorySession(client).act(observation, return_attention_scores=True)
    return scores["block_1"]


def test_the_policy_plays_to_the_goal(visit):
    page = visit()
    page.evaluate(FASTEST)
    page.click("#play")
    solved = status(page, "Solved:")
    assert solved.startswith("Solved: goal reached after ")
    page.locator("#play:text('Replay')").wait_for()  # the whole episode; there is no further step
    assert page.locator("#step").is_disabled()
    steps = int(page.get_attribute("#time", "max"))
    assert f"after {steps} steps" in solved
    page.fill("#time", f"{steps - 1}")  # one step before the goal
    page.get_by_text(f"Step {steps - 1} of {steps}").wait_for()
    assert "door open" in status(page, "Agent in column")
    page.fill("#time", f"{steps}")
    assert status(page, "Solved:") == solved
    page.click("#play")  # replays the episode
    page.get_by_text("Agent in column").wait_for()
    assert status(page, "Solved:") == solved
    page.click("#restart")
    assert page.inner_text("#play") == "Play"
    assert status(page, "Agent in column").startswith("Agent in column 1, row 1, facing right")


def test_bars_show_differences_from_the_best_q_value(visit):
    page = visit()
    values = np.array([float(text) for text in page.locator(".value").all_inner_texts()])
    width = "all => all.map(e => parseFloat(e.style.width))"
    bars = np.array(page.locator(".action .bar").evaluate_all(width))
    assert bars.max() == 100 and bars.min() == 0  # although the values differ by a sixth
    below = values.max() - values
    np.testing.assert_allclose(bars, 100 * (1 - below / below.max()), atol=2)
    hint = page.inner_text("#actions-hint")
    scale = float(hint.partition("an empty bar is ")[2].split()[0])
    assert scale == pytest.approx(below.max(), abs=1.1e-3)  # rounded
    label = page.locator(".action").nth(int(values.argmin())).get_attribute("aria-label")
    assert float(label.split()[-4]) == scale
    page.locator(".action.chosen[aria-label*='0.000 below the best']").wait_for()


@pytest.mark.parametrize("model", ["doorkey-5x5", "doorkey-8x8", "dt-doorkey"])
def test_a_phone_shows_grid_and_values_on_one_screen(visit, model):
    page = visit(LARGE, model, width=390, height=844, has_touch=True)
    parts = page.locator("#board, #play, .action")
    assert parts.count() == 2 + 5
    for part in parts.all():
        box = part.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
        assert box["y"] >= 0 and box["y"] + box["height"] <= 844
    assert page.locator("#board").bounding_box()["width"] >= 280


def test_a_recurrent_policy_plays_like_a_session(visit, server):
    page = visit(LARGE, "doorkey-8x8")
    page.evaluate(FASTEST)
    page.click("#play")
    steps = steps_of_session(server, LARGE)
    assert f"after {steps} steps" in status(page, "Solved:")


def test_keys_and_buttons_act_and_rewind(visit):
    page = visit()
    page.focus("#board")
    for key in ("ArrowRight", "ArrowUp", " "):  # turns down, walks, picks up
        page.keyboard.press(key)
    assert "row 2, facing down; key carried; door locked" in status(page, "key carried")
    page.click("text=Turn left")
    page.keyboard.press("Enter")
    assert "facing right; key carried; door open" in status(page, "door open")
    page.click("#back")
    assert "door locked" in status(page, "Step 4 of 5") and page.input_value("#time") == "4"
    page.fill("#time", "2")
    assert "key in column 1, row 3" in status(page, "Step 2 of 5")
    page.wait_for_selector(".action.chosen")
    page.click("#step")  # later steps are dropped
    assert "key carried" in status(page, "Step 3 of 3")


BOARDS = """() => {
  window.boards = 0;
  const count = () => window.boards++;
  new MutationObserver(count).observe(document.getElementById("board"), { childList: true });
  window.timer = window.setTimeout;
  window.setTimeout = () => 0; // no reply is late
}"""


def test_a_moment_is_drawn_once_unless_its_reply_is_late(visit):
    page = visit()
    page.evaluate(BOARDS)
    for moves in range(1, 4):
        page.click("#step")
        page.get_by_text(f"Step {moves} of {moves}").wait_for()
        page.wait_for_selector(".action.chosen")
    assert page.evaluate("() => window.boards") == 3
    page.evaluate("() => { window.setTimeout = window.timer; }")
    waiting = []
    page.route("**:predict", lambda route: waiting.append(route))
    page.focus("#board")
    page.keyboard.press("ArrowRight")
    page.get_by_text("Step 4 of 4").wait_for()  # before the reply
    assert page.evaluate("() => window.boards") == 4
    for route in waiting:
        route.continue_()
    page.wait_for_selector(".action.chosen")


def test_attention_follows_the_pointer(visit):
    page = visit()
    heads = page.locator(".head")
    heads.nth(3).wait_for()
    assert heads.count() == 4
    label = heads.first.get_attribute("aria-label")
    assert "cell 4,7 of the view" in label  # the agent's cell
    heads.first.focus()
    page.keyboard.press("ArrowLeft")
    assert "cell 3,7 of the view" in heads.first.get_attribute("aria-label")
    page.focus("#board")
    assert heads.first.get_attribute("aria-label") == label
    box = page.locator("#board").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)  # the door
    assert "cell 5,6 of the view" in heads.first.get_attribute("aria-label")


def test_a_decision_transformer_reaches_the_target_return(visit, server):
    page = visit(model="dt-doorkey")
    assert page.inner_text("#actions-title") == "Probabilities"
    assert float(page.input_value("#target")) > 0.9  # the best return in its data
    assert page.locator("#slots .head").count() == 0
    page.focus("#target")
    page.keyboard.press("Home")
    page.get_by_text("Return so far 0.00, remaining target 0.00.").wait_for()
    page.fill("#target", "0.95")
    page.get_by_text("remaining target 0.95").wait_for()
    page.evaluate(FASTEST)
    page.click("#play")
    said = status(page, "Solved:")
    assert f"after {steps_of_window(server, 0.95)} steps" in said
    earned = float(said.rpartition("reward ")[2].rstrip("."))
    assert f"Return so far {earned:.2f}, remaining target {0.95 - earned:.2f}." in page.inner_text(
        "#earned"
    )


def test_the_newest_view_is_the_default_query(visit):
    page = visit(model="dt-doorkey")
    page.locator("#heads .head").first.wait_for()
    label = page.locator("#heads .head").first.get_attribute("aria-label")
    assert "view now attends most" in label
    page.locator("#heads .head").first.focus()
    page.keyboard.press("ArrowUp")
    label = page.locator("#heads .head").first.get_attribute("aria-label")
    assert "return now attends most" in label and label.endswith("100 %, to return now")


def test_the_page_shows_the_size_of_the_training_levels(visit):
    page = visit(model="dt-doorkey")
    assert page.inner_text("#trained") == "trained for 5 × 5"
    page.select_option("#size", "16")
    page.get_by_text("Step 0 of 0").wait_for()
    assert page.inner_text("#trained") == "trained for 5 × 5"
    page.select_option("#model", "doorkey-8x8")
    page.get_by_text("trained for 8 × 8").wait_for()
    assert page.inner_text("#model-name") == ""  # the list of models shows it
    page.select_option("#model", "tiny")
    page.get_by_text("not a DoorKey policy").wait_for()
    assert page.inner_text("#trained") == ""


@pytest.mark.parametrize("width", [320, 700, 1100])
def test_row_names_align_with_their_rows(visit, width):
    page = visit(model="dt-doorkey", width=width)
    page.locator("#heads .head").first.wait_for()
    names = page.locator("#heads .head").first.locator(".names span")
    assert names.all_inner_texts() == ["return", "view", "action"]
    size = "e => getComputedStyle(e).fontSize"
    assert names.first.evaluate(size) == page.locator(".caption").first.evaluate(size)
    rows = page.locator("#heads .points").first.bounding_box()
    for i, name in enumerate(names.all()):
        box = name.bounding_box()
        middle = rows["y"] + (i + 0.5) * rows["height"] / 3
        assert abs(box["y"] + box["height"] / 2 - middle) < 3


def test_each_memory_slot_shows_its_attention(visit, server):
    page = visit(model="slots")
    heads = page.locator("#slots .head")
    heads.nth(1).wait_for()
    assert heads.count() == 2 and page.locator("#heads .head").count() == 4
    scores = slots_scores(server)  # (H, 3 + 50, 3 + 50)
    for slot in range(3):
        for number in range(2):
            share = f"{round(100 * scores[number, slot].max())} %"
            label = heads.nth(number).get_attribute("aria-label")
            assert label.startswith(f"block 1, head {number + 1}: slot {slot + 1} attends most")
            assert share in label
        heads.first.focus()
        page.keyboard.press("ArrowDown")
    text = page.locator("#slots .points").first
    assert text.locator(".attention").count() == 3 * (3 + 1 + 1)


def test_the_editor_places_pieces_and_rejects_invalid_cells(visit):
    page = visit()
    page.click("#editor summary")

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
    assert "facing down" in status(page, "facing down")
    page.check("input[value=agent]")
    page.focus("#board")
    for key in ("ArrowLeft", "ArrowDown", "ArrowDown", "Enter"):  # starts at the door's cell
        page.keyboard.press(key)
    assert "Agent in column 1, row 3" in status(page, "Agent in column 1, row 3")


def test_a_model_of_another_environment_shows_a_problem(visit):
    page = visit(model="tiny")
    said = page.inner_text("#problem")
    assert "“tiny” is not a DoorKey policy" in said and said.endswith("You can still play.")
    page.click("text=Turn left")
    assert "facing up" in status(page, "facing up") and page.locator("#play").is_disabled()


def test_a_server_that_stopped_shows_a_problem(browser, server):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.rest_port}/playground/")
    page.wait_for_selector(".action.chosen")
    parts = "document.querySelectorAll('.action .track, .action .value, #heads')"
    opacity = f"[...{parts}].map(part => getComputedStyle(part).opacity)"
    assert page.evaluate(opacity) == ["1"] * (2 * 5 + 1)
    values = page.locator(".value").all_inner_texts()
    context.set_offline(True)
    page.click("#step")
    page.get_by_text("The server does not respond. Dimmed values are out of date.").wait_for()
    page.wait_for_function(f"() => {opacity}.every(value => value < 0.5)")
    assert page.locator(".value").all_inner_texts() == values
    context.set_offline(False)
    page.click("#step")
    page.locator("#problem").wait_for(state="hidden")
    page.wait_for_function(f"() => {opacity}.every(value => value == 1)")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_whole_page_with_labels(visit, scheme, usable_on_a_phone):
    page = visit(width=320, color_scheme=scheme, has_touch=True)
    page.locator(".head").nth(3).wait_for()
    page.tap("#editor summary")
    usable_on_a_phone(page, "#board")
