"""Define our Q networks in PyTorch.

`BookNetwork` and `FastNetwork` compute the same as `RelationalQNetwork.from_preset("book")` and
`("fast")`, and `BoxWorldNetwork` the same as the network of `train_box_world`. `copy_weights`
copies our weights into these networks, and tests compare Q values, loss and gradients. The code is
idiomatic PyTorch: rows as matrices, its own layer norm, and its fused attention where that is
faster.
"""

import torch
from torch import nn
from torch.nn import functional


class BookNetwork(nn.Module):
    """The book's network, which maps `(B, 7, 7, 3)` to Q values `(B, A)`.

    Args:
        num_actions: A.
    """

    def __init__(self, num_actions):
        super().__init__()
        self.convolution_1 = nn.Linear(3, 16)  # 1 x 1 convolutions, channels last
        self.convolution_2 = nn.Linear(16, 20)
        self.block = BookBlock(22, 49, num_heads=3, key_size=64, units=64)
        self.head = nn.Linear(64, num_actions)
        place = torch.arange(7) / 7
        columns_and_rows = torch.stack(torch.meshgrid(place, place, indexing="xy"), dim=-1)
        self.register_buffer("places", columns_and_rows)  # (7, 7, 2)

    def forward(self, observation):
        x = self.convolution_2(self.convolution_1(observation).relu()).relu()
        places = self.places.to(x.dtype).expand(len(x), -1, -1, -1)
        x = self.block(torch.cat([x, places], dim=-1).flatten(1, 2))
        return functional.elu(_in_full_precision(self.head, x.amax(1)))


class BookBlock(nn.Module):
    """The book's attention, dense layer and norm, from `(B, N, features)` to `(B, N, units)`."""

    def __init__(self, features, nodes, num_heads, key_size, units):
        super().__init__()
        self.num_heads = num_heads
        self.query_key_value = nn.Linear(features, num_heads * 3 * key_size)  # [head][q | k | v]
        self.query_norm = nn.LayerNorm((num_heads, nodes, key_size))
        self.key_norm = nn.LayerNorm((num_heads, nodes, key_size))
        self.value_norm = nn.LayerNorm((num_heads, nodes, key_size))
        self.score_query = nn.Linear(key_size, nodes)
        self.score_key = nn.Linear(key_size, nodes)
        self.score_output = nn.Linear(nodes, nodes)
        self.dense_1 = nn.Linear(num_heads * key_size, units)

    def forward(self, x):
        query, key, value = _heads(self.query_key_value(x), self.num_heads)
        query, key, value = self.query_norm(query), self.key_norm(key), self.value_norm(value)
        mixed = functional.elu(self.score_query(query) + self.score_key(key))
        x = self.dense_1(_merge(self.score_output(mixed).softmax(-1) @ value)).relu()
        return functional.layer_norm(x, x.shape[1:])


class FastNetwork(nn.Module):
    """Our network for DoorKey, which maps `(B, 7, 7, 24)` to Q values `(B, A)`.

    Args:
        num_actions: A.
    """

    def __init__(self, num_actions):
        super().__init__()
        self.convolution_1 = nn.Linear(24, 32)
        self.embeddings = nn.Parameter(0.05 * torch.randn(49, 32))
        self.block = FastBlock(32, num_heads=2, key_size=16)
        self.block_2 = FastBlock(32, num_heads=2, key_size=16)
        self.hidden_1 = nn.Linear(32, 64)
        self.head = nn.Linear(64, 1 + num_actions)

    def forward(self, observation):
        seen = observation[..., 0].flatten(1)[:, None, None] < 0.5  # (B, 1, 1, N)
        x = self.convolution_1(observation).relu().flatten(1, 2) + self.embeddings
        x = self.block_2(self.block(x, seen), seen, entity=3 * 7 + 6)  # only the agent is read
        return dueling(_in_full_precision(self.head, self.hidden_1(x[:, 0]).relu()))


class FastBlock(nn.Module):
    """Self-attention among the visible cells, a dense layer, and a residual connection."""

    def __init__(self, features, num_heads, key_size):
        super().__init__()
        self.num_heads = num_heads
        self.query_key_value = nn.Linear(features, 3 * num_heads * key_size)
        self.dense_1 = nn.Linear(num_heads * key_size, features)

    def forward(self, x, seen, entity=None):
        query, key, value = _heads(self.query_key_value(x), self.num_heads)
        if entity is not None:
            query, x = query[:, :, entity : entity + 1], x[:, entity : entity + 1]
        return x + self.dense_1(_merge(_attend(query, key, value, seen)))


class BoxWorldNetwork(nn.Module):
    """Our network for Box-World, which maps `(B, 8, 8, 26)` to Q values `(B, A)`.

    Args:
        num_actions: A.
    """

    def __init__(self, num_actions):
        super().__init__()
        self.convolution_1 = nn.Conv2d(26, 64, 2)
        self.embeddings = nn.Parameter(0.05 * torch.randn(64, 66))
        self.block = BoxWorldBlock(66, num_heads=2, key_size=32)
        self.block_2 = BoxWorldBlock(66, num_heads=2, key_size=32)
        self.block_3 = BoxWorldBlock(66, num_heads=2, key_size=32)
        self.block_4 = BoxWorldBlock(66, num_heads=2, key_size=32)
        self.hidden_1 = nn.Linear(66, 128)
        self.head = nn.Linear(128, 1 + num_actions)
        place = torch.linspace(-1, 1, 8)
        columns_and_rows = torch.stack(torch.meshgrid(place, place, indexing="xy"), dim=-1)
        self.register_buffer("places", columns_and_rows)  # (8, 8, 2)

    def forward(self, observation):
        seen = observation[..., 0].flatten(1)[:, None, None] < 0.5  # (B, 1, 1, N): not the floor
        agent = observation[..., 4].flatten(1).argmax(1)
        padded = functional.pad(observation.permute(0, 3, 1, 2), (1, 0, 1, 0))
        x = self.convolution_1(padded).permute(0, 2, 3, 1)
        places = self.places.to(x.dtype).expand(len(x), -1, -1, -1)
        x = torch.cat([x, places], dim=-1).flatten(1, 2) + self.embeddings
        x = self.block_3(self.block_2(self.block(x, seen), seen), seen)
        x = self.block_4(x, seen, entity=agent)  # only the agent is read
        return dueling(_in_full_precision(self.head, self.hidden_1(x[:, 0]).relu()))


class BoxWorldBlock(nn.Module):
    """Self-attention with norms, two dense layers, a residual connection and a norm."""

    def __init__(self, features, num_heads, key_size):
        super().__init__()
        self.num_heads = num_heads
        self.query_key_value = nn.Linear(features, 3 * num_heads * key_size)
        self.query_norm = nn.LayerNorm(key_size)
        self.key_norm = nn.LayerNorm(key_size)
        self.value_norm = nn.LayerNorm(key_size)
        self.dense_1 = nn.Linear(num_heads * key_size, 64)
        self.dense_2 = nn.Linear(64, features)
        self.output_norm = nn.LayerNorm(features)

    def forward(self, x, seen, entity=None):
        query, key, value = _heads(self.query_key_value(x), self.num_heads)
        if entity is not None:  # (B,), a different cell in every row
            rows = torch.arange(len(x))
            query, x = query[rows, :, entity][:, :, None], x[rows, entity][:, None]
        query, key, value = self.query_norm(query), self.key_norm(key), self.value_norm(value)
        mixed = _merge(_attend(query, key, value, seen))
        hidden = self.dense_2(self.dense_1(mixed).relu()).relu()
        return self.output_norm(x + hidden)


def dueling(outputs):
    """Return Q values `(..., A)` of outputs `(..., 1 + A)`; their mean is the first output."""
    value, advantage = outputs[..., :1], outputs[..., 1:]
    return value + advantage - advantage.mean(-1, keepdim=True)


def _heads(projected, num_heads):
    """Split `(B, N, H * 3 * D)` into queries, keys and values `(B, H, N, D)`."""
    return projected.unflatten(-1, (num_heads, -1)).transpose(1, 2).chunk(3, dim=-1)


def _attend(query, key, value, seen):
    """Return, for each cell, the weighted mean of the visible cells' values, `(B, H, N, D)`."""
    if query.dtype == torch.float32:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    # On a CPU, the fused attention takes three times as long in bfloat16.
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    return scores.masked_fill(~seen, float("-inf")).softmax(-1).to(value.dtype) @ value


def _merge(heads):
    """Concatenate the heads: reshape `(B, H, N, D)` to `(B, N, H * D)`."""
    return heads.transpose(1, 2).flatten(2)


def _in_full_precision(dense, x):
    with torch.autocast("cpu", enabled=False):
        return dense(x.float())


NETWORKS = {"book": BookNetwork, "fast": FastNetwork, "box-world": BoxWorldNetwork}
"""Dict from a preset to its network."""


def copy_weights(network, weights):
    """Fill a network with the weights of a Keras model.

    Args:
        network: one of `NETWORKS`.
        weights: dict from the path of a Keras variable to an array, such as
            `{"net/relations/block/dense_1/kernel": ...}`.

    Raises:
        ValueError: if a weight or a parameter has no counterpart.
    """
    parameters = dict(network.named_parameters())
    with torch.no_grad():
        for path, array in weights.items():
            parameter = parameters.pop(_parameter_name(path), None)
            tensor = torch.tensor(array)
            if path.endswith("/kernel"):
                tensor = tensor.permute(3, 2, 0, 1) if tensor.ndim == 4 else tensor.T
            if parameter is None or parameter.shape != tensor.shape:
                raise ValueError(f"{type(network).__name__} has no place for {path} {array.shape}")
            parameter.copy_(tensor)
    if parameters:
        raise ValueError(f"{type(network).__name__} got no weights for {', '.join(parameters)}")


def _parameter_name(path):
    """Return `block.query_norm.weight` for `net/relations/block/attention/query_norm/gamma`."""
    _, *modules, kind = path.split("/")
    modules = [name for name in modules if name not in ("relations", "attention", "positions")]
    kind = {"kernel": "weight", "gamma": "weight", "beta": "bias"}.get(kind, kind)
    return ".".join([*modules, kind])
