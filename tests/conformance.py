"""One case for every layer and model, for test_conformance.py."""

import dataclasses
from collections.abc import Callable

from wrapped import OfOneArray, OfOneGraph, OfOnePicture, OfTwoSteps

from rrl_tf.layers import (
    AppendCoordinates,
    CausalTransformerBlock,
    MultiHeadDotProductAttention,
    PositionEmbedding,
    RandomShift,
    RelationalBlock,
    RelationalMemory,
    RelationalModule,
    TrajectoryEmbedding,
)
from rrl_tf.models import (
    BehaviorCloning,
    ConvolutionalClassifier,
    ConvolutionalVQA,
    DecisionTransformer,
    MemorySequenceClassifier,
    MLPClassifier,
    PatchAttentionClassifier,
    RecurrentQNetwork,
    RelationalClassifier,
    RelationalQNetwork,
    RelationalVQA,
)

NODES, FEATURES = 6, 8
ENTITIES = (NODES, FEATURES)
GRID = (3, 2, 4)
STEPS = (4, 5)
WINDOW = (4, 8)  # steps; features: state (4), action (3), return (1)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A layer or model and its known properties.

    Attributes:
        name: name in the test IDs.
        make: `make(**kwargs)` returns a new layer; kwargs are Keras' arguments (`dtype`, `name`).
        shape: shape of one input without the batch axis.
        parameters: number of parameters.
        attention: name -> shape of the scores of one input, (H, N, S) or (T, H, N, S) for a
            sequence; the name is "" if the layer returns a single array of scores.
        equivariant: whether permuting the entities permutes the output; None without entities.
        full_precision: whether the output (not the attention) stays float32 under a mixed policy.
        exact: whether the output is bit-identical when attention is returned; if not, another
            kernel rounds differently.
    """

    name: str
    make: Callable
    shape: tuple[int, ...]
    parameters: int
    attention: dict[str, tuple[int, ...]] | None = None
    equivariant: bool | None = None
    full_precision: bool = False
    exact: bool = True


def attention(name, parameters, equivariant=True, **arguments):
    arguments = {"num_heads": 2, "key_size": 5, **arguments}
    return Case(
        f"attention-{name}",
        lambda **kwargs: MultiHeadDotProductAttention(**arguments, **kwargs),
        ENTITIES,
        parameters,
        {"": (arguments["num_heads"], NODES, NODES)},
        equivariant,
    )


def block(name, parameters, equivariant=True, **arguments):
    return Case(
        f"block-{name}",
        lambda **kwargs: RelationalBlock(2, 5, **arguments, **kwargs),
        ENTITIES,
        parameters,
        {"": (2, NODES, NODES)},
        equivariant,
    )


def module(name, parameters, rounds, **arguments):
    # The block gets the dtype directly, because the module would convert it to its policy.
    def make(dtype=None, **kwargs):
        return RelationalModule(RelationalBlock(2, 5, dtype=dtype), dtype=dtype, **arguments)

    scores = {f"round_{i}": (2, NODES, NODES) for i in range(1, rounds + 1)}
    return Case(f"module-{name}", make, ENTITIES, parameters, scores, True)


def causal(name, **arguments):
    return Case(
        f"causal-{name}",
        lambda **kwargs: CausalTransformerBlock(2, **arguments, **kwargs),
        ENTITIES,
        BLOCK,
        {"": (2, NODES, NODES)},
        equivariant=False,
        exact=False,
    )


def memory(name, parameters, shape=STEPS, blocks=1, **arguments):
    entities = 3 + (shape[1] if len(shape) == 3 else 1)
    scores = {f"block_{i}": (shape[0], 2, entities, entities) for i in range(1, blocks + 1)}
    return Case(
        f"memory-{name}",
        lambda **kwargs: RelationalMemory(3, 3, 2, num_blocks=blocks, **arguments, **kwargs),
        shape,
        parameters,
        scores,
    )


def q_network(preset, shape, parameters, attention, **overrides):
    return Case(
        f"q-network-{preset}",
        lambda **kwargs: RelationalQNetwork.from_preset(preset, **overrides, **kwargs),
        shape,
        parameters,
        attention,
        full_precision=True,
        # Without attention scores, the last round updates one cell, on some CPUs in another kernel.
        exact="readout_cell" not in overrides,
    )


def classifier(kind, preset, parameters, attention=None, shape=(28, 28, 1)):
    return Case(
        f"{kind.__name__}-{preset}",
        lambda **kwargs: kind.from_preset(preset, **kwargs),
        shape,
        parameters,
        attention,
        full_precision=True,
    )


def sequence_classifier(preset, parameters, attention=None):
    # An unrolled core compiles slowly.
    looped = {} if preset.endswith("transformer") else {"core_arguments": {"unroll": False}}
    return Case(
        f"sequence-{preset}",
        lambda **kwargs: MemorySequenceClassifier.from_preset(preset, **looped, **kwargs),
        (4, 16),
        parameters,
        attention,
        full_precision=True,
        exact=not preset.endswith("transformer"),
    )


def vqa(kind, parameters, attention=None, **arguments):
    small = {"num_classes": 5, "conv_filters": (4, 6), "conv_kernel_size": (3, 2)}
    small |= {"conv_strides": (2, 2), "hidden_units": (7,), **arguments}
    return Case(
        kind.__name__,
        lambda dtype=None, **kwargs: OfOnePicture(
            kind(**small, dtype=dtype), dtype=dtype, **kwargs
        ),
        (7, 6, 3),
        parameters,
        attention,
        full_precision=True,
    )


def recurrent(preset, parameters, attention=None, **arguments):
    small = {"encoder_arguments": {"conv_filters": (8,), "block": {"num_heads": 2, "key_size": 3}}}
    small = {} if preset.endswith("dense") else small
    arguments = {"num_actions": 3, "hidden_units": (8,), **small, **arguments}
    return Case(
        f"recurrent-{preset}",
        lambda dtype=None, **kwargs: OfTwoSteps(
            RecurrentQNetwork.from_preset(preset, **arguments, dtype=dtype), dtype=dtype, **kwargs
        ),
        GRID,
        parameters,
        attention,
        full_precision=True,
        exact=False,
    )


def windows(name, make, parameters, attention=None, full_precision=True):
    # The layer gets the dtype directly, as in `module`.
    return Case(
        f"windows-{name}",
        lambda dtype=None, **kwargs: OfOneArray(make(dtype=dtype), dtype=dtype, **kwargs),
        WINDOW,
        parameters,
        attention,
        full_precision=full_precision,
        exact=False,
    )


def decision_transformer(preset, parameters, name=None, **arguments):
    sizes = {"state_size": 4, "action_size": 3, "width": 8, "num_heads": 2, "max_timestep": 9}
    return windows(
        name or preset,
        lambda **kwargs: DecisionTransformer.from_preset(preset, **sizes, **arguments, **kwargs),
        parameters,
        {f"block_{i}": (2, 12, 12) for i in (1, 2, 3)},
    )


SEEN = {"unseen_feature": 0, "readout_cell": (3, 6)}
TOKENS = 9 * 8 + (1 + 4 + 3) * 8 + 3 * 8 + 2 * 8  # embedding, three linear maps, norm
BLOCK = 4 * (8 * 8 + 8) + 2 * (8 + 8) + (8 * 32 + 32) + (32 * 8 + 8)

ROUNDS = {f"round_{i}": (2, 2, 6, 6) for i in (1, 2)}
SLOTS = {"core_arguments": {"mem_slots": 3, "head_size": 3}}
LAST_THREE = {"context_length": 3, "width": 6}

CASES = [
    attention("dot", 8 * 30 + 30),
    attention("no-bias", 8 * 30, use_bias=False),
    attention("projected", 8 * 32 + 32 + 12 * 7 + 7, value_size=6, output_size=7),
    attention("entity-norm", 8 * 32 + 32 + 2 * (5 + 5 + 6), value_size=6, qkv_norm="entity"),
    attention("fused-norm", 8 * 30 + 30 + 2 * 30, qkv_norm="fused"),
    attention("joint-norm", 8 * 30 + 30 + 2 * 3 * (2 * 6 * 5), False, qkv_norm="joint"),
    attention("additive", 8 * 30 + 30 + (25 + 5) + 25 + 5, score="additive"),
    attention("book", 8 * 30 + 30 + 2 * (30 + 6) + 36 + 6, False, score="book_additive"),
    Case("coordinates", AppendCoordinates, GRID, 0),
    Case("waves", lambda **kwargs: AppendCoordinates(frequencies=(1.0, 2.5), **kwargs), GRID, 0),
    Case("random-shift", lambda **kwargs: RandomShift(1, **kwargs), GRID, 0),
    Case("positions", PositionEmbedding, ENTITIES, 48, equivariant=False),
    block("default", 270 + 10 * 8 + 8),
    block("zambaldi", 270 + 88 + 72 + 16, units=(8, 8), activation="relu", norm="entity"),
    block("joint-norm", 270 + 10 * 7 + 7, units=(7,), residual=False, norm="joint"),
    Case(
        "block-edges",
        lambda dtype=None, **kwargs: OfOneGraph(
            RelationalBlock(2, 5, edge_size=3, dtype=dtype), dtype=dtype, **kwargs
        ),
        ENTITIES,
        358 + 3 * 2,
        {"": (2, NODES, NODES)},
        equivariant=True,
    ),
    module("one-round", 358, 1),
    module("own-weights", 3 * 358, 3, num_rounds=3),
    module("shared-weights", 358, 3, num_rounds=3, share_weights=True),
    causal("post"),
    causal("pre", norm="pre", dropout_placement="probabilities"),
    memory("default", 36 + 126 + 60 + 84 + 168),
    memory("two-blocks", 36 + 2 * (126 + 60) + 84 + 168, blocks=2, return_sequences=True),
    memory("matrices", 36 + 126 + 60 + 84 + 38 + 14, (4, 3, 5), gate_style="memory"),
    memory("no-gates", 36 + 126 + 60 + 84 + 18, gate_style=None, learned_start=True, unroll=True),
    classifier(RelationalClassifier, "book", 85_228, {"round_1": (1, 256, 256)}),
    classifier(RelationalClassifier, "fast", 78_138, {f"round_{i}": (4, 49, 49) for i in (1, 2)}),
    classifier(ConvolutionalClassifier, "book", 88_252),
    classifier(PatchAttentionClassifier, "patch-mnist", 15_200, {"round_1": (1, 16, 16)}),
    classifier(MLPClassifier, "patch-mnist", 623_290),
    sequence_classifier("fast", 60_036, {"block_1": (4, 4, 5, 5)}),
    sequence_classifier("fast-lstm", 60_516),
    sequence_classifier("fast-transformer", 60_282, {f"block_{i}": (2, 4, 4) for i in (1, 2)}),
    vqa(
        RelationalVQA,
        112 + 102 + (81 + 80) + 32 + 2 * (8 * 30 + 30 + 10 * 8 + 8) + 63 + 40,
        {f"round_{i}": (2, 10, 10) for i in (1, 2)},
        cell_units=(9,),
        width=8,
        block={"num_heads": 2, "key_size": 5},
        num_rounds=2,
    ),
    vqa(ConvolutionalVQA, 112 + 102 + 24 * 7 + 7 + 21 + 40),
    windows("tokens", lambda **k: TrajectoryEmbedding(8, 9, **k), TOKENS, full_precision=False),
    windows("cloning", lambda **k: BehaviorCloning(4, 3, (6,), **k), 4 * 6 + 6 + 6 * 3 + 3),
    windows(
        "cloning-censored",
        lambda **k: BehaviorCloning(
            4, 3, (6,), return_conditioned=True, distribution="censored_normal", **k
        ),
        5 * 6 + 6 + 6 * 3 + 3 + 3,
    ),
    decision_transformer("min-dt", TOKENS + 3 * BLOCK + 9 * (3 + 4 + 1)),
    decision_transformer("paper", TOKENS + 3 * BLOCK + 9 * (3 + 4 + 1) + 16),
    decision_transformer("fast", TOKENS + 3 * BLOCK + 9 * 3 + 16, discrete=True),
    decision_transformer(
        "fast",
        TOKENS + (5 - 9) * 8 + 3 * BLOCK + 9 * 3 + 16,
        "places",
        positions="window",
        context_length=5,
    ),
    q_network("book", (7, 7, 3), 91_597, {"round_1": (3, 49, 49)}),
    q_network("zambaldi", (4, 3, 3), 217_661, {f"round_{i}": (2, 12, 12) for i in (1, 2)}),
    q_network("fast", (7, 7, 20), 13_190, {f"round_{i}": (2, 49, 49) for i in (1, 2)}, **SEEN),
    q_network(
        "fast-relative",
        (7, 7, 20),
        13_190 - 49 * 32 + 2 * 2 * 13**2,
        {f"round_{i}": (2, 49, 49) for i in (1, 2)},
        **SEEN,
    ),
    q_network("atari", (36, 36, 4), 57_199, {f"round_{i}": (2, 9, 9) for i in (1, 2)}),
    # Parameters of the encoder (convolution, positions, two rounds), the core and the Q layers.
    recurrent(
        "relational-memory-entities",
        524 + 40 + 924 + 252,
        {**ROUNDS, "block_1": (2, 2, 10, 10)},
        **SLOTS,
    ),
    recurrent(
        "lstm-dense",
        150 + 320 + 132,
        core_arguments={"units": 5},
        encoder_arguments={"hidden_units": (6,)},
    ),
    recurrent(
        "window", 524 + 618 + 156, {**ROUNDS, "block_1": (2, 2, 3, 3)}, core_arguments=LAST_THREE
    ),
    recurrent("none", 524 + 65 + 148, ROUNDS, core_arguments={"units": 5}),
]
