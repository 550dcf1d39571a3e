"""Our Decision Transformer and min-decision-transformer in PyTorch give the same numbers."""

import keras
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from made_up_episodes import ACTIONS, STATES  # noqa: E402
from torch_decision_transformer import TorchDecisionTransformer, TorchTrainer  # noqa: E402

from rrl_tf.convert import min_decision_transformer  # noqa: E402
from rrl_tf.models import DecisionTransformer  # noqa: E402

pytestmark = pytest.mark.tf_only
LENGTH = 20


@pytest.fixture(scope="module")
def window():
    """Return four windows without padding, because the PyTorch network attends to padding."""
    rng = np.random.default_rng(0)
    sizes = {"states": STATES, "actions": ACTIONS, "returns_to_go": 1}
    arrays = {k: rng.normal(size=(4, LENGTH, n)).astype("float32") for k, n in sizes.items()}
    arrays["timesteps"] = np.arange(LENGTH, dtype="int32") + np.array(
        [[0], [3], [20], [35]], "int32"
    )
    return {**arrays, "mask": np.ones((4, LENGTH), "float32")}


def make_model(**options):
    model = DecisionTransformer.from_preset(
        "min-dt", state_size=STATES, action_size=ACTIONS, **options
    )
    model.build()
    return model


def test_converted_weights_give_the_actions_of_pytorch(window):
    network, model = TorchDecisionTransformer(STATES, ACTIONS).eval(), make_model()
    min_decision_transformer(model, network.state_dict())
    with torch.no_grad():
        expected = network({name: torch.from_numpy(v) for name, v in window.items()}).numpy()
    np.testing.assert_allclose(np.asarray(model(window)["action"]), expected, atol=1e-5)


def test_one_training_step_gives_the_weights_of_pytorch(window):
    network = TorchDecisionTransformer(STATES, ACTIONS, dropout=0.0)
    whole, model = make_model(dropout=0.0), make_model(dropout=0.0, heads=("action",))
    min_decision_transformer(whole, network.state_dict())
    model.set_weights(whole.get_weights()[: len(model.weights)])
    model.compile(
        # Adam's first step depends only on the signs of the gradients; SGD shows their size.
        keras.optimizers.SGD(0.1, global_clipnorm=0.25),
        {"action": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")},
    )
    trainer = TorchTrainer(network, 1e-4, 0.0, 0.25, bfloat16=False)
    trainer._optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    tensors = {name: torch.from_numpy(v) for name, v in window.items()}
    loss = model.train_on_batch(window, {"action": window["actions"]}, {"action": window["mask"]})
    assert loss == pytest.approx(trainer.step(tensors), rel=1e-5)
    min_decision_transformer(whole, network.state_dict())
    for a, b in zip(model.weights, whole.get_weights()):
        np.testing.assert_allclose(np.asarray(a), b, atol=2e-5, err_msg=a.path)
