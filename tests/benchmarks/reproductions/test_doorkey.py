"""The DoorKey tables, and what attention is worth."""

import json

import numpy as np
import pytest

from benchmarks.reproductions import doorkey
from rrl_tf.models import RelationalQNetwork

pytestmark = pytest.mark.tf_only


def test_the_doorkey_table_averages_over_seeds(tmp_path):
    for seed, success in enumerate((0.5, 1.0)):
        run = {
            "step": 1000,
            "first_perfect": 500 if success == 1 else None,
            "eval/success": success,
            "eval/loops": 0.25,
            "eval/success_epsilon_0.05": 1.0,
        }
        (tmp_path / f"book-seed{seed}.json").write_text(json.dumps(run))
    [row] = doorkey.table(tmp_path).splitlines()[2:]
    assert "| 2 | 1,000 | 75.0 % (50.0 to 100.0) | 25.0 % | 100.0 % | never, 500 |" in row


def test_what_quick_costs_is_told_at_its_first_step_without_a_failure(tmp_path):
    for seed, first in enumerate((1008, None)):
        run = {"step": 1504, "first_perfect": first}
        (tmp_path / f"quick-seed{seed}.json").write_text(json.dumps(run))
        log = "step,time/cpu_minutes\n512,0.1\n1008,0.25\n1504,0.4\n"
        (tmp_path / f"quick-seed{seed}.csv").write_text(log)
    rows = doorkey.seconds_of_quick(tmp_path).splitlines()[2:]
    assert rows == ["| 0 | 1,008 | 15.0 |", "| 1 | never |  |"]


def test_silenced_queries_make_attention_uniform():
    network = RelationalQNetwork.from_preset("fast", unseen_feature=0, readout_cell=(3, 6))
    network.build((None, 7, 7, 20))
    rng = np.random.default_rng(0)
    for weight in network.weights:
        weight.assign(rng.normal(size=weight.shape))
    view = np.zeros((1, 7, 7, 20), "float32")
    view[:, :3, :, 0] = 1  # out of sight
    view[..., 1:] = rng.normal(size=(1, 7, 7, 19))
    _, before = network(view, return_attention_scores=True)
    for block in network.relations.rounds:
        doorkey.silence_queries(block.attention)
    _, after = network(view, return_attention_scores=True)
    for name in ("round_1", "round_2"):
        assert np.ptp(np.asarray(before[name])[..., 21:]) > 0.01
        np.testing.assert_allclose(np.asarray(after[name])[..., 21:], 1 / 28, atol=1e-5)
        assert np.asarray(after[name])[..., :21].max() == 0
