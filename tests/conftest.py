"""Settings of all tests. `KERAS_BACKEND=jax make test` runs them on another backend."""

import contextlib
import functools
import gc
import http.server
import os
import shutil
import threading

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# One thread a test process: sums come out in one order, so that a resumed run can be held against
# one that was not stopped, bit by bit; and two processes do not fight over two cores.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
# What is compiled here runs a few times: XLA's optimisations take longer than they save.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
)

from rrl_tf._tf_logging import load_tensorflow

if os.environ["KERAS_BACKEND"] == "tensorflow":
    # Its modules and graphs are millions of objects, which the collector looks through each time.
    gc.set_threshold(10_000)
    load_tensorflow()

import keras
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "rrl_tf",
    deadline=None,
    derandomize=True,
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("rrl_tf")


LONGEST = (
    "docs/test_code_blocks.py",
    "test_conformance.py",
    "train_scripts/test_train_doorkey.py",
    "docs/test_docstrings.py",
    "offline/test_decision_transformer.py",
    "serving/client/test_memory_sessions.py",
)
"""The files that take longest: they begin first, so that no process is left with one of them."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.partition("::")[0].endswith(LONGEST))
    if keras.backend.backend() == "tensorflow":
        return
    skip = pytest.mark.skip(reason=f"needs TensorFlow, not {keras.backend.backend()}")
    for item in items:
        if "tf_only" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True, scope="module")
def _seed_of_tensorflow():
    keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def _seed():
    """Seeds Python, NumPy and Keras: what is drawn in a test is the same without those before it.

    TensorFlow's own seed is set once a file. Hardly anything draws by it, as Keras keeps seeds of
    its own, and to set it drops all kernels of eager operations: a third of small tests' time.
    """
    import tensorflow as tf  # not before KERAS_BACKEND and the threads are set, above

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.random, "set_seed", lambda seed: None)
        keras.utils.set_random_seed(0)


@pytest.fixture(scope="module")
def few_pictures():
    """Trainings that draw three frames and one curve: each takes as long as hundreds of steps."""
    from rrl_tf.interpret import episode as pictures
    from rrl_tf.training import report

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "LONGEST_FILM", 3)
        patch.setattr(report, "CURVES", 1)
        yield


@pytest.fixture
def unfinished(monkeypatch):
    """End runs of agents without the final evaluation, figures and export: half of the time."""
    from rrl_tf.agents import train

    monkeypatch.setattr(train, "_finish", lambda *_: None)


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium, driven by playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Chromium (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=path, args=["--no-sandbox"])


@pytest.fixture
def open_page(browser):
    """Opens an address; in the end nothing may stand in the browser's console."""
    said, contexts = [], []

    def open_page(address, wait_for, width=1100, height=800, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address)
        page.wait_for_selector(wait_for)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


@pytest.fixture
def usable_on_a_phone():
    """Checks that a page of 320 pixels is shown whole, and that all has a name and room."""

    def check(page, *more):
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        named = "e => e.ariaLabel || e.textContent.trim() || e.labels?.[0]?.textContent.trim()"
        parts = page.locator(", ".join(("button, input, select", *more)))
        assert all(parts.evaluate_all(f"all => all.map({named})"))
        small = "all => all.filter(e => e.getBoundingClientRect().height < 40).length"
        assert page.locator("button:visible").evaluate_all(small) == 0

    return check


@pytest.fixture
def web_server():
    """Serves the files of a folder over HTTP; called with the folder, it returns the address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    @contextlib.contextmanager
    def serve(folder):
        handler = functools.partial(Handler, directory=str(folder))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_address[1]}"
            server.shutdown()

    with contextlib.ExitStack() as servers:
        yield lambda folder: servers.enter_context(serve(folder))
