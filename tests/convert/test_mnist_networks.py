"""Converted weights of the book's and the blog's MNIST networks give their outputs."""

import numpy as np
import pytest
from keras import ops

from rrl_tf.convert import deep_rl_in_action, patch_mnist
from rrl_tf.models import (
    ConvolutionalClassifier,
    MLPClassifier,
    PatchAttentionClassifier,
    RelationalClassifier,
)

MODELS = {
    "relational": lambda: RelationalClassifier.from_preset("book"),
    "convolutional": lambda: ConvolutionalClassifier.from_preset("book"),
    "patches": lambda: PatchAttentionClassifier.from_preset("patch-mnist"),
    "mlp": lambda: MLPClassifier.from_preset("patch-mnist"),
}
CONVERT = {
    "relational": deep_rl_in_action,
    "convolutional": deep_rl_in_action,
    "patches": patch_mnist,
    "mlp": patch_mnist,
}
PARAMETERS = {"relational": 85_228, "convolutional": 88_252, "patches": 15_200, "mlp": 623_290}


def images(batch=3):
    return np.random.default_rng(1).random((batch, 28, 28, 1)).astype("float32")


def built(name):
    model = MODELS[name]()
    model.build((None, 28, 28, 1))
    return model


def relational_module(torch):
    """Return the network of the chapter (listing 10.2) in PyTorch; it also returns attention."""
    nn = torch.nn

    class Relational(nn.Module):
        def __init__(self):
            super().__init__()
            channels = (1, 16, 20, 24, 30)
            for i in range(4):
                setattr(self, f"conv{i + 1}", nn.Conv2d(channels[i], channels[i + 1], 4))
            for name in "kqv":
                setattr(self, f"{name}_proj", nn.Linear(32, 36))
                setattr(self, f"{name}_norm", nn.LayerNorm((256, 36)))
            self.linear1, self.linear2 = nn.Linear(36, 36), nn.Linear(36, 10)

        def forward(self, x):  # (B, 1, 28, 28)
            for i in range(1, 5):
                x = getattr(self, f"conv{i}")(x).relu()
            step = torch.arange(16) / 16
            row, column = torch.meshgrid(step, step, indexing="ij")
            place = torch.stack([column, row]).expand(len(x), 2, 16, 16)
            nodes = torch.cat([x, place], 1).flatten(2).transpose(1, 2)  # (B, 256, 32)
            q, k, v = (
                getattr(self, f"{name}_norm")(getattr(self, f"{name}_proj")(nodes))
                for name in "qkv"
            )
            attention = (q @ k.transpose(1, 2) / 36**0.5).softmax(-1)
            nodes = nn.functional.layer_norm(self.linear1(attention @ v).relu(), (256, 36))
            return self.linear2(nodes.amax(1)), attention

    return Relational()


def convolutional(torch):
    nn = torch.nn

    class Convolutional(nn.Module):
        def __init__(self):
            super().__init__()
            channels = (1, 10, 16, 24, 32, 64)
            for i in range(5):
                setattr(self, f"conv{i + 1}", nn.Conv2d(channels[i], channels[i + 1], 4))
            self.lin1, self.out = nn.Linear(256, 128), nn.Linear(128, 10)

        def forward(self, x):
            x = nn.functional.max_pool2d(self.conv2(self.conv1(x).relu()).relu(), 2)
            for i in (3, 4, 5):
                x = getattr(self, f"conv{i}")(x).relu()
            return self.out(self.lin1(x.flatten(1)).relu()), None

    return Convolutional()


def patches(torch):
    """Return the network of the blog. The blog's data set cuts the image into 16 patches."""
    nn = torch.nn

    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.ModuleDict(
                {name: nn.Linear(49, 49) for name in ("key", "query", "value")}
            )
            self.fc = nn.Linear(784, 10)

        def forward(self, x):
            x = x.unfold(2, 7, 7).unfold(3, 7, 7).reshape(len(x), 16, 49)
            scores = self.attn["query"](x) @ self.attn["key"](x).transpose(1, 2) / 7
            attention = scores.softmax(-1)
            return self.fc((attention @ self.attn["value"](x)).flatten(1).relu()), attention

    return Patches()


def mlp(torch):
    nn = torch.nn

    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = nn.Sequential(nn.Linear(784, 784), nn.ReLU(), nn.Linear(784, 10))

        def forward(self, x):
            return self.mlp(x.flatten(1)), None

    return MLP()


ORIGINALS = {
    "relational": relational_module,
    "convolutional": convolutional,
    "patches": patches,
    "mlp": mlp,
}


@pytest.mark.parametrize("name", MODELS)
def test_output_equals_pytorch(name):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    original = ORIGINALS[name](torch)
    assert sum(parameter.numel() for parameter in original.parameters()) == PARAMETERS[name]
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        logits, attention = original(torch.tensor(images()).permute(0, 3, 1, 2))
    model = built(name)
    assert model.count_params() == PARAMETERS[name]
    assert CONVERT[name](model, original.state_dict()) is model
    scale = float(logits.abs().max())
    assert scale > 0.5  # large compared with the tolerance
    np.testing.assert_allclose(
        ops.convert_to_numpy(model(images())), logits.numpy(), atol=2e-5 * scale
    )
    if attention is not None:
        _, scores = model(images(), return_attention_scores=True)
        scores = ops.convert_to_numpy(scores["round_1"])[:, 0]
        assert np.ptp(attention.numpy()) > 0.5 / attention.shape[-1]
        np.testing.assert_allclose(scores, attention.numpy(), atol=2e-5)


def random_blog_weights(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {f"attn.{name}.weight": (49, 49) for name in ("key", "query", "value")}
    shapes |= {f"attn.{name}.bias": (49,) for name in ("key", "query", "value")}
    shapes |= {"fc.weight": (10, 784), "fc.bias": (10,)}
    return {name: rng.normal(0, 0.2, size=shape) for name, shape in shapes.items()}


def test_attention_equals_the_formula_of_the_blog():
    """Compare with NumPy, because PyTorch may not be installed."""
    w, x = random_blog_weights(), images().astype("float64")
    cut = [
        x[:, 7 * row : 7 * row + 7, 7 * column : 7 * column + 7, 0].reshape(len(x), 49)
        for row in range(4)
        for column in range(4)
    ]
    nodes = np.stack(cut, axis=1)
    q, k, v = (
        nodes @ w[f"attn.{name}.weight"].T + w[f"attn.{name}.bias"]
        for name in ("query", "key", "value")
    )
    scores = np.exp(q @ k.transpose(0, 2, 1) / 7)
    attention = scores / scores.sum(-1, keepdims=True)
    hidden = np.maximum((attention @ v).reshape(len(x), 784), 0)
    logits = hidden @ w["fc.weight"].T + w["fc.bias"]
    model = patch_mnist(built("patches"), w)
    ours, scores = model(images(), return_attention_scores=True)
    np.testing.assert_allclose(ops.convert_to_numpy(ours), logits, atol=1e-4)
    np.testing.assert_allclose(ops.convert_to_numpy(scores["round_1"])[:, 0], attention, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RelationalClassifier.from_preset("book", num_rounds=2), "num_rounds=1"),
        (RelationalClassifier.from_preset("book", conv_strides=(1, 1, 1, 2)), "conv_strides="),
        (RelationalClassifier.from_preset("book", block={"num_heads": 2}), "num_heads=1"),
        (RelationalClassifier.from_preset("book", block={"norm": "entity"}), "norm='joint'"),
        (ConvolutionalClassifier.from_preset("book", pool_after=(3,)), r"pool_after=\(2,\)"),
        (ConvolutionalClassifier.from_preset("book", hidden_units=()), "one hidden layer"),
    ],
)
def test_model_with_another_computation_is_an_error(model, message):
    model.build((None, 28, 28, 1))
    with pytest.raises(ValueError, match=message):
        deep_rl_in_action(model, {})


def test_unbuilt_or_other_models_are_errors():
    with pytest.raises(ValueError, match="must be built first"):
        deep_rl_in_action(MODELS["relational"](), {})
    with pytest.raises(ValueError, match="must be built first"):
        patch_mnist(MODELS["mlp"](), {})
    with pytest.raises(ValueError, match="must be a PatchAttentionClassifier or a MLPClassifier"):
        patch_mnist(built("relational"), {})
    two_layers = MLPClassifier(hidden_units=(4, 4))
    two_layers.build((None, 28, 28, 1))
    with pytest.raises(ValueError, match=r"one hidden layer.*\(4, 4\)"):
        patch_mnist(two_layers, {})
    seven_heads = PatchAttentionClassifier.from_preset("patch-mnist", num_heads=7, key_size=7)
    seven_heads.build((None, 28, 28, 1))
    with pytest.raises(ValueError, match="num_heads=1"):
        patch_mnist(seven_heads, random_blog_weights())
