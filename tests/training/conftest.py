"""Fakes of the services behind the loggers."""

import importlib.machinery
import sys
import types

import pytest


class Fake(types.ModuleType):
    """A package that seems installed; `runs` is id → calls of that run, in order."""

    def __init__(self, name):
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, origin="a test")
        self.runs = {}


class FakeWandb(Fake):
    Error = ConnectionError
    refuses = ""

    def init(self, *, project, name, id, resume, dir, reinit):
        if self.refuses:
            raise self.Error(self.refuses)
        assert (resume, reinit) == ("allow", "finish_previous")
        run = types.SimpleNamespace(id=id or f"id{len(self.runs)}")
        calls = self.runs.setdefault(run.id, [(project, name, dir)])
        run.log = calls.append
        run.define_metric = lambda name, step_metric: calls.append((name, step_metric))
        config = run.config = types.SimpleNamespace()
        config.update = lambda values, allow_val_change: calls.append(values)
        run.finish = lambda: calls.append("finished")
        return run

    def Image(self, array):
        return array.shape

    def Video(self, path, format):
        assert format == "gif"
        return path


@pytest.fixture
def wandb(monkeypatch):
    fake = FakeWandb("wandb")
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return fake


class FakeMlflow(Fake):
    """Like MLflow, it rejects new values of a parameter."""

    MlflowException = RuntimeError

    def __init__(self, name):
        super().__init__(name)
        self.experiments, self.params, self.status = {}, {}, {}
        entities = types.ModuleType("mlflow.entities")
        entities.Param = entities.Metric = lambda *values: values
        self.entities = entities

    def MlflowClient(self):
        return self

    def get_experiment_by_name(self, name):
        known = name in self.experiments
        return types.SimpleNamespace(experiment_id=self.experiments[name]) if known else None

    def create_experiment(self, name):
        self.experiments[name] = f"experiment{len(self.experiments)}"
        return self.experiments[name]

    def create_run(self, experiment_id, run_name):
        run_id = f"id{len(self.runs)}"
        self.runs[run_id], self.params[run_id] = [(experiment_id, run_name)], {}
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id))

    def get_run(self, run_id):
        return types.SimpleNamespace(data=types.SimpleNamespace(params=self.params[run_id]))

    def update_run(self, run_id, status):
        self.status[run_id] = status

    def set_terminated(self, run_id):
        self.status[run_id] = "FINISHED"

    def log_batch(self, run_id, metrics=(), params=()):
        for name, value in params:
            if self.params[run_id].setdefault(name, value) != value:
                raise self.MlflowException("a parameter cannot change")
        self.runs[run_id] += [(name, value, step) for name, value, _, step in metrics]

    def log_dict(self, run_id, values, file):
        self.runs[run_id].append((file, values))

    def log_image(self, run_id, image, key, step):
        self.runs[run_id].append((key, image.shape, step))

    def log_artifact(self, run_id, file, folder):
        self.runs[run_id].append((file, folder))


@pytest.fixture
def mlflow(monkeypatch):
    fake = FakeMlflow("mlflow")
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.setitem(sys.modules, "mlflow.entities", fake.entities)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return fake
