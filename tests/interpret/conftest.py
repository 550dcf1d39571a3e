import pytest

from rrl_tf.envs import Task


@pytest.fixture
def open_envs(monkeypatch):
    """Return a list of the environments that tasks create and nobody has closed yet."""
    created, make = [], Task.make_test_env

    def make_recorded(*args, **options):
        env = make(*args, **options)
        monkeypatch.setattr(env, "close", lambda: created.remove(env))
        created.append(env)
        return env

    monkeypatch.setattr(Task, "make_test_env", make_recorded)
    return created
