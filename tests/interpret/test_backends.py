"""TensorFlow and JAX give the same results."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
from code_blocks import ROOT
from interpreted_networks import agent, states
from recurrent_networks import sequences, shared

from rrl_tf.interpret import ablate, attributions, patch, removal_curves, trace

FEW_STEPS = "ignore:integrated gradients"
ON_JAX = """
import sys
import numpy as np
from test_backends import results

np.savez(sys.argv[1], **results())
"""


def results():
    model, x, other = agent(unseen_feature=0), states(), states(seed=1)
    step = {name: value[:, 0] for name, value in sequences().items()}
    found = {"patched": patch(model, x, other).after, "ablated": ablate(model, x).after}
    found |= attributions(model, x, steps=16)
    found |= removal_curves(model, x, found["rollout"], points=3, draws=1).curves
    recurrent = shared("relational-memory-entities")
    found |= trace(recurrent, step)
    return found | {"of a step": ablate(recurrent, step).after}


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
@pytest.mark.filterwarnings(FEW_STEPS)
def test_results_are_equal_on_jax(tmp_path):
    file = tmp_path / "jax.npz"
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "interpret")))
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": paths}
    command = [sys.executable, "-W", FEW_STEPS, "-c", ON_JAX, str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(file) as found:
        for name, expected in results().items():
            np.testing.assert_allclose(found[name], expected, atol=1e-4, err_msg=name)
