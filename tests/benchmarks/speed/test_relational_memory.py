"""The steps of the benchmark reduce the loss, and the models have similar sizes."""

import pytest

pytest.importorskip("torch")

from benchmarks.speed import relational_memory

pytestmark = pytest.mark.tf_only


def test_steps_train_and_have_their_sizes():
    sizes = relational_memory.Config(
        batch=2, steps=2, features=3, mem_slots=2, num_heads=1, head_size=4, rounds=1, calls=1
    )
    steps = relational_memory.make_steps(sizes)
    for name in (relational_memory.PORT, "ours, looped"):
        step, _ = steps[name]
        assert step() > step() > 0
    parameters = [count for _, count in steps.values()]
    assert parameters[-1] == pytest.approx(parameters[0], rel=0.1)
