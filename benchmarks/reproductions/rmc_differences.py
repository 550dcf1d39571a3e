"""What the blog's listing and the PyTorch port compute otherwise than DeepMind's original.

The original's step in NumPy, with a switch for everything that one of the two does differently.
Each switch is turned by itself, with the same weights (drawn as the original's initialiser draws
them) and the same sequences; what is measured is how far the memories come apart. With all switches
off the step must give what `RelationalMemory` gives, or there is no table.
"""

import dataclasses

import numpy as np
from keras import ops

from benchmarks.report import Report
from rrl_tf.convert import sonnet_relational_memory
from rrl_tf.layers import RelationalMemory

BLOG, PORT = "blog", "port"


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes, as in the other benchmarks."""

    batch: int = 8
    steps: int = 8
    features: int = 40
    mem_slots: int = 8
    num_heads: int = 8
    head_size: int = 32
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Variant:
    """The original, and what others do differently."""

    mlp_relu: bool = True
    """ReLU between the layers of the dense network."""
    last_relu: bool = False
    """ReLU after its last layer too."""
    tied_mlp: bool = False
    """Its two layers are one and the same."""
    shared_mlp: bool = True
    """All blocks have the same dense network."""
    shared_attention: bool = False
    """All blocks have the same attention and norms."""
    joint_norm: bool = False
    """Norms over rows and features together instead of the features of a row."""
    norm_epsilon: float = 1e-5
    forget_bias: float = 1.0


DIFFERENCES = (
    ("no activation in the dense network", (BLOG,), 1, {"mlp_relu": False}),
    ("the dense network's ReLU after the last layer too", (PORT,), 1, {"last_relu": True}),
    ("the dense network's layers tied", (PORT,), 1, {"tied_mlp": True}),
    ("norms over rows and features together", (BLOG, PORT), 1, {"joint_norm": True}),
    ("1e-12 in the norms instead of 1e-5", (BLOG,), 1, {"norm_epsilon": 1e-12}),
    ("no forget bias", (BLOG,), 1, {"forget_bias": 0.0}),
    ("a dense network of its own for every block", (BLOG,), 2, {"shared_mlp": False}),
    ("attention and norms shared by the blocks", (PORT,), 2, {"shared_attention": True}),
)


def main(config):
    """Measures what the known differences from DeepMind's Relational Memory Core do."""
    rng = np.random.default_rng(config.seed)
    weights = {blocks: draw_weights(config, blocks, rng) for blocks in (1, 2)}
    sequences = rng.normal(size=(config.batch, config.steps, config.features))
    original = {
        blocks: run(config, w, sequences, blocks, Variant()) for blocks, w in weights.items()
    }
    for blocks in original:
        check_original(config, weights[blocks], sequences, blocks, original[blocks])
    cases = [*DIFFERENCES, *(everything(who) for who in (BLOG, PORT))]
    rows = []
    for name, who, blocks, changes in cases:
        other = run(config, weights[blocks], sequences, blocks, Variant(**changes))
        apart = np.abs(other - original[blocks]).max(axis=(0, 2))
        last = {f"after {config.steps} steps": float(apart[-1])}
        case = {"difference": name, "in": " and ".join(who), "blocks": blocks}
        rows.append({**case, "after 1 step": float(apart[0]), **last})
    spread = float(np.sqrt((original[1][:, -1] ** 2).mean()))
    notes = (
        "Largest absolute difference of any number of the memory; for scale, the root mean square "
        f"of the original's memories after {config.steps} steps is {spread:.2g}.",
        f"{config.batch} sequences of {config.steps} random vectors of {config.features}, "
        f"{config.mem_slots} slots, {config.num_heads} heads of {config.head_size}; the weights "
        "are the original's initial ones.",
        "In the row of its own networks the second block's is drawn anew.",
    )
    return Report("Differences from the original Relational Memory Core", rows, notes)


def everything(who):
    """All differences of one of the two with one block."""
    mine = [changes for _, names, blocks, changes in DIFFERENCES if who in names and blocks == 1]
    changes = {name: value for each in mine for name, value in each.items()}
    return f"all of the {who}'s with one block", (who,), 1, changes


def draw_weights(config, blocks, rng):
    """Sonnet's variables by name, and the blog's second dense network as `mlp_2/...`."""
    size = config.num_heads * config.head_size
    linears = [(config.features, size), *blocks * [(size, 3 * size)], *2 * [(size, 2 * size)]]
    shapes = {_numbered("linear", i): shape for i, shape in enumerate(linears)}
    shapes |= {f"{mlp}/linear_{i}": (size, size) for mlp in ("mlp", "mlp_2") for i in (0, 1)}
    weights = {}
    for name, shape in shapes.items():
        normal = rng.normal(size=shape)
        while (far := np.abs(normal) > 2).any():
            normal[far] = rng.normal(size=far.sum())
        weights[f"{name}/w"] = normal / np.sqrt(shape[0])
        weights[f"{name}/b"] = np.zeros(shape[1])
    for i, width in enumerate(blocks * [3 * size, size, size]):
        weights[f"{_numbered('layer_norm', i)}/gamma"] = np.ones(width)
        weights[f"{_numbered('layer_norm', i)}/beta"] = np.zeros(width)
    return weights


def _numbered(name, number):
    return f"{name}_{number}" if number else name


def check_original(config, weights, sequences, blocks, outputs):
    """Raises a `ValueError` unless `RelationalMemory` gives these outputs."""
    layer = RelationalMemory(
        config.mem_slots, config.head_size, config.num_heads, blocks, return_sequences=True
    )
    layer.build((None, None, config.features))
    variables = {
        f"relational_memory/{name}": value
        for name, value in weights.items()
        if not name.startswith("mlp_2")
    }
    sonnet_relational_memory(layer.cell, variables)
    ours = ops.convert_to_numpy(layer(sequences.astype("float32")))
    if (error := np.abs(ours - outputs).max()) > 5e-5:
        raise ValueError(f"RelationalMemory and the original in NumPy differ by {error:.1e}")


def run(config, weights, sequences, blocks, variant):
    """Memories after every step, `(B, T, mem_slots * H * D)`."""
    batch, steps, _ = sequences.shape
    size = config.num_heads * config.head_size
    memory = np.tile(np.eye(config.mem_slots, size), (batch, 1, 1))
    outputs = []
    for t in range(steps):
        memory = step(config, weights, sequences[:, t], memory, blocks, variant)
        outputs.append(memory.reshape(batch, -1))
    return np.stack(outputs, axis=1)


def step(config, weights, x, memory, blocks, variant):
    """The next memory, from the input `(B, F)` and the memory `(B, mem_slots, H * D)`."""
    row = _linear(weights, "linear", x)[:, None]
    z = np.concatenate([memory, row], axis=1)
    for block in range(blocks):
        of = 0 if variant.shared_attention else block
        fused = _norm(weights, 3 * of, _linear(weights, f"linear_{1 + of}", z), variant)
        z = _norm(weights, 3 * of + 1, z + _attend(config, fused), variant)
        mlp = "mlp" if variant.shared_mlp or block == 0 else "mlp_2"
        z = _norm(weights, 3 * of + 2, z + _mlp(weights, mlp, z, variant), variant)
    gates = _linear(weights, f"linear_{blocks + 1}", row)
    gates = gates + _linear(weights, f"linear_{blocks + 2}", np.tanh(memory))
    input_gate, forget_gate = np.split(gates, 2, axis=-1)
    kept = _sigmoid(forget_gate + variant.forget_bias) * memory
    return _sigmoid(input_gate) * np.tanh(z[:, : config.mem_slots]) + kept


def _linear(weights, name, x):
    return x @ weights[f"{name}/w"] + weights[f"{name}/b"]


def _norm(weights, number, z, variant):
    axes = (1, 2) if variant.joint_norm else (2,)
    centred = z - z.mean(axes, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + variant.norm_epsilon)
    name = _numbered("layer_norm", number)
    return normal * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def _attend(config, fused):
    batch, entities, _ = fused.shape
    heads = fused.reshape(batch, entities, config.num_heads, -1).transpose(0, 2, 1, 3)
    query, key, value = np.split(heads, 3, axis=-1)  # (B, H, N, D)
    scores = query @ key.swapaxes(-1, -2) * config.head_size**-0.5
    attention = np.exp(scores - scores.max(-1, keepdims=True))
    attention /= attention.sum(-1, keepdims=True)
    return (attention @ value).transpose(0, 2, 1, 3).reshape(batch, entities, -1)


def _mlp(weights, mlp, z, variant):
    hidden = _linear(weights, f"{mlp}/linear_0", z)
    if variant.mlp_relu:
        hidden = np.maximum(hidden, 0)
    out = _linear(weights, f"{mlp}/linear_{0 if variant.tied_mlp else 1}", hidden)
    return np.maximum(out, 0) if variant.last_relu else out


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))
