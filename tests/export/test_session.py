"""What is loaded is freed, also at the end of a script."""

import subprocess
import sys

import keras
import pytest

from rrl_tf.export import export_policy

pytestmark = pytest.mark.tf_only

# The order of imports decides in which order the interpreter takes modules apart.
LOAD_AND_ACT = """
import sys
from rrl_tf.export import load_policy
import numpy as np

policy = load_policy(sys.argv[1])
print(policy.act(np.ones(4, "float32")))
"""


def test_a_script_that_loads_a_policy_ends_without_an_exception(tmp_path):
    model = keras.Sequential([keras.layers.Dense(2)])
    folder = export_policy(tmp_path, model, lambda x: x, (4,), "float32")
    command = [sys.executable, "-c", LOAD_AND_ACT, str(folder)]
    script = subprocess.run(command, capture_output=True, text=True, check=True)
    assert script.stdout.strip() in ("0", "1")
    assert "Exception" not in script.stderr  # TensorFlow's greeting may be there
    assert "Instructions for updating" not in script.stderr  # but no notice of a deprecation
