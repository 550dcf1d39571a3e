"""Settings of all tests. `KERAS_BACKEND=jax make test` runs them on another backend."""

import contextlib
import functools
import gc
import http.server
import os
import shutil
import threading

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# With one thread, sums have a fixed order: a resumed run equals an uninterrupted run bit for bit.
# It also keeps two test processes from competing for two cores.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
# Tests run a compiled function only a few times: XLA's optimisations cost more than they save.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
)

from rrl_tf._tf_logging import load_tensorflow

if os.environ["KERAS_BACKEND"] == "tensorflow":
    # TensorFlow creates millions of objects, all visited by each garbage collection: run fewer.
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
"""The slowest files. They start first, because one that starts last delays the parallel run."""


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
    """Seed Python, NumPy and Keras, so that a test draws the same numbers when it runs alone.

    TensorFlow's seed is set once per file. Almost nothing uses it, because Keras has separate seed
    generators. Setting it discards all eager kernels, which takes a third of the time of small
    tests.
    """
    import tensorflow as tf  # not before KERAS_BACKEND and the threads are set, above

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.random, "set_seed", lambda seed: None)
        keras.utils.set_random_seed(0)


@pytest.fixture(scope="module")
def few_pictures():
    """Limit a run to three frames and one curve; each takes as long as hundreds of steps."""
    from rrl_tf.interpret import episode as pictures
    from rrl_tf.training import report

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "LONGEST_FILM", 3)
        patch.setattr(report, "CURVES", 1)
        yield


@pytest.fixture
def unfinished(monkeypatch):
    """Skip the final evaluation, figures and export of agent runs, half of their time."""
    from rrl_tf.agents import train

    monkeypatch.setattr(train, "_finish", lambda *_: None)


@pytest.fixture(scope="module")
def browser():
    """Start Debian's Chromium with Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Chromium (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=path, args=["--no-sandbox"])


@pytest.fixture
def open_page(browser):
    """Return a function that opens an address; any console message or page error fails the test."""
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
    """Return a function that checks a page of 320 pixels in width.

    The page must not scroll horizontally, every control needs a name, and buttons need a height of
    40 pixels.
    """

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
    """Return a function that serves a folder over HTTP and returns the address."""

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
