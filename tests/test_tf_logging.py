"""Loading TensorFlow without its messages on standard error."""

import os
import subprocess
import sys

LOADED = """
import os, sys, types
from rrl_tf._tf_logging import load_tensorflow

class Loader:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            os.system("echo noise >&2")  # as C++ does
            sys.modules[name] = types.ModuleType(name)
            raise ImportError("the import failed")

sys.meta_path.insert(0, Loader())
try:
    load_tensorflow()
except ImportError as error:
    print(error)
    print("later message", file=sys.stderr)
"""


def loaded(**options):
    command = [sys.executable, "-c", LOADED]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **options)


def test_loading_hides_messages_and_later_ones_are_shown():
    run = loaded(stderr=subprocess.PIPE)
    assert (run.stdout, run.stderr) == ("the import failed\n", "later message\n")


def test_loading_works_without_standard_error():
    run = loaded(preexec_fn=lambda: os.close(2))
    assert run.stdout.startswith("the import failed\n")


LATER = """
import os, sys
from rrl_tf._tf_logging import quiet_tensorflow

quiet_tensorflow()
assert "tensorflow" not in sys.modules
import tensorflow
print(tensorflow.loaded)
print("later message", file=sys.stderr)
"""


def test_a_later_import_is_quiet_too(tmp_path):
    (tmp_path / "tensorflow.py").write_text("import os; os.system('echo noise >&2'); loaded = 3")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        [sys.executable, "-c", LATER],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert (run.stdout, run.stderr) == ("3\n", "later message\n")
