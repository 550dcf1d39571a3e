"""Fixtures of the tests of training scripts."""

import contextlib
import os
import sys

import pytest


@pytest.fixture(scope="session")
def without_tensorflow(tmp_path_factory):
    """Return the environment of a process in which `import tensorflow` finds an empty module."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "tensorflow.py").touch()
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), *filter(None, [path])))}


@pytest.fixture
def killed_at(monkeypatch):
    """Return a context manager in which `fit` is killed after some batches."""
    from rrl_tf.training import LogMetrics

    class Killed(BaseException):
        pass

    @contextlib.contextmanager
    def killing(step):
        counted = LogMetrics.on_train_batch_end

        def kill(self, batch, logs=None):
            counted(self, batch, logs)
            if int(self.model.optimizer.iterations) == step:
                raise Killed

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(LogMetrics, "on_train_batch_end", kill)
            yield

    return killing


@pytest.fixture
def rejected(tmp_path, monkeypatch, capsys):
    """Return a function that runs a script, checks that it fails, and returns the error message.

    The function also checks that the script writes no run folder.
    """
    from train_scripts import command_line

    def reject(script, default, *arguments):
        runs = tmp_path / "runs"
        monkeypatch.setattr(sys, "argv", [script.__name__, f"--runs={runs}", *arguments])
        monkeypatch.setenv("COLUMNS", "1000")  # no wrapped lines of tyro and argparse
        with pytest.raises(SystemExit) as ended:
            command_line.run_preset(script.main, script.PRESETS, default)
        assert ended.value.code not in (0, None) and not runs.exists()
        return capsys.readouterr().err

    return reject
