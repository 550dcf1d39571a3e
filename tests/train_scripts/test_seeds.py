"""`--seeds` trains in child processes, stops them with a checkpoint and draws their curves."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from rrl_tf.training import MetricsLog, RunConfig
from train_scripts import seeds

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
import dataclasses, signal, time
from rrl_tf.training import RunConfig
from train_scripts import command_line

@dataclasses.dataclass(frozen=True)
class Config(RunConfig):
    steps: int = 3

def main(config):
    '''Does it.'''
    {body}

command_line.run(main, Config)
"""
LEARN = """
    from rrl_tf.training import MetricsLog
    assert config.seed != 7, "seven"
    log = MetricsLog(config.path, loggers=())
    for step in (1, 2):
        log.write(step, {"eval/success": step * config.seed / 10})
"""
WAIT = """
    received = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: received.append(number))
    print("begun", flush=True)
    while not received:
        time.sleep(0.01)
    time.sleep(0.3)  # for a second signal
    print("received", *received)
"""


def start(tmp_path, body, *arguments):
    (tmp_path / "script.py").write_text(SCRIPT.replace("{body}", body))
    return subprocess.Popen(
        [sys.executable, "script.py", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.tf_only
@pytest.mark.slow
def test_several_seeds_train_in_their_own_folders_and_are_drawn(tmp_path):
    done = start(tmp_path, LEARN, "--seeds", "1", "3", "--jobs", "2", "--name=mine", "--steps=2")
    said, errors = done.communicate()
    assert done.returncode == 0, errors
    assert "eval/success at step 2: 0.2, 0.6; mean 0.4, 0.2 to 0.6 over 2 seeds" in said
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    logs = {f"mine-seed{seed}{suffix}" for seed in (1, 3) for suffix in ("", ".log")}
    assert names == {*logs, "mine-seeds-1-3.png"}
    failed = start(tmp_path, LEARN, "--seeds", "7")
    _, errors = failed.communicate()
    assert failed.returncode == 1
    assert errors.endswith("error: --seed=7 --name= failed: AssertionError: seven\n")
    _, errors = start(tmp_path, LEARN, "--seeds", "1", "1").communicate()
    assert "`seeds` distinct; received 1 and (1, 1)" in errors


@pytest.mark.tf_only
def test_curves_are_of_a_metric_in_every_log(tmp_path, monkeypatch, capsys):
    runs = [RunConfig(runs=str(tmp_path), seed=seed) for seed in range(2)]
    monkeypatch.setattr(seeds, "_train", lambda *_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    logs = [MetricsLog(run.path, loggers=()) for run in runs]
    logs[0].write(1, {"eval/success": 0.5})
    logs[1].write(1, {"rollout/return": 0.5})
    assert seeds.train_seeds(runs[0], (0, 1), 1) is None
    assert "no figure: not every log has" in capsys.readouterr().out
    for log in logs:
        log.write(2, {"train/loss": 0.5})
    assert seeds.train_seeds(runs[0], (0, 1), 1).exists()
    assert "train/loss at step 2: 0.5, 0.5" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_children_receive_one_signal_when_a_terminal_interrupts_or_closes(tmp_path, number):
    """After a second signal, a run stops without a checkpoint."""
    deadline, log = time.monotonic() + 300, tmp_path / "runs" / "run-seed1.log"
    # A process inherits ignored signals: SIGHUP of `nohup`, SIGINT of a shell's background job.
    previous = signal.signal(number, signal.SIG_DFL)
    process = start(tmp_path, WAIT, "--seeds", "1")
    signal.signal(number, previous)
    while not (log.exists() and "begun" in log.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, number)  # as a terminal does
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + number, errors
    assert log.read_text().splitlines() == ["begun", f"received {signal.SIGTERM:d}"]
