"""What the tests of all `fit` scripts do alike."""

import contextlib
import os
import sys

import pytest


@pytest.fixture(scope="session")
def without_tensorflow(tmp_path_factory):
    """The environment of a process that needs no TensorFlow, and does not take seconds to load it.

    `import tensorflow` finds an empty module there.
    """
    folder = tmp_path_factory.mktemp("modules")
    (folder / "tensorflow.py").touch()
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), *filter(None, [path])))}


@pytest.fixture
def killed_at(monkeypatch):
    """Context manager in which `fit` dies after so many batches, as if the process were killed."""
    from rrl_tf.training import LogMetrics

    class Killed(BaseException):
        pass

    @contextlib.contextmanager
    def killing(step):
        def kill(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == step:
                raise Killed

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(LogMetrics, "on_train_batch_end", kill)
            yield

    return killing


@pytest.fixture
def refusal(tmp_path, monkeypatch, capsys):
    """Function of a script, its default preset and arguments → the one line that refuses them.

    Nothing is written meanwhile.
    """
    from train_scripts import command_line

    def refused(script, default, *arguments):
        runs = tmp_path / "runs"
        monkeypatch.setattr(sys, "argv", [script.__name__, f"--runs={runs}", *arguments])
        with pytest.raises(SystemExit) as ended:
            command_line.run_preset(script.main, script.PRESETS, default)
        assert ended.value.code not in (0, None)
        said = capsys.readouterr().err.strip()
        assert "\n" not in said and not runs.exists()
        return said

    return refused
