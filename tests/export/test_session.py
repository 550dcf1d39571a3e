"""Sessions free their graphs, also at the end of a script."""

import itertools
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.export import SavedModelSession, export_policy

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


def test_the_number_of_callables_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr("rrl_tf.export.session._MOST_CALLABLES", 3)
    module = tf.Module()
    specs = [tf.TensorSpec([None], name="x")]
    module.answer = tf.function(lambda x: {"a": x, "b": x + 1, "c": x + 2}, input_signature=specs)
    tf.saved_model.save(
        module, str(tmp_path), signatures={"first": module.answer, "second": module.answer}
    )
    session = SavedModelSession(tmp_path)
    for signature, size in itertools.product(("first", "second"), (1, 2, 3)):
        for names in itertools.permutations("cab", size):
            answers = session.run(signature, {"x": np.zeros(1, "float32")}, names)
            assert answers == {name: "abc".index(name) for name in names}
            assert list(answers) == list(names)
    assert len(session._callables) <= 2 * (3 + 1)
