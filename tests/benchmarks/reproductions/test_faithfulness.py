"""What is lost with hidden cells: which states are asked, and what table and figure make of it."""

import json

import numpy as np
import pytest

from rrl_tf.models import RelationalQNetwork
from rrl_tf.training import evaluate
from rrl_tf.training.faithfulness import LAST, LEAST, MOST, RANDOM

pytestmark = pytest.mark.tf_only


@pytest.fixture
def study(monkeypatch):
    from benchmarks.reproductions import faithfulness

    monkeypatch.setattr(faithfulness, "COUNTS", (1, 2))
    return faithfulness


def check_measured(study, task, network, act):
    resets = task.evaluation_resets(at_most=2)
    played = evaluate(act, task.make_test_env, resets)
    found = study.measured(task, network, starts=2)
    assert found["states"] == played.length.sum() and played.success.all()
    for values in (*found["drop"].values(), *found["kept"].values()):
        assert np.shape(values) == (2, 2)  # starts, counts
    assert np.abs(found["drop"][MOST]).min() > 0
    assert 1 < found["candidates"] < 48


def test_a_policy_is_asked_on_its_way(study):
    task, network = study.doorkey_task((5,)), RelationalQNetwork.from_preset("doorkey-5x5")
    act = study.Watched(lambda seen: np.asarray(network(task.preparation(seen))).argmax(-1))
    check_measured(study, task, network, act)


def test_a_policy_that_remembers_is_asked_on_its_way(study):
    task, network = study.preset("doorkey-6x6")
    player = study.RecurrentDoubleDQN(network, task.preparation).greedy_player()
    check_measured(study, task, network, player)


def write_results(folder, falls):
    """Every start falls by the same; the most attended by twice as much."""
    for seed, fall in enumerate(falls):
        drop = {order: [[fall] * 2] * 5 for order in (LAST, LEAST, RANDOM)}
        drop[MOST] = [[2 * fall] * 2] * 5
        kept = {order: [[0.5, 0.25]] * 5 for order in drop}
        run = {"counts": [1, 2], "states": 9, "drop": drop, "kept": kept}
        (folder / f"fast-graph-seed{seed}.json").write_text(json.dumps(run))


def test_the_table_says_what_the_files_say(study, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "SHOWN", (1, 2))
    assert study.figure(tmp_path) is None
    write_results(tmp_path, (0.1, 0.3))
    lines = study.table(tmp_path).splitlines()
    falls = "0.400 (0.200 to 0.600) | 0.200 (0.100 to 0.300) | 0.200 (0.100 to 0.300)"
    assert lines[2].startswith(f"| DoorKey-5x5 | 2 | 1 | {falls}")
    assert lines[2].endswith("| 0.200 to 0.200 | 50 % | 50 % |")
    assert lines[3].endswith("| 25 % | 25 % |") and len(lines) == 4
    [axes] = study.figure(tmp_path).axes
    assert axes.get_lines()[0].get_ydata().tolist() == pytest.approx([0.4, 0.4])


def test_the_interval_is_that_of_a_mean(study):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 1))
    found = [{"drop": {MOST: values.tolist()}}]
    low, high = study.interval(study.resampled(found, "drop", MOST))[:, 0]
    error = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - error, values.mean() + error), abs=0.02)
