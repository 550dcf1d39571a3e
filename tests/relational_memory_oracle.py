"""DeepMind's Relational Memory Core in NumPy: float64, row by row, with Sonnet's names."""

import numpy as np


def random_variables(arguments, features, num_rows=1, seed=0, deviation=0.5):
    """Return name -> array for every variable that Sonnet creates for the arguments."""
    mem_size = arguments["head_size"] * arguments.get("num_heads", 1)
    blocks = arguments.get("num_blocks", 1)
    key_size = arguments.get("key_size") or arguments["head_size"]
    qkv_size = arguments.get("num_heads", 1) * (2 * key_size + arguments["head_size"])
    gates = {"unit": 2 * mem_size, "memory": 2, None: 0}[arguments.get("gate_style", "unit")]
    linear = [(features, mem_size)] + blocks * [(mem_size, qkv_size)]
    if gates:
        linear += [(num_rows * mem_size, gates), (mem_size, gates)]
    shapes = {f"linear_{i}".removesuffix("_0"): shape for i, shape in enumerate(linear)}
    for i in range(arguments.get("attention_mlp_layers", 2)):
        shapes[f"mlp/linear_{i}"] = (mem_size, mem_size)
    rng = np.random.default_rng(seed)
    variables = {}
    for name, shape in shapes.items():
        size = deviation * np.sqrt(4 / shape[0])
        variables[f"relational_memory/{name}/w"] = rng.normal(0, size, shape)
        variables[f"relational_memory/{name}/b"] = rng.normal(0, deviation, shape[1])
    for i, size in enumerate(blocks * [qkv_size, mem_size, mem_size]):
        name = f"relational_memory/layer_norm_{i}".removesuffix("_0")
        variables[f"{name}/gamma"] = rng.normal(1, deviation / 2, size)
        variables[f"{name}/beta"] = rng.normal(0, deviation / 2, size)
    return variables


def identity(slots, size):
    memory = np.zeros((slots, size))
    for i in range(min(slots, size)):
        memory[i, i] = 1.0
    return memory


def sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


class Oracle:
    """The core with given variables; `step` processes one input of one sample."""

    def __init__(
        self,
        variables,
        mem_slots,
        head_size,
        num_heads=1,
        num_blocks=1,
        forget_bias=1.0,
        input_bias=0.0,
        gate_style="unit",
        attention_mlp_layers=2,
        key_size=None,
    ):
        self.variables = {k: np.asarray(v, "float64") for k, v in variables.items()}
        self.slots, self.head_size, self.heads = mem_slots, head_size, num_heads
        self.blocks, self.layers = num_blocks, attention_mlp_layers
        self.forget_bias, self.input_bias, self.gate_style = forget_bias, input_bias, gate_style
        self.key_size = key_size or head_size
        self.mem_size = head_size * num_heads

    def linear(self, number, row):
        return self.named_linear(f"linear_{number}".removesuffix("_0"), row)

    def named_linear(self, name, row):
        v = self.variables
        return row @ v[f"relational_memory/{name}/w"] + v[f"relational_memory/{name}/b"]

    def norm(self, number, row):
        name = f"relational_memory/layer_norm_{number}".removesuffix("_0")
        centred = (row - row.mean()) / np.sqrt(row.var() + 1e-5)
        return centred * self.variables[f"{name}/gamma"] + self.variables[f"{name}/beta"]

    def mlp(self, row):
        for i in range(self.layers):
            row = self.named_linear(f"mlp/linear_{i}", row)
            if i + 1 < self.layers:
                row = np.maximum(row, 0)
        return row

    def attention(self, block, z):
        """Return the concatenated heads of every row and the scores (H, N, N)."""
        k, d = self.key_size, self.head_size
        fused = np.stack([self.norm(3 * block, self.linear(1 + block, row)) for row in z])
        heads, scores = [], []
        for h in range(self.heads):
            columns = fused[:, h * (2 * k + d) : (h + 1) * (2 * k + d)]
            query, key, value = columns[:, :k], columns[:, k : 2 * k], columns[:, 2 * k :]
            products = query @ key.T / np.sqrt(k)
            weights = np.exp(products - products.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            scores.append(weights)
            heads.append(weights @ value)
        return np.concatenate(heads, axis=1), np.stack(scores)

    def step(self, x, memory):
        """Return the next memory and the scores of each block.

        Args:
            x: `(F,)` or `(n, F)`.
            memory: `(slots, size)`.
        """
        rows = np.stack([self.linear(0, row) for row in np.atleast_2d(x)])
        z, scores = np.concatenate([memory, rows]), []
        for block in range(self.blocks):
            heads, block_scores = self.attention(block, z)
            scores.append(block_scores)
            z = np.stack([self.norm(3 * block + 1, row) for row in z + heads])
            z = np.stack([self.norm(3 * block + 2, self.mlp(row) + row) for row in z])
        attended = z[: self.slots]
        if self.gate_style is None:
            return attended, scores
        gates = self.linear(self.blocks + 1, rows.reshape(-1))
        gates = np.stack([gates + self.linear(self.blocks + 2, row) for row in np.tanh(memory)])
        input_gate, forget_gate = np.split(gates, 2, axis=1)
        input_gate = sigmoid(input_gate + self.input_bias)
        forget_gate = sigmoid(forget_gate + self.forget_bias)
        return input_gate * np.tanh(attended) + forget_gate * memory, scores

    def run(self, sequences, memories=None):
        """Return memories (B, T, slots * size) and, per block, scores (B, T, H, N, N)."""
        outputs, scores = [], []
        for b, sequence in enumerate(np.asarray(sequences, "float64")):
            memory = identity(self.slots, self.mem_size)
            if memories is not None:
                memory = np.asarray(memories[b], "float64").reshape(memory.shape)
            for x in sequence:
                memory, blocks = self.step(x, memory)
                outputs.append(memory.reshape(-1))
                scores.append(blocks)
        leading = np.shape(sequences)[:2]
        outputs = np.reshape(outputs, (*leading, -1))
        return outputs, [np.reshape(s, (*leading, *s[0].shape)) for s in zip(*scores)]
