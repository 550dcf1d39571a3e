"""Both implementations of the benchmark compute the same update."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.pytorch import comparison  # noqa: E402
from benchmarks.pytorch.double_dqn import PREPROCESSORS  # noqa: E402
from benchmarks.pytorch.networks import NETWORKS, copy_weights  # noqa: E402
from benchmarks.speed import update  # noqa: E402
from benchmarks.untrained import double_dqn  # noqa: E402
from train_scripts import train_doorkey  # noqa: E402

pytestmark = pytest.mark.tf_only


def perturb(network, seed):
    """Change all weights, because initial biases and norms can hide mistakes."""
    rng = np.random.default_rng(seed)
    for weight in network.weights:
        weight.assign(weight.numpy() + 0.1 * rng.normal(size=weight.shape))


def weights_of(network):
    return {weight.path: weight.numpy() for weight in network.weights}


@pytest.fixture(params=list(update.PRESETS))
def implementations(request):
    """Return a preset, a batch and both agents with equal weights.

    The target weights differ from the online weights.
    """
    training = dataclasses.replace(update.PRESETS[request.param], replay_capacity=2000)
    ours = update.our_agent(training, "float32", jit_compile=False)
    perturb(ours.network, seed=0)
    perturb(ours.target, seed=1)
    theirs = update.torch_agent(training, "float32", weights_of(ours.network))
    copy_weights(theirs.target, weights_of(ours.target))
    batch = update.gather_batch(training)
    # Some targets must be below an observed return.
    bound = np.where(batch["action_t"] == 2, 0.5, batch["return_lower_bound"])
    batch["return_lower_bound"] = bound.astype("float32")
    return training, batch, ours, theirs


def test_both_networks_have_the_same_q_values(implementations):
    training, batch, ours, theirs = implementations
    preprocessed = PREPROCESSORS[training.preset](torch.from_numpy(batch["observation_t"]))
    np.testing.assert_allclose(preprocessed, ours.preprocess(batch["observation_t"]), atol=1e-7)
    with torch.no_grad():
        q = theirs.network(preprocessed).numpy()
    assert np.ptp(q) > 0.1
    np.testing.assert_allclose(q, ours.network(preprocessed.numpy()), atol=1e-5, rtol=1e-5)


def test_both_updates_have_the_same_loss_and_gradients(implementations):
    training, batch, ours, theirs = implementations
    metrics, error = update.our_update(ours, batch)()
    their_metrics, their_error = theirs.update(batch)
    assert metrics == pytest.approx(their_metrics, rel=1e-4)
    np.testing.assert_allclose(error, their_error, atol=1e-5)
    # After one step, Adam's first moment is the clipped gradient times 1 - beta_1.
    ours_moments = [moment.numpy() for moment in ours.optimizer._momentums]
    paths = [variable.path for variable in ours.network.trainable_variables]
    moments = NETWORKS[training.preset](
        num_actions=theirs.network.head.out_features - (training.preset != "book")
    )
    copy_weights(moments, dict(zip(paths, ours_moments)))
    their_moments = {
        name: theirs.optimizer.state[parameter]["exp_avg"]
        for name, parameter in theirs.network.named_parameters()
    }
    scale = max(float(moment.abs().max()) for moment in their_moments.values())
    for name, moment in moments.named_parameters():
        np.testing.assert_allclose(
            moment.detach(), their_moments[name], atol=1e-5 * scale, rtol=1e-3, err_msg=name
        )


def test_flops_of_an_update_are_those_of_three_forward_passes_and_a_gradient():
    training = train_doorkey.PRESETS["book"]
    network = double_dqn(training)[1].network
    weights = {weight.path: weight.numpy() for weight in network.weights}
    cells = 49 * training.batch_size
    first = 3 * 16 * cells
    pairs = 3 * 49 * 64 * cells  # attention times values
    kernels = 16 * 20 + 22 * 576 + 3 * (64 * 49 + 64 * 49 + 49 * 49) + 192 * 64
    forward = first + kernels * cells + pairs + 64 * 5 * training.batch_size
    # The gradient of a product is two products, except for that of the observation.
    expected = 2 * (3 * forward + 2 * forward - first)
    agent = update.torch_agent(training, "float32", weights)
    assert update.count_flops(agent, update.gather_batch(training)) == expected


def test_weights_without_a_parameter_are_refused():
    network = NETWORKS["book"](num_actions=5)
    with pytest.raises(ValueError, match=r"no place for net/head/kernel \(3, 5\)"):
        copy_weights(network, {"net/head/kernel": np.zeros((3, 5), "float32")})
    with pytest.raises(ValueError, match=r"got no weights for convolution_1\.weight"):
        copy_weights(network, {"net/head/kernel": np.zeros((64, 5), "float32")})


def test_implementations_with_different_losses_are_refused():
    comparison.check_equal({"ours": 1.0, "theirs": 1.00001}, "float32")
    with pytest.raises(ValueError, match="first losses of all implementations must be equal"):
        comparison.check_equal({"ours": 1.0, "theirs": 1.01}, "float32")
