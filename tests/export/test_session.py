"""Sessions free their graphs, also at the end of a script."""

import itertools
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.export import SavedModelSession, export_policy

pytestmark = pytest.mark.tf_only

# The order of imports determines the order in which the interpreter clears modules at exit.
LOAD_AND_ACT = """
import sys
import time
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
    assert "Exception" not in script.stderr  # TensorFlow may log other lines
    assert "Instructions for updating" not in script.stderr  # no deprecation warning


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


@pytest.mark.parametrize(("number", "runs_elsewhere"), [(0, False), (1, False), (4, True)])
def test_operations_run_in_parallel_if_the_configuration_says_so(tmp_path, number, runs_elsewhere):
    """Without a thread pool, the calling thread runs the operations; with one, it waits."""

    def products(x):
        return {"y": tf.linalg.matmul(x, x) + tf.linalg.matmul(x, x, transpose_a=True)}

    spec = tf.TensorSpec([1000, 1000], name="x")
    tf.saved_model.save(
        tf.Module(), str(tmp_path), signatures=tf.function(products, input_signature=[spec])
    )
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
    config.inter_op_parallelism_threads = number
    session = SavedModelSession(tmp_path, config=config)
    ones = np.ones((1000, 1000), "float32")
    session.run("serving_default", {"x": ones})
    own, everything = time.thread_time(), time.process_time()
    session.run("serving_default", {"x": ones})
    own, everything = time.thread_time() - own, time.process_time() - everything
    assert (own < everything / 2) == runs_elsewhere
