"""Fixtures for the code in the documentation: a server, input data and short trainings."""

import contextlib
import dataclasses
import functools
import importlib.util
import pathlib
import re
import runpy
import shutil
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from code_blocks import ROOT
from gymnasium.spaces import Box

from rrl_tf import gymnasium_agents
from rrl_tf.agents import RecurrentDoubleDQNConfig
from rrl_tf.agents import train as agents_train
from rrl_tf.data import clean
from rrl_tf.envs import doorkey_task
from rrl_tf.envs.preprocessing import as_float
from rrl_tf.export import export_classifier, export_decision_transformer, export_policy
from rrl_tf.interpret import episode as pictures
from rrl_tf.models import (
    DecisionTransformer,
    PatchAttentionClassifier,
    RelationalQNetwork,
    dense_q_network,
)
from rrl_tf.offline import Scaling
from rrl_tf.pretrained import FOLDER, POLICY
from serving import client, local
from serving.client import connect
from serving.server import running
from serving.server.flags import Flags

TOY = {
    "steps": 96,
    "num_envs": 4,
    "batch_size": 8,
    "learning_starts": 20,
    "updates_per_step": 0.1,
    "evaluate_every": 48,
    "evaluation_episodes": 3,
    "jit_compile": False,
}


def export_doorkey(folder):
    task = doorkey_task()
    network = RelationalQNetwork.from_preset("fast", task.preprocessor, num_actions=5, num_rounds=1)
    export_policy(folder, network, task.preprocessor, (7, 7, 4))


def export_vector(size, folder):
    export_policy(folder, dense_q_network(2), as_float(Box(-1, 1, (size,))), (size,), "float32")


def export_mnist(folder):
    model = PatchAttentionClassifier.from_preset("patch-mnist")
    export_classifier(folder, model, clean, (28, 28))


def export_pendulum(folder):
    model = DecisionTransformer.from_preset(
        "fast", state_size=3, action_size=1, width=8, num_blocks=1, context_length=3
    )
    high, ones = np.full(1, 2.0, "float32"), np.ones(3, "float32")
    scaling = Scaling(0 * ones, ones, 1.0, -high, high)
    export_decision_transformer(folder, model, scaling, (3,), "float32")


MODELS = {
    "doorkey": export_doorkey,
    "doorkey-5x5": functools.partial(shutil.copytree, FOLDER / "doorkey-5x5" / POLICY),
    "doorkey-8x8": functools.partial(shutil.copytree, FOLDER / "doorkey-8x8" / POLICY),
    "cartpole": functools.partial(export_vector, 4),
    "corridor": functools.partial(export_vector, 9),
    "mnist": export_mnist,
    "pendulum": export_pendulum,
}


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder with small, untrained models under the names that the pages use."""
    folder = tmp_path_factory.mktemp("models")
    for name, export in MODELS.items():
        export(folder / name)
    return folder


@pytest.fixture(scope="session")
def addresses(models):
    """Map each address in the pages to the address of a server of these models."""
    config = models / "models.config"
    entries = [
        f'config {{ name: "{name}" base_path: "{models / name}" model_platform: "tensorflow" }}'
        for name in MODELS
    ]
    config.write_text("model_config_list {{ {} }}".format("\n".join(entries)))
    (port,) = local.free_ports(1)
    with running(Flags(model_config_file=str(config), port=0, rest_api_port=port)) as server:
        grpc, rest = f"localhost:{server.grpc_port}", f"localhost:{server.rest_port}"
        yield {
            "localhost:8500": grpc,
            "localhost:8501": rest,
            "localhost:8510": grpc,
            "localhost:8511": rest,
        }


@pytest.fixture
def open_clients(monkeypatch):
    """Close the clients that the pages leave open."""
    with contextlib.ExitStack() as clients:
        monkeypatch.setattr(
            client,
            "connect",
            lambda *args, **kwargs: clients.enter_context(connect(*args, **kwargs)),
        )
        yield


@pytest.fixture
def page_values(tmp_path, open_clients):
    """Map page -> name -> value for the names that the page's blocks use but do not define."""
    for name in ("ca.pem", "me.pem", "me.key", "server.pem", "server.key"):
        (tmp_path / name).write_text("")
    rng = np.random.default_rng(0)
    return {
        "mnist.md": {"images": rng.integers(0, 256, (2, 28, 28), np.uint8)},
        "relational_memory.md": {"sequences": rng.normal(size=(2, 3, 5)).astype("float32")},
    }


@pytest.fixture
def working_directory(tmp_path, monkeypatch, models):
    """A new current folder with an exported policy; modules can be imported from it."""
    modules, environments = set(sys.modules), set(gymnasium.registry)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # started programs import the repository
    (tmp_path / "runs" / "doorkey" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "doorkey" / "demo" / "export").symlink_to(models / "doorkey")
    yield tmp_path
    for name in set(gymnasium.registry) - environments:
        # ale_py registers its environments on import and stays imported, so its
        # environments must stay registered.
        if "ale_py" not in str(gymnasium.registry[name].entry_point):
            del gymnasium.registry[name]
    for name in set(sys.modules) - modules:
        if tmp_path in pathlib.Path(getattr(sys.modules[name], "__file__", None) or "").parents:
            del sys.modules[name]


@pytest.fixture
def short_training(monkeypatch):
    """Trainings in Python use the numbers of `TOY`, and films have at most 3 frames."""
    train = agents_train.train_double_dqn

    @functools.wraps(train)
    def short(task, network, config, **options):
        numbers = TOY
        if isinstance(config, RecurrentDoubleDQNConfig):
            numbers = TOY | {"batch_size": 2, "learning_starts": 96}  # replay samples sequences
            numbers |= {"burn_in": 1, "unroll_length": 2, "n_step": 1}  # each time step is traced
        return train(task, network, dataclasses.replace(config, **numbers), **options)

    # Both modules: one that is first imported now would keep the short training for later tests.
    for module in (agents_train, gymnasium_agents):
        monkeypatch.setattr(module, "train_double_dqn", short)
    monkeypatch.setattr(pictures, "LONGEST_FILM", 3)


@pytest.fixture
def serve_in_process(monkeypatch):
    """`served` in this process, because a separate process takes seconds to start."""

    @contextlib.contextmanager
    def here(export_folder, name):
        (port,) = local.free_ports(1)
        folder = str(pathlib.Path(export_folder).absolute())
        flags = Flags(model_base_path=folder, model_name=name, port=0, rest_api_port=port)
        with running(flags) as server:
            yield f"grpc://127.0.0.1:{server.grpc_port}", f"http://127.0.0.1:{server.rest_port}"

    monkeypatch.setattr(local, "served", here)


class OptionsParsed(BaseException):
    """Raised when a program has parsed its options, so that it does not start its work."""


@pytest.fixture
def read_options(monkeypatch, capsys):
    """Function of a module and arguments that only runs the module's own argument parser."""
    import argparse

    import tyro

    parse_args, cli = argparse.ArgumentParser.parse_args, tyro.cli

    def parse_args_only(*args, **kwargs):
        raise OptionsParsed(parse_args(*args, **kwargs))

    def cli_only(*args, **kwargs):
        outcome = cli(*args, **kwargs)
        if kwargs.get("return_unknown_args") and outcome[1]:
            return outcome  # the program continues and reports the unknown options
        raise OptionsParsed(outcome)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args_only)
    monkeypatch.setattr(tyro, "cli", cli_only)

    def read(module, arguments):
        monkeypatch.setattr(sys, "argv", [module, *arguments])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the module may already be imported
            with pytest.raises((OptionsParsed, SystemExit)) as raised:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
        said = capsys.readouterr().err
        for package in ("torch", "jax"):  # optional backends, may be missing
            wanted = re.search(rf"pip install ('\.\[[\w,]*)?\b{package}\b", said)
            if wanted and importlib.util.find_spec(package) is None:
                pytest.skip(said)
        assert raised.type is OptionsParsed or raised.value.code in (0, None), said

    return read
