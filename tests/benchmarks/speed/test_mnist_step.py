"""Both sides of the benchmark take the same training steps."""

import pytest

torch = pytest.importorskip("torch")

from benchmarks.speed import mnist_step  # noqa: E402

pytestmark = pytest.mark.tf_only


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.1)])
def test_losses_stay_the_same_over_some_steps(precision, tolerance):
    batch = mnist_step.make_batch(8)
    ours, theirs = mnist_step.our_step(precision), mnist_step.torch_step(precision)
    losses = [(ours(batch), theirs(batch)) for _ in range(4)]
    for our_loss, their_loss in losses:
        assert our_loss == pytest.approx(their_loss, rel=tolerance)
    assert losses[-1][0] < losses[0][0]  # it learns something
