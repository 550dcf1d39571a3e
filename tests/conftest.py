"""Settings of all tests. `KERAS_BACKEND=jax make test` runs them on another backend."""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# One thread a test process: sums come out in one order, so that a resumed run can be held against
# one that was not stopped, bit by bit; and two processes do not fight over two cores.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
# What is compiled here runs a few times: XLA's optimisations take longer than they save.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
)

from rrl_tf.quiet import load_tensorflow

if os.environ["KERAS_BACKEND"] == "tensorflow":
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


def pytest_collection_modifyitems(items):
    if keras.backend.backend() == "tensorflow":
        return
    skip = pytest.mark.skip(reason=f"needs TensorFlow, not {keras.backend.backend()}")
    for item in items:
        if "tf_only" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _seed():
    keras.utils.set_random_seed(0)


@pytest.fixture(scope="module")
def short_films():
    """Trainings that draw three frames of an episode: each takes as long as hundreds of steps."""
    from rrl_tf.training import pictures

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "LONGEST_FILM", 3)
        yield
