"""Commands that say nothing of what TensorFlow finds, wherever they run."""

import os
import subprocess
import sys

LOADED = """
import os, sys, types
from rrl_tf._tf_logging import load_tensorflow

class Loader:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            os.system("echo noise >&2")  # from C++, so to say
            sys.modules[name] = types.ModuleType(name)
            raise ImportError("which a failed import says")

sys.meta_path.insert(0, Loader())
try:
    load_tensorflow()
except ImportError as error:
    print(error)
    print("still heard", file=sys.stderr)
"""


def loaded(**options):
    command = [sys.executable, "-c", LOADED]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **options)


def test_loading_tensorflow_prints_nothing():
    run = loaded(stderr=subprocess.PIPE)
    assert (run.stdout, run.stderr) == ("which a failed import says\n", "still heard\n")


def test_tensorflow_loads_without_standard_error():
    run = loaded(preexec_fn=lambda: os.close(2))
    assert run.stdout.startswith("which a failed import says\n")
