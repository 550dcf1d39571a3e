"""What the tests of all `fit` scripts do alike."""

import contextlib

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
