"""The benchmarks of the Relational Memory compare what they say they compare."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.pytorch.relational_memory import TorchRelationalMemory  # noqa: E402
from benchmarks.reproductions import rmc_differences  # noqa: E402
from benchmarks.speed import relational_memory, relational_memory_scaling  # noqa: E402

pytestmark = pytest.mark.tf_only

SIZES = rmc_differences.Config(batch=2, steps=3, features=5, mem_slots=3, num_heads=2, head_size=4)
RNG = np.random.default_rng(0)


def perturbed_weights(blocks):
    """Norms and biases begin where a mistake does not show."""
    weights = rmc_differences.draw_weights(SIZES, blocks, RNG)
    return {name: value + 0.1 * RNG.normal(size=value.shape) for name, value in weights.items()}


@pytest.mark.parametrize("blocks", [1, 2])
def test_without_differences_it_is_our_layer(blocks):
    weights, x = perturbed_weights(blocks), RNG.normal(size=(2, 3, 5))
    outputs = rmc_differences.run(SIZES, weights, x, blocks, rmc_differences.Variant())
    rmc_differences.check_original(SIZES, weights, x, blocks, outputs)
    with pytest.raises(ValueError, match=r"differ by"):
        rmc_differences.check_original(SIZES, weights, x, blocks, outputs + 1e-3)


def test_with_the_ports_differences_it_is_the_port():
    weights, x = perturbed_weights(1), RNG.normal(size=(2, 3, 5))
    *_, changes = rmc_differences.everything(rmc_differences.PORT)
    wanted = rmc_differences.run(SIZES, weights, x, 1, rmc_differences.Variant(**changes))
    port = TorchRelationalMemory(SIZES.features, SIZES.mem_slots, SIZES.head_size, SIZES.num_heads)
    linears = ("input_projection", "query_key_value", "input_gates", "memory_gates")
    places = {getattr(port, name): f"linear_{i}" for i, name in enumerate(linears)}
    places[port.input_projection], places[port.mlp] = "linear", "mlp/linear_0"
    norms = (port.query_key_value_norm, port.attention_norm, port.mlp_norm)
    places |= dict(zip(norms, ("layer_norm", "layer_norm_1", "layer_norm_2")))
    with torch.no_grad():
        for module, name in places.items():
            linear = isinstance(module, torch.nn.Linear)
            kinds = ("w", "b") if linear else ("gamma", "beta")
            weight, bias = (torch.tensor(weights[f"{name}/{kind}"]) for kind in kinds)
            module.weight.copy_(weight.T if linear else weight)
            module.bias.copy_(bias)
        memory = port(torch.tensor(x, dtype=torch.float32))
    np.testing.assert_allclose(memory.numpy(), wanted[:, -1], atol=1e-5)


@pytest.mark.parametrize("name, who, blocks, changes", rmc_differences.DIFFERENCES)
def test_every_difference_makes_one(name, who, blocks, changes):
    weights, x = perturbed_weights(blocks), RNG.normal(size=(2, 3, 5))
    original, other = (
        rmc_differences.run(SIZES, weights, x, blocks, rmc_differences.Variant(**changed))
        for changed in ({}, changes)
    )
    assert (original != other).any()


def test_the_contestants_train_and_have_their_sizes():
    sizes = relational_memory.Config(
        batch=2, steps=2, features=3, mem_slots=2, num_heads=1, head_size=4
    )
    contestants = relational_memory.make_contestants(sizes)
    for name in (relational_memory.PORT, "ours, looped"):
        step, _ = contestants[name]
        assert step() > step() > 0
    parameters = [count for _, count in contestants.values()]
    assert parameters[-1] == pytest.approx(parameters[0], rel=0.1)


def test_the_figure_has_a_panel_a_size():
    names = ["ours", "ours, looped", "PyTorch port"]
    rows = [
        {"varied": label, "value": value}
        | {f"{name}, ms": i * value for i, name in enumerate(names, start=1)}
        for label in relational_memory_scaling.AXES.values()
        for value in (1, 2)
    ]
    figure = relational_memory_scaling.figure(rows)
    labels = list(relational_memory_scaling.AXES.values())
    assert [axes.get_xlabel() for axes in figure.axes] == labels
    assert [line.get_label() for line in figure.axes[0].lines] == names
