"""Converted weights of the book's network give its outputs in NumPy and PyTorch."""

import numpy as np
import pytest
from keras import ops

from rrl_tf.convert import deep_rl_in_action
from rrl_tf.models import RelationalQNetwork

SHAPES = {
    "conv1.weight": (16, 3, 1, 1),
    "conv1.bias": (16,),
    "conv2.weight": (20, 16, 1, 1),
    "conv2.bias": (20,),
    **{f"{name}_proj.weight": (192, 22) for name in "kqv"},
    **{f"{name}_proj.bias": (192,) for name in "kqv"},
    **{f"{name}_norm.{kind}": (3, 49, 64) for name in "kqv" for kind in ("weight", "bias")},
    "k_lin.weight": (49, 64),
    "k_lin.bias": (49,),
    "q_lin.weight": (49, 64),
    "q_lin.bias": (49,),
    "a_lin.weight": (49, 49),
    "a_lin.bias": (49,),
    "linear1.weight": (64, 192),
    "linear1.bias": (64,),
    "linear2.weight": (5, 64),
    "linear2.bias": (5,),
}


def random_state_dict(seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(1.0 if "norm.weight" in name else 0.0, 0.15, size=shape)
        for name, shape in SHAPES.items()
    }


def book_network():
    model = RelationalQNetwork.from_preset("book")
    model.build((None, 7, 7, 3))
    return model


def observations(batch=4):
    return np.random.default_rng(1).random((batch, 7, 7, 3))


def elu(x):
    return np.where(x > 0, x, np.expm1(x))


def normalise(x, axes):
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5)


def numpy_book(w, x):
    """Compute Q values (B, 5) and attention (B, 3, 49, 49) of (B, 7, 7, 3), in float64."""

    def linear(name, x):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def convolution(name, x):
        return np.maximum(x @ w[f"{name}.weight"][:, :, 0, 0].T + w[f"{name}.bias"], 0)

    def head_nodes(name, x):
        parts = linear(f"{name}_proj", x).reshape(len(x), 49, 3, 64).transpose(0, 2, 1, 3)
        return w[f"{name}_norm.weight"] * normalise(parts, (1, 2, 3)) + w[f"{name}_norm.bias"]

    x = convolution("conv2", convolution("conv1", x))
    row, column = np.indices((7, 7)) / 7
    place = np.broadcast_to(np.stack([column, row], axis=-1), (len(x), 7, 7, 2))
    nodes = np.concatenate([x, place], axis=-1).reshape(len(x), 49, 22)
    query, key, value = (head_nodes(name, nodes) for name in "qkv")
    scores = linear("a_lin", elu(linear("q_lin", query) + linear("k_lin", key)))
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    attention = scores / scores.sum(axis=-1, keepdims=True)
    heads = np.einsum("bhij,bhjd->bihd", attention, value).reshape(len(x), 49, 192)
    nodes = normalise(np.maximum(linear("linear1", heads), 0), (1, 2))
    return elu(linear("linear2", nodes.max(axis=1))), attention


def ours(state_dict, x):
    model = deep_rl_in_action(book_network(), state_dict)
    q, attention = model(x.astype("float32"), return_attention_scores=True)
    return ops.convert_to_numpy(q), ops.convert_to_numpy(attention["round_1"])


def test_output_equals_the_book():
    q, attention = ours(random_state_dict(), observations())
    expected_q, expected_attention = numpy_book(random_state_dict(), observations())
    assert np.ptp(expected_q) > 0.5  # large compared with the tolerance
    assert np.ptp(expected_attention) > 0.1
    np.testing.assert_allclose(q, expected_q, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(attention, expected_attention, atol=1e-5, rtol=1e-5)


def torch_book(torch):
    """Return the network of the chapter, in PyTorch."""
    nn = torch.nn

    class Book(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 20, 1)
            for name in "kqv":
                setattr(self, f"{name}_proj", nn.Linear(22, 192))
                setattr(self, f"{name}_norm", nn.LayerNorm((3, 49, 64)))
            self.k_lin, self.q_lin = nn.Linear(64, 49), nn.Linear(64, 49)
            self.a_lin = nn.Linear(49, 49)
            self.linear1, self.linear2 = nn.Linear(192, 64), nn.Linear(64, 5)

        def forward(self, x):  # (B, 3, 7, 7)
            cells = self.conv2(self.conv1(x).relu()).relu()
            step = torch.arange(7) / 7
            row, column = torch.meshgrid(step, step, indexing="ij")
            place = torch.stack([column, row]).expand(len(x), 2, 7, 7)
            nodes = torch.cat([cells, place], 1).flatten(2).transpose(1, 2)

            def head_nodes(name):
                parts = getattr(self, f"{name}_proj")(nodes).unflatten(-1, (3, 64))
                return getattr(self, f"{name}_norm")(parts.transpose(1, 2))

            mixed = nn.functional.elu(self.q_lin(head_nodes("q")) + self.k_lin(head_nodes("k")))
            attention = self.a_lin(mixed).softmax(-1)
            heads = (attention @ head_nodes("v")).transpose(1, 2).flatten(2)
            nodes = self.linear1(heads).relu()
            nodes = nn.functional.layer_norm(nodes, (49, 64))
            return nn.functional.elu(self.linear2(nodes.amax(1))), attention

    return Book()


def test_output_equals_pytorch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    book = torch_book(torch)
    assert sum(parameter.numel() for parameter in book.parameters()) == 91_597
    with torch.no_grad():
        for parameter in book.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        x = observations()
        expected_q, expected_attention = book(torch.tensor(x).float().permute(0, 3, 1, 2))
    q, attention = ours(book.state_dict(), x)
    np.testing.assert_allclose(q, expected_q.numpy(), atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(attention, expected_attention.numpy(), atol=1e-5, rtol=1e-5)
    q, _ = ours(dict(book.named_parameters()), x)
    np.testing.assert_allclose(q, expected_q.numpy(), atol=1e-5, rtol=1e-5)


def test_unused_layers_of_the_original_are_ignored():
    leftovers = {"conv3.weight": np.zeros((24, 20, 4, 4)), "conv4.bias": np.zeros(30)}
    q, _ = ours({**random_state_dict(), **leftovers}, observations())
    np.testing.assert_array_equal(q, ours(random_state_dict(), observations())[0])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"output_activation": None}, "output_activation='elu'"),
        ({"block": {"score": "dot"}}, "score='book_additive'"),
        ({"block": {"residual": True, "units": (22,)}}, "residual=False"),
        ({"block": {"max_offset": 6}}, "max_offset=None"),
        ({"coordinates": None}, "coordinates="),
        ({"unseen_feature": 0}, "unseen_feature=None"),
        ({"conv_strides": 2}, "conv_strides=.1, 1"),
        ({"conv_pool": 2}, "conv_pool="),
        ({"random_shift": 2}, "random_shift=0"),
        ({"num_rounds": 2}, "num_rounds=1"),
        ({"conv_filters": (16, 20, 24)}, "conv_kernel_size=.1, 1"),
    ],
)
def test_model_with_another_computation_is_an_error(overrides, message):
    model = RelationalQNetwork.from_preset("book", **overrides)
    model.build((None, 7, 7, 3))
    with pytest.raises(ValueError, match=message):
        deep_rl_in_action(model, random_state_dict())


def test_models_of_other_sizes_are_filled():
    model = RelationalQNetwork.from_preset("book", num_actions=7, block={"num_heads": 2})
    model.build((None, 7, 7, 3))
    with pytest.raises(ValueError, match=r"linear2.bias is \(5,\), expected \(7,\)"):
        deep_rl_in_action(model, random_state_dict())


def test_unbuilt_or_other_models_are_errors():
    with pytest.raises(ValueError, match="must be built first"):
        deep_rl_in_action(RelationalQNetwork.from_preset("book"), random_state_dict())
    with pytest.raises(ValueError, match=r"RelationalQNetwork.*; received 'book'"):
        deep_rl_in_action("book", random_state_dict())
