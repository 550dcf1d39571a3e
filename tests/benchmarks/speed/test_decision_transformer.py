"""The benchmark's two sides compute the same training step."""

import keras
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.pytorch import comparison  # noqa: E402
from benchmarks.pytorch.decision_transformer import (  # noqa: E402
    TorchDecisionTransformer,
    TorchTrainer,
)
from benchmarks.speed import decision_transformer as benchmark  # noqa: E402
from rrl_tf.convert import min_decision_transformer  # noqa: E402
from rrl_tf.models import DecisionTransformer  # noqa: E402
from rrl_tf.offline.scaling import Scaling  # noqa: E402
from rrl_tf.offline.windows import Windows  # noqa: E402

pytestmark = pytest.mark.tf_only


@pytest.fixture(scope="module")
def batch():
    data = benchmark.made_up_data(episodes=2, steps=60)
    windows = Windows(data, benchmark.LENGTH).batch(4, seed=0)
    return {name: np.array(v) for name, v in Scaling.of(data).window(windows).items()}


def test_converted_weights_give_pytorchs_actions(batch):
    full = {**batch, "mask": np.ones_like(batch["mask"])}  # PyTorch's attends to padding as well
    network = TorchDecisionTransformer(benchmark.STATES, benchmark.ACTIONS).eval()
    model = DecisionTransformer.from_preset(
        "min-dt", state_size=benchmark.STATES, action_size=benchmark.ACTIONS
    )
    model.build()
    min_decision_transformer(model, network.state_dict())
    with torch.no_grad():
        expected = network({name: torch.from_numpy(v) for name, v in full.items()}).numpy()
    np.testing.assert_allclose(np.asarray(model(full)["action"]), expected, atol=1e-5)


def test_one_step_changes_the_weights_alike(batch):
    full = {**batch, "mask": np.ones_like(batch["mask"])}
    network = TorchDecisionTransformer(benchmark.STATES, benchmark.ACTIONS, dropout=0.0)
    whole = DecisionTransformer.from_preset(
        "min-dt", state_size=benchmark.STATES, action_size=benchmark.ACTIONS, dropout=0.0
    )
    whole.build()
    min_decision_transformer(whole, network.state_dict())
    model = DecisionTransformer.from_preset(
        "min-dt",
        state_size=benchmark.STATES,
        action_size=benchmark.ACTIONS,
        dropout=0.0,
        heads=("action",),
    )
    model.build()
    model.set_weights(whole.get_weights()[: len(model.weights)])
    model.compile(
        # Plain gradient descent shows the gradients, which Adam's first step hides.
        keras.optimizers.SGD(0.1, global_clipnorm=0.25),
        {"action": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")},
    )
    trainer = TorchTrainer(network, 1e-4, 0.0, 0.25, bfloat16=False)
    trainer._optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    window = {name: torch.from_numpy(v) for name, v in full.items()}
    ours = model.train_on_batch(full, {"action": full["actions"]}, {"action": full["mask"]})
    assert ours == pytest.approx(trainer.step(window), rel=1e-5)
    min_decision_transformer(whole, network.state_dict())
    for a, b in zip(model.weights, whole.get_weights()):
        np.testing.assert_allclose(np.asarray(a), b, atol=2e-5, err_msg=a.path)


def test_unequal_contestants_are_refused():
    with pytest.raises(ValueError, match="do not compute the same"):
        comparison.check_equal({"a": 1.0, "b": 1.1}, "float32")
