"""What the tests of all `fit` scripts do alike."""

import contextlib
import sys

import pytest


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
