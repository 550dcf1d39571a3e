"""The public names of `rrl_tf.data`, and lazy loading."""

import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

import rrl_tf.data

pytestmark = pytest.mark.tf_only


def test_all_public_names_are_defined():
    modules = {module.name for module in pkgutil.iter_modules(rrl_tf.data.__path__)}
    for name in modules:  # an imported submodule must not shadow a public name
        importlib.import_module(f"rrl_tf.data.{name}")
    for name in rrl_tf.data.__all__:
        found = getattr(rrl_tf.data, name)
        assert found.__module__.startswith("rrl_tf.data.") and found.__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rrl_tf.data.nothing


LIGHT = """
import sys
from rrl_tf.offline import Episode, Windows, load_episodes, record_episodes
assert not {"tensorflow", "keras"} & sys.modules.keys(), "loaded"
"""


def test_episodes_and_windows_need_no_tensorflow():
    subprocess.run([sys.executable, "-c", LIGHT], check=True, env={**os.environ, "PYTHONPATH": "."})
