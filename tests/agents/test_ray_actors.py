"""Actors in Ray processes. Tests that need Ray are skipped if it is not installed."""

import csv
import functools
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import types

import gymnasium
import numpy as np
import psutil
import pytest
import shared_runs
import tensorflow as tf

from rrl_tf.agents import (
    DoubleDQN,
    DoubleDQNConfig,
    RayPool,
    Record,
    RolloutStatistics,
    make_loop,
    train_double_dqn,
)
from rrl_tf.agents.actors import RolloutRequest
from rrl_tf.envs import SeededVectorEnv, gymnasium_task
from rrl_tf.errors import InvalidInput
from rrl_tf.models import dense_q_network

pytestmark = pytest.mark.tf_only
with_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray")

ROOT = pathlib.Path(__file__).parents[2]
DOORKEY = {
    **{"num-envs": 4, "learning-starts": 100, "batch-size": 8, "evaluation-episodes": 2},
    **{"log-every": 40, "evaluate-every": 100_000, "checkpoint-every": 400},
}
PATIENCE = 180  # seconds; the machine may be busy


def begin(path, **options):
    """Start `train_doorkey` with two actors in a separate process."""
    options = {**DOORKEY, "runs": path, "name": "run", "actors": 2, **options}
    flags = [f"--{name}={value}" for name, value in options.items()]
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "train_scripts.train_doorkey",
            "--actors=2",
            *flags,
            "--no-jit-compile",
        ],
        cwd=ROOT,
        env=shared_runs.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def end(process):
    """Wait until a process and its children have ended, and return the output."""
    said, _ = process.communicate(timeout=PATIENCE)
    return said


def rows(path):
    file = path / "run" / "metrics.csv"
    if not file.exists():
        return []
    with file.open(newline="") as table:
        return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(table)]


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def actors_of(process):
    """Return the processes of all actors, also of those that are still starting."""
    children = psutil.Process(process.pid).children(recursive=True)
    return [each for each in children if "ActorProcess" in "".join(each.cmdline()[:1])]


def assert_gone(processes):
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
    assert not alive


@with_ray
def test_training_continues_when_an_actor_is_killed(tmp_path):
    process = begin(tmp_path, steps=4000)
    wait_for(lambda: any("train/loss" in row for row in rows(tmp_path)))
    processes = psutil.Process(process.pid).children(recursive=True)
    actors_of(process)[0].send_signal(signal.SIGKILL)
    said = end(process)
    assert process.returncode == 0, said
    assert "worker died" in said  # Ray's message
    last = rows(tmp_path)[-1]
    assert last["step"] == 4000
    assert last["time/actor_restarts"] == 1 and last["time/actor_lag"] > 0
    assert last["train/updates"] == pytest.approx((4000 - 100) / 4, abs=16)
    (checkpoint,) = shared_runs.checkpoints(tmp_path / "run")
    assert checkpoint.name == "0000004000"
    assert (tmp_path / "run" / "export" / "1" / "saved_model.pb").exists()
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["step"] == 4000
    assert_gone(processes)


@with_ray
@pytest.mark.slow
def test_stopped_run_with_actors_resumes(tmp_path):
    process = begin(tmp_path, steps=1_000_000)
    wait_for(lambda: any("train/loss" in row for row in rows(tmp_path)))
    processes = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # like a terminal, also to Ray's processes
    said = end(process)
    assert process.returncode == 128 + signal.SIGINT, said
    assert_gone(processes)
    stopped = rows(tmp_path)[-1]
    (checkpoint,) = shared_runs.checkpoints(tmp_path / "run")
    assert int(checkpoint.name) == stopped["step"]
    steps = int(stopped["step"]) + 200
    process = begin(tmp_path, steps=steps)
    said = end(process)
    assert process.returncode == 0, said
    assert "ray" not in said.replace(str(tmp_path), "").lower()
    assert rows(tmp_path)[-1]["step"] >= steps
    assert rows(tmp_path)[-1]["train/updates"] > stopped["train/updates"]


@with_ray
@pytest.mark.slow
def test_learner_on_two_devices_has_actors(tmp_path):
    fields = {"actors": 2, "updates_per_step": 1.0, "steps": 200}
    subprocess.run(
        [
            sys.executable,
            "tests/shared_runs.py",
            tmp_path,
            f"double_dqn:2:run:{json.dumps(fields)}",
        ],
        cwd=ROOT,
        env={**shared_runs.environment(), "LOGICAL_DEVICES": "2"},
        check=True,
    )
    last = rows(tmp_path)[-1]
    assert last["step"] == 200 and last["train/updates"] > 150 and last["time/actor_lag"] > 0


@with_ray
@pytest.mark.slow
def test_learner_that_is_killed_leaves_no_process(tmp_path):
    process = begin(tmp_path, steps=1_000_000)
    wait_for(lambda: rows(tmp_path))
    processes = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    end(process)
    assert_gone(processes)


class Odd(gymnasium.Env):
    """Environment that cannot be created, raises an error or kills its process, as `kind` says."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, kind):
        if kind == "missing":
            raise ModuleNotFoundError("No module named 'their_games'")
        self.kind = kind

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, "float32"), {}

    def step(self, action):
        if self.kind == "raises":
            raise ZeroDivisionError("in the environment")
        os.kill(os.getpid(), signal.SIGKILL)


def play_odd(kind):
    """Return the finished future of a rollout in `Odd`."""
    network = dense_q_network(2)
    network.build((None, 2))
    agent = DoubleDQN(network, tf.identity, jit_compile=False)
    make_env = functools.partial(make_odd, kind)
    with RayPool(agent, make_env, 1, seed=0) as pool:
        pool.publish(network.get_weights())
        future = pool.submit(0, RolloutRequest(4, np.ones(1, "float32"), None, 0, 0))
        future.exception(timeout=PATIENCE)
        return future


def make_odd(kind, seed):
    return SeededVectorEnv(lambda: Odd(kind), 1, seed % 2**31)


@with_ray
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("missing", "ModuleNotFoundError: No module named 'their_games'"),
        ("raises", "ZeroDivisionError: in the environment"),
        ("dies", "ConnectionError: An actor could not start, or failed"),
    ],
)
def test_error_of_an_actor_is_raised_in_the_learner(kind, error):
    """Use a separate process, because pytest turns warnings of libraries into errors here."""
    code = f"import test_ray_actors as t; t.play_odd({kind!r}).result()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**shared_runs.environment(), "PYTHONPATH": os.pathsep.join(_search_path())},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and error in done.stderr


def _search_path():
    here = pathlib.Path(__file__).parent
    return [str(here), shared_runs.environment()["PYTHONPATH"], *sys.path]


@with_ray
def test_environment_that_cannot_be_pickled_is_rejected():
    lock = threading.Lock()
    network = dense_q_network(2)
    network.build((None, 2))
    agent = DoubleDQN(network, tf.identity, jit_compile=False)
    with pytest.raises(InvalidInput, match=r"task and a network that can be pickled.*lock"):
        RayPool(agent, lambda seed: lock, 1, seed=0)


def train(path, **changes):
    task = gymnasium_task("CartPole-v1")
    config = DoubleDQNConfig(runs=str(path), name="run", **{"actors": 2, **changes})
    return train_double_dqn(task, dense_q_network(task.num_actions), config)


def test_without_ray_there_is_one_clear_error_and_no_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        InvalidInput, match=r"package ray, which is not installed. Use pip install '\.\[ray\]'"
    ):
        train(tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("actors", [0, -1])
def test_number_of_actors_must_be_positive(actors):
    with pytest.raises(InvalidInput, match=f"`actors` must be greater than 0; received {actors}"):
        DoubleDQNConfig(actors=actors)


def test_gauges_of_actors_are_logged():
    statistics = RolloutStatistics()
    for lag, restarts in ((3, 0), (5, 2)):
        gauges = {"actor_lag": lag, "actor_restarts": restarts}
        statistics.add(Record(16, 4, 4, 0.5, [], {}, 1.0, gauges))
    averages = statistics.averages()
    assert averages["time/actor_lag"] == 5 and averages["time/actor_restarts"] == 2


def test_actors_with_several_hosts_are_rejected():
    task = gymnasium_task("CartPole-v1")
    network = dense_q_network(task.num_actions)
    hosts = types.SimpleNamespace(count=1, hosts=2)
    with pytest.raises(InvalidInput, match=r"only be used on one host.*; received 2 hosts"):
        make_loop(task, network, DoubleDQNConfig(actors=2), hosts)


def test_run_without_actors_needs_no_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    task = gymnasium_task("CartPole-v1")
    loop = make_loop(task, dense_q_network(task.num_actions), DoubleDQNConfig(num_envs=2))
    assert loop.collector.num_envs == loop.replay.num_envs == 2
