"""Actors of Ray; what needs it is skipped where it is not installed."""

import csv
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

import psutil
import pytest
import shared_runs

from rrl_tf.agents import Record
from rrl_tf.agents.double_dqn_run import DoubleDQNConfig, train_double_dqn
from rrl_tf.agents.loops import make_loop
from rrl_tf.agents.rollout import RolloutStatistics
from rrl_tf.envs import gymnasium_task
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
    """`train_doorkey` with two actors, in a process of its own."""
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
    """What it said; it and its children are gone then."""
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
    """Processes of the actors that have begun to play, or are about to."""
    children = psutil.Process(process.pid).children(recursive=True)
    return [each for each in children if "ActorProcess" in "".join(each.cmdline()[:1])]


def assert_gone(processes):
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
    assert not alive


@with_ray
def test_a_training_goes_on_when_an_actor_is_killed(tmp_path):
    process = begin(tmp_path, steps=4000)
    wait_for(lambda: any("train/loss" in row for row in rows(tmp_path)))
    processes = psutil.Process(process.pid).children(recursive=True)
    actors_of(process)[0].send_signal(signal.SIGKILL)
    said = end(process)
    assert process.returncode == 0, said
    assert "worker died" in said  # Ray tells
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
def test_a_run_that_is_stopped_goes_on(tmp_path):
    process = begin(tmp_path, steps=1_000_000)
    wait_for(lambda: any("train/loss" in row for row in rows(tmp_path)))
    processes = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to Ray's processes, too
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
def test_a_learner_on_two_devices_has_actors(tmp_path):
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
def test_a_learner_that_is_killed_leaves_no_process(tmp_path):
    process = begin(tmp_path, steps=1_000_000)
    wait_for(lambda: rows(tmp_path))
    processes = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    end(process)
    assert_gone(processes)


class Odd:
    """An actor that goes wrong when it plays."""

    def __init__(self, seed):
        self.seed = seed

    def play(self, order, weights):
        if self.seed == 1:
            raise InvalidInput("rewards must be finite; received nan")
        os.kill(os.getpid(), signal.SIGKILL)


def make_odd(seed):
    if seed == 0:
        raise ModuleNotFoundError("No module named 'their_games'")
    return Odd(seed)


@with_ray
def test_what_goes_wrong_in_an_actor_is_told_or_it_is_lost():
    """In a process of its own, as this one turns the warnings of libraries into errors."""
    subprocess.run(
        [sys.executable, "-c", "import test_ray_actors as t; t.play_with_odd_ones()"],
        env={**shared_runs.environment(), "PYTHONPATH": os.pathsep.join(_search_path())},
        check=True,
    )


def _search_path():
    here = pathlib.Path(__file__).parent
    return [str(here), shared_runs.environment()["PYTHONPATH"], *sys.path]


def play_with_odd_ones():
    from rrl_tf.agents.ray_actors import RayLauncher

    with RayLauncher(make_odd, 3) as launcher:
        launcher.publish([])
        for seed in range(3):
            launcher.start(seed, seed)
        futures = [launcher.ask(seed, None) for seed in range(3)]
        with pytest.raises(InvalidInput, match=r"could not begin; .*their_games"):
            launcher.take(futures[0])
        with pytest.raises(InvalidInput, match=r"^rewards must be finite; received nan$"):
            launcher.take(futures[1])
        assert launcher.take(futures[2]) is None
    lock = threading.Lock()
    with pytest.raises(InvalidInput, match=r"task and a network that can be pickled .*lock"):
        RayLauncher(lambda seed: lock, 1)


def train(path, **changes):
    task = gymnasium_task("CartPole-v1")
    config = DoubleDQNConfig(runs=str(path), name="run", **{"actors": 2, **changes})
    return train_double_dqn(task, dense_q_network(task.num_actions), config)


def test_without_ray_there_is_one_clear_error_and_no_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidInput, match=r"actors need ray: pip install '\.\[ray\]'; received a"):
        train(tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("actors", [0, -1])
def test_a_number_of_actors_is_positive(actors):
    with pytest.raises(InvalidInput, match=f"actors must be greater than 0; received {actors}"):
        DoubleDQNConfig(actors=actors)


def test_what_a_record_says_of_its_actors_is_logged_as_it_is_now():
    statistics = RolloutStatistics()
    for lag, restarts in ((3, 0), (5, 2)):
        gauges = {"actor_lag": lag, "actor_restarts": restarts}
        statistics.add(Record(16, 4, 0.5, [], {}, {"wait": 1.0}, gauges))
    averages = statistics.averages()
    assert averages["time/actor_lag"] == 5 and averages["time/actor_restarts"] == 2
    assert averages["time/wait_share"] == 1.0


def test_several_hosts_have_no_actors():
    task = gymnasium_task("CartPole-v1")
    network = dense_q_network(task.num_actions)
    hosts = types.SimpleNamespace(count=1, hosts=2)
    with pytest.raises(InvalidInput, match=r"a learner on one host.*; received 2 hosts"):
        make_loop(task, network, DoubleDQNConfig(actors=2), hosts)


def test_who_has_no_actors_needs_no_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    task = gymnasium_task("CartPole-v1")
    loop = make_loop(task, dense_q_network(task.num_actions), DoubleDQNConfig(num_envs=2))
    assert loop.env.num_envs == loop.replay.num_envs == 2
