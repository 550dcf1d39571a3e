"""Both implementations of the recurrent update compute the same loss."""

import pytest

pytest.importorskip("torch")

from benchmarks.pytorch.comparison import EAGER, OURS, OURS_VISIBLE
from benchmarks.speed import recurrent_update

pytestmark = pytest.mark.tf_only


@pytest.mark.slow  # it plays episodes and compiles
def test_implementations_have_the_same_first_loss(tmp_path):
    loop, updates = recurrent_update.started_loop("lstm"), {}
    sequence, _ = loop.replay.sample(loop.batch_size, (0, 0))
    updates["lstm", "float32", OURS] = recurrent_update.our_update(loop.agent, sequence)
    recurrent_update.add_updates(updates, "lstm", loop.agent, sequence)
    assert [implementation for *_, implementation in updates] == [OURS, OURS_VISIBLE, EAGER]
    assert recurrent_update.served_step(tmp_path, loop)() in range(5)
