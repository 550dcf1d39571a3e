"""Pairs differ only where intended; patching all differences gives the donor's action."""

import numpy as np
import pytest

from benchmarks.interventions import AGENT, box_world_pairs, doorkey_pairs, patch_pairs
from rrl_tf.envs import box_world_task, doorkey_task
from rrl_tf.models import RelationalQNetwork

pytestmark = pytest.mark.tf_only
KEY = 5  # MiniGrid's code
CONTENT, LOCK, HELD = 1, 2, 4  # Box-World's codes of a key, a lock and the agent


def test_pairs_of_doorkey_differ_only_in_the_key():
    pairs = doorkey_pairs(doorkey_task((5, 6), held_out=True))
    own, donor = pairs.observations.reshape(2, len(pairs.held_out), 49, 4)
    moved = pairs.cells["key's cells"]
    np.testing.assert_array_equal((own != donor).any(axis=-1), moved)
    assert (moved.sum(axis=1) == 2).all() and (pairs.placebo.sum(axis=1) == 2).all()
    assert ((own[..., 0] == KEY).sum(axis=1) == 1).all() and (own[:, AGENT, 0] != KEY).all()
    assert not (pairs.optimal[0] & pairs.optimal[1]).any() and pairs.optimal.any(axis=-1).all()
    assert not (pairs.placebo & moved).any() and not pairs.placebo[:, AGENT].any()
    assert 0 < pairs.held_out.sum() < len(moved)


def test_patched_key_gives_the_donors_action():
    task = doorkey_task((5,))
    pairs = doorkey_pairs(task)
    found = patch_pairs(RelationalQNetwork.from_preset("doorkey-5x5"), task, pairs)
    assert found["pairs"][0] == len(pairs.held_out) == found["pairs"][2]
    before, after = (found["patched"][f"round_{place}"] for place in ("1/before", "2/after"))
    assert before["key's cells"][0] == found["optimal"][1] and before["key's cells"][1] == 1
    assert after["agent's cell"] == before["key's cells"]  # the Q values are read from this cell
    assert after["random, same norm, key's cells"][-1] == 0
    assert before["all other cells"][-1] == 0


def test_pairs_of_box_world_exchange_two_boxes():
    pairs = box_world_pairs(box_world_task(8, levels=[(3, 0)]), 20)
    assert pairs.observations.shape == (2, 20, 8, 8, 2) and pairs.optimal.shape == (2, 20, 4)
    own, donor = pairs.observations.reshape(2, 20, 64, 2)
    assert not ((own != donor).any(axis=-1) & ~pairs.cells["locks and contents"]).any()
    for row, (opened, other) in enumerate(pairs.locks):
        held = own[row][own[row, :, 0] == HELD, 1]
        assert own[row, opened].tolist() == [LOCK, *held] == donor[row, other].tolist()
        assert own[row, other, 0] == LOCK and own[row, other, 1] != held
        assert (own[row, [opened - 1, other - 1], 0] == CONTENT).all()
    assert not (pairs.optimal[0] & pairs.optimal[1]).any()
