"""What waiting for the playground costs: a move with its attention, its bytes, its start.

    python -m benchmarks speed/playground

In Debian's Chromium (`pip install playwright`, `apt-get install chromium`), with all of it on this
machine:

- a move: from the press on `Step` until Q values and the pictures of all heads are drawn and laid
  out, on the page that a server answers and on the one whose policy runs in the browser, in turns;
- a digit: the same from the press on an example, on the page for digits;
- bytes: heads and bodies of all answers, until the first pictures are there, and for a move;
- the start: from that of `python -m serving.server --preset --playground` until it has answered
  `act_with_attention`;
- the first action: from the start of a process until `load_policy` has given one.

All are times on a clock on the wall.
"""

import contextlib
import dataclasses
import functools
import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import numpy as np

from benchmarks import measure
from benchmarks.report import Report
from benchmarks.speed import serving
from rrl_tf import load_policy
from rrl_tf.errors import InvalidInput
from serving.playground.static_page import write_page

SERVED, STATIC = "served", "without a server"
# A press is over once the pictures are drawn.
PRESS = """async (moves) => {
  const find = (id) => document.getElementById(id);
  const drawn = () => new Promise((done) => {
    const observer = new MutationObserver(() => {
      observer.disconnect();
      document.body.getBoundingClientRect(); // lays them out
      done(performance.now());
    });
    observer.observe(find("heads"), { childList: true, subtree: true });
  });
  const press = async (button) => {
    const begun = performance.now();
    button.click(); // which draws what is there already, before anybody observes
    return (await drawn()) - begun;
  };
  const times = [];
  while (times.length < moves) {
    %s
  }
  return times;
}"""
# A new level at an episode's end isn't counted.
STEP = """if (find("step").disabled) await press(find("new-level"));
    else times.push(await press(find("step")));"""
EXAMPLE = """times.push(await press(find("examples").children[times.length % 10]));"""
RECEIVED = """() => ["navigation", "resource"]
  .flatMap((kind) => performance.getEntriesByType(kind))
  .reduce((sum, entry) => sum + entry.transferSize, 0)"""
FIRST_ACTION = """
import numpy, rrl_tf, time
rrl_tf.load_policy({!r}).act(numpy.zeros((7, 7, 4), "uint8"))
print(time.time())
"""


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured, and how often."""

    presets: tuple[str, ...] = ("doorkey-5x5", "doorkey-8x8", "dt-doorkey", "mnist-relational")
    """Policies that play, and one that reads digits; the first is the one that is started."""
    rounds: int = 10
    """Turns of each page."""
    moves: int = 20
    """Moves in a turn."""
    starts: int = 5
    """Servers that are started, and processes."""


def main(config):
    """Measures the playground in a browser, and how soon a policy answers."""
    with chromium() as browser:
        rows = [row for preset in config.presets for row in played(preset, browser, config)]
        version = browser.version
    first = config.presets[0]
    for what, begin, aim in (
        ("start of the server to its answer", start, 8),
        ("`load_policy` to the first action", first_action, 5),
    ):
        seconds = [begin(first) for _ in range(config.starts)]
        rows.append(row(what, None, first, seconds, "s", aim))
    notes = (
        f"Chromium {version} without a window; {config.rounds} turns of {config.moves} moves, "
        f"{config.starts} starts.",
    )
    return Report("The playground", rows, notes)


def played(preset, browser, config):
    """The lines of one policy's moves and bytes, answered by a server and in the page."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_page(folder / "page", [preset])
        reads = "classify" in load_policy(preset).signatures
        page = "digits.html" if reads else ""
        visits = {
            SERVED: Visit(browser, f"{stack.enter_context(served(preset))}/playground/{page}"),
            STATIC: Visit(browser, f"{stack.enter_context(files_over_http(folder))}/page/{page}"),
        }
        opened = {who: visit.received() for who, visit in visits.items()}
        milliseconds = {who: [] for who in visits}
        for visit in visits.values():
            visit.moves(config.moves)  # warms caches up, and isn't counted
        before = {who: visit.received() for who, visit in visits.items()}
        for _ in range(config.rounds):
            for who, visit in visits.items():
                milliseconds[who] += visit.moves(config.moves)
        moved = {who: visit.received() - before[who] for who, visit in visits.items()}
    rows, (what, aim) = [], ("a digit", 50) if reads else ("a move", 20)
    for who, times in milliseconds.items():
        rows.append(row(f"{what} and its attention", who, preset, times, "ms", aim))
        rows.append(row("transferred to open it", who, preset, [opened[who] / 1e6], "MB", 5))
        each = round(moved[who] / 1e6 / len(times), 3)
        rows.append(row(f"transferred for {what}", who, preset, [each], "MB"))
    return rows


def row(what, page, preset, values, unit, aim=None):
    """A line of the table."""
    return {
        "what": what,
        "page": page,
        "policy": preset,
        "median": measure.median(values),
        "10 to 90 %": measure.spread(np.array(values)) if len(values) > 1 else None,
        "unit": unit,
        "at most": aim,
    }


class Visit:
    """A page in a browser that has stored nothing, opened until its first pictures are there.

    Args:
        browser: playwright's.
        address: of the page.
    """

    def __init__(self, browser, address):
        # The page itself counts its bytes: playwright, told of every request, would slow each down.
        self._page = browser.new_context().new_page()
        self._page.add_init_script("performance.setResourceTimingBufferSize(100000)")
        self._page.goto(address)
        self._page.wait_for_selector("#heads .head")
        self._page.wait_for_load_state("networkidle")

    def moves(self, count):
        """Milliseconds of each of so many moves, or digits."""
        reads = self._page.locator("#examples").count()
        return self._page.evaluate(PRESS % (EXAMPLE if reads else STEP), count)

    def received(self):
        """Bytes of all answers up to now, with their headers."""
        return self._page.evaluate(RECEIVED)


@contextlib.contextmanager
def chromium():
    """Debian's Chromium, driven by playwright.

    Raises:
        InvalidInput: if one of the two is not there.
    """
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        path = None
    if path is None:
        raise InvalidInput(
            "the playground is measured in a browser: pip install playwright, and "
            "apt-get install chromium; received a machine without one of them"
        )
    with sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=path, args=["--no-sandbox"])


@contextlib.contextmanager
def served(preset):
    """A server with the playground, in a process of its own, once it answers; its address."""
    (port,) = serving.free_ports(1)
    command = [sys.executable, "-m", "serving.server", f"--preset={preset}", "--port=0"]
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        flags = (f"--rest_api_port={port}", "--playground")
        with serving.running([*command, *flags], log) as process:
            serving.wait_for(process, lambda: is_ready(address), "the server")
            yield address


def is_ready(address):
    """Whether a server has loaded its models."""
    try:
        with urllib.request.urlopen(f"{address}/readyz"):
            return True
    except urllib.error.URLError:
        return False


def start(preset):
    """Seconds from the start of a server until it has answered what the page asks first."""
    view = {"observation": np.zeros((1, 7, 7, 4), int).tolist()}
    question = json.dumps({"signature_name": "act_with_attention", "inputs": view}).encode()
    begun = time.perf_counter()
    with (
        served(preset) as address,
        urllib.request.urlopen(f"{address}/v1/models/{preset}:predict", question) as answer,
    ):
        json.load(answer)["outputs"]["q_values"]
        return time.perf_counter() - begun


def first_action(preset):
    """Seconds from the start of a process until a policy has said what to do."""
    command = [sys.executable, "-c", FIRST_ACTION.format(preset)]
    begun = time.time()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout) - begun


@contextlib.contextmanager
def files_over_http(folder):
    """Answers with the files of a folder, as any web server does; its address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
