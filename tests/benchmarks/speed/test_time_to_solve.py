"""The comparison with other libraries: evaluation, results, and the command that installs them."""

import json
import time

import numpy as np
import pytest

import rrl_tf
from benchmarks import runner
from benchmarks.reproduction import Results
from benchmarks.solving import ours, trial
from benchmarks.speed import time_to_solve
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only


class Balance:
    """An environment whose episodes last two steps; action 1 has a reward."""

    def reset(self, seed):
        self.steps = 0
        return np.zeros(1), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1), 475.0 * action, False, self.steps == 2, {}


def always(action):
    return lambda observations, state, rewards: (np.full(len(rewards), action), None)


def cartpole(folder, **options):
    return trial.Trial("cartpole", "none", 0, folder, **options)


def test_run_ends_when_greedy_episodes_succeed(tmp_path):
    run = cartpole(tmp_path, seconds=10**6, first_step=10)
    run.report(9, Balance, always(1))
    run.report(10, Balance, always(0), sample=always(1))
    run.report(11, Balance, always(1))  # the next evaluation is at step 12
    with pytest.raises(SystemExit):
        run.report(12, Balance, always(1))
    evaluation = json.loads((tmp_path / "evaluation.json").read_text())
    assert evaluation["solved"] and evaluation["step"] == 12
    rows = [row.split(",") for row in (tmp_path / "metrics.csv").read_text().split()]
    assert [(row[0], *row[2:]) for row in rows] == [
        *(("step", "success", "sampled_success"), ("10", "0.0", "1.0"), ("12", "1.0"))
    ]


def test_run_ends_at_its_limit(tmp_path):
    run = cartpole(tmp_path, seconds=1e-3)
    with pytest.raises(SystemExit):
        run.report(1, Balance, always(0))
    assert json.loads((tmp_path / "evaluation.json").read_text())["solved"] is False


def test_cpu_time_of_evaluations_is_not_counted(tmp_path):
    run = cartpole(tmp_path, seconds=10**6, first_step=1)

    def slow(observations, state, rewards):
        begun = time.process_time()
        while time.process_time() < begun + 0.05:
            pass
        return np.zeros(len(rewards)), None

    before = run.cpu_seconds()
    run.report(1, Balance, slow)  # calls `slow` twice
    assert run.cpu_seconds() - before < 0.05


def test_few_episodes_are_played_while_success_is_rare(tmp_path):
    for tenths, played in ((7, 10), (9, 100)):
        counts = []

        def act(observations, state, rewards, tenths=tenths, counts=counts):
            counts.append(len(rewards))
            return np.arange(len(rewards)) % 10 < tenths, None

        cartpole(tmp_path, seconds=10**6, first_step=1).report(1, Balance, act)
        assert sum(set(counts)) == played


def evaluation(seconds, solved=True):
    return {
        "solved": solved,
        "limit": 300,
        "step": 1000,
        "cpu_seconds": seconds,
        "success": float(solved),
    }


def test_table_and_figure_compare_with_ours(tmp_path):
    results = Results(tmp_path)
    runs = {
        "cartpole-ours-seed0": 20.0,
        "cartpole-ours-seed1": 40.0,
        "cartpole-sb3-ppo-seed0": 15.0,
    }
    log = [{"step": s, "cpu_seconds": s / 10, "success": s / 200} for s in (100, 200)]
    for name, seconds in runs.items():
        results.keep(name, evaluation(seconds), log, ("cpu_seconds", "success"))
    results.keep("cartpole-sb3-dqn-seed0", evaluation(300.0, solved=False), log, ())
    rows = {
        row["agent"]: row
        for row in time_to_solve.table(Results(tmp_path))
        if row["task"] == "cartpole"
    }
    assert rows["ours"]["CPU seconds"] == "30 (20 to 40)"
    assert rows["SB3 PPO"]["theirs / ours"] == "0.5"
    assert rows["SB3 DQN"]["theirs / ours"] == "more than 10.0"
    assert rows["SB3 DQN"]["solved"] == "0 of 1 seeds"
    assert "RecurrentPPO" not in rows  # not measured
    axes = time_to_solve.figure(Results(tmp_path)).axes
    assert len(axes) == len(trial.TASKS)
    assert sum(len(each.lines) for each in axes) == 3


def test_stored_results_are_not_measured_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reproduction = time_to_solve.REPRODUCTION
    config = runner.Config(variants=("cartpole-ours",), seeds=(0, 1))
    reproduction.results.keep("cartpole-ours-seed0", evaluation(20.0), [], ())
    assert [run[2] for run in reproduction.wanted(config)] == [1]


def test_missing_packages_are_named_with_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr(time_to_solve, "NEEDED", ["no_such_package"])
    with pytest.raises(
        InvalidInput, match=r"sb3-dqn needs other packages\. Use `pip install stable"
    ):
        time_to_solve.Race("cartpole", "sb3-dqn").run(tmp_path, "run", 0)


@pytest.mark.slow
def test_our_agent_runs_in_a_process_of_its_own(tmp_path):
    options = ("1", "100")  # CPU seconds and first step
    time_to_solve.Race("cartpole", "ours", options=options).run(tmp_path, "run", 0)
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert not found["solved"] and found["cpu_seconds"] > 1


def test_the_agent_of_cartpole_has_the_defaults_of_dqn(tmp_path):
    run = trial.Trial("cartpole", "cartpole", 3, tmp_path)
    config, *_ = ours.parts(run)
    assert config == rrl_tf.DQN("CartPole-v1", seed=3).config
