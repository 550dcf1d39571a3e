"""Define the named architectures of the models, and where their sizes come from.

An architecture is a dict with a `description`, a `source` and a `config`, the keyword arguments of
the model. `Model.from_preset(name)` returns the model with new weights. `from_preset` also accepts
the names of pretrained models, which are folders in `rrl_tf/pretrained`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

Architecture: TypeAlias = Mapping[str, Any]

# PyTorch's default for linear layers and convolutions: U(-1, 1) / sqrt(fan in).
_TORCH_UNIFORM = {
    "class_name": "VarianceScaling",
    "config": {"scale": 1 / 3, "mode": "fan_in", "distribution": "uniform"},
}

RELATIONAL_Q_NETWORK: dict[str, Architecture] = {
    "book": {
        "description": (
            "The multi-head relational module of the book's chapter 10, whose scores are not "
            "pairwise and whose Q values stay above -1: 91,597 parameters for a (7, 7, 3) "
            "observation and 5 actions."
        ),
        "source": (
            "Zai and Brown, Deep Reinforcement Learning in Action (2020), listing 10.7; "
            "notebook `Chapter 10/Ch10_book.ipynb`"
        ),
        "config": {
            "num_actions": 5,
            "conv_filters": (16, 20),
            "coordinates": {"low": 0.0, "high": 1.0, "divisor": "size"},
            "block": {
                "num_heads": 3,
                "key_size": 64,
                "units": (64,),
                "activation": "relu",
                "residual": False,
                "norm": "joint",
                "score": "book_additive",
                "qkv_norm": "joint",
            },
            "hidden_units": (),
            "output_activation": "elu",
            "kernel_initializer": _TORCH_UNIFORM,
        },
    },
    "zambaldi": {
        "description": (
            "The relational architecture of the Box-World and StarCraft agents, with Q values "
            "instead of a policy: two rounds that share their weights, for grids of any size."
        ),
        "source": (
            "Zambaldi et al., Deep Reinforcement Learning with Relational Inductive Biases (2019); "
            "padding and norms as in github.com/mavischer/DRRL"
        ),
        "config": {
            "num_actions": 5,
            "conv_filters": (12, 24),
            "conv_kernel_size": 2,
            "conv_padding": "top_left",
            "coordinates": {"low": -1.0, "high": 1.0, "divisor": "size_minus_one"},
            "block": {
                "num_heads": 2,
                "key_size": 64,
                "value_size": 26,
                "units": (26, 26),
                "activation": "relu",
                "residual": True,
                "norm": "entity",
                "qkv_norm": "entity",
            },
            "num_rounds": 2,
            "share_weights": True,
            "hidden_units": (256, 256, 256, 256),
        },
    },
    "fast": {
        "description": (
            "Our own architecture, small and quick to train on a CPU: one-hot cells, learned "
            "positions, two rounds of dot-product attention among the visible cells, and a dueling "
            "head that reads the agent's cell only, so that all information about other cells must "
            "reach this cell by attention."
        ),
        "source": "rrl_tf, chosen by measurement; see docs/tasks/doorkey.md",
        # `unseen_feature`, `readout_cell` and `readout_feature` come from the preprocessor.
        "takes_preprocessor": True,
        "config": {
            "num_actions": 5,
            "conv_filters": (32,),
            "position_embedding": True,
            "block": {"num_heads": 2, "key_size": 16},
            "num_rounds": 2,
            "hidden_units": (64,),
            "dueling": True,
        },
    },
}
RELATIONAL_Q_NETWORK["fast-relative"] = {
    **RELATIONAL_Q_NETWORK["fast"],
    "description": (
        "The architecture `fast` with relative positions, for grids of any size: a learned bias "
        "for the offset between two cells instead of a learned vector for every cell."
    ),
    "config": {
        **RELATIONAL_Q_NETWORK["fast"]["config"],
        "position_embedding": False,
        "block": {**RELATIONAL_Q_NETWORK["fast"]["config"]["block"], "max_offset": 6},
    },
}
RELATIONAL_Q_NETWORK["grid"] = {
    "description": (
        "Our own architecture for grids whose agent may be in any cell: a 3 x 3 convolution, "
        "coordinates, one round of attention, and a dueling head that reads the cells which four "
        "learned queries attend to."
    ),
    "source": "rrl_tf, chosen by measurement; see docs/experiments/small_grids.md",
    "takes_preprocessor": True,
    "config": {
        "num_actions": 4,
        "conv_filters": (32,),
        "conv_kernel_size": 3,
        "conv_padding": "same",
        "coordinates": {},
        "block": {"num_heads": 2, "key_size": 16},
        "num_rounds": 1,
        "readout": "attention",
        "hidden_units": (64,),
        "dueling": True,
    },
}
RELATIONAL_Q_NETWORK["atari"] = {
    "description": (
        "A relational agent for Atari games: two 4 x 4 convolutions with max-pooling between them "
        "turn 84 x 84 pixels into 81 entities for two rounds of attention."
    ),
    "source": (
        "Zambaldi et al., Deep Reinforcement Learning with Relational Inductive Biases (2019), and "
        "figure 10.25 of Zai and Brown (2020), in sizes for a CPU; see docs/tasks/atari.md"
    ),
    "config": {
        "num_actions": 18,
        "conv_filters": (16, 64),
        "conv_kernel_size": 4,
        "conv_strides": 2,
        "conv_pool": (2, 1),
        "coordinates": {"low": -1.0, "high": 1.0, "divisor": "size_minus_one"},
        "block": {
            "num_heads": 2,
            "key_size": 16,
            "units": (66,),
            "activation": "relu",
            "norm": "entity",
            "qkv_norm": "entity",  # without it, image patches are too similar
        },
        "num_rounds": 2,
        "hidden_units": (256,),
        "dueling": True,
        "random_shift": 4,
    },
}


def _sequence_classifiers(name, task, memory, lstm_units, transformer, hidden_units):
    """Return a Relational Memory and two baselines whose parameter counts differ by at most 2 %."""
    cores = {
        "": ("relational_memory", {**memory, "unroll": True}),
        "-lstm": ("lstm", {"units": lstm_units, "unroll": True}),
        "-transformer": ("transformer", {**transformer, "norm": "pre"}),
    }
    return {
        f"{name}{suffix}": {
            "description": (
                f"A classifier for the Nth-farthest task with {task}; its core is the "
                f"{core.replace('_', ' ')}."
            ),
            "source": (
                "Santoro et al., Relational recurrent neural networks (2018), sizes as in "
                "github.com/L0SG/relational-rnn-pytorch"
                if name + suffix == "paper"
                else "rrl_tf; see docs/tasks/relational_memory.md"
            ),
            "config": {
                "num_classes": memory["mem_slots"],
                "core": core,
                "core_arguments": arguments,
                "hidden_units": hidden_units,
            },
        }
        for suffix, (core, arguments) in cores.items()
    }


MEMORY_SEQUENCE_CLASSIFIER: dict[str, Architecture] = {
    **_sequence_classifiers(
        "fast",
        "4 vectors of 4 numbers",
        memory={"mem_slots": 4, "head_size": 16, "num_heads": 4},
        lstm_units=103,
        transformer={"width": 46, "num_blocks": 2, "num_heads": 2},
        hidden_units=(64, 64),
    ),
    **_sequence_classifiers(
        "five",
        "5 vectors of 4 numbers",
        memory={"mem_slots": 5, "head_size": 16, "num_heads": 4},
        lstm_units=106,
        transformer={"width": 48, "num_blocks": 2, "num_heads": 4},
        hidden_units=(64, 64),
    ),
    **_sequence_classifiers(
        "eight",
        "8 vectors of 16 numbers on a CPU",
        memory={"mem_slots": 8, "head_size": 16, "num_heads": 4, "key_size": 32},
        lstm_units=166,
        transformer={"width": 66, "num_blocks": 3, "num_heads": 3},
        hidden_units=(256, 256, 256),
    ),
    **_sequence_classifiers(
        "paper",
        "8 vectors of 16 numbers",
        memory={"mem_slots": 8, "head_size": 32, "num_heads": 8},
        lstm_units=481,
        transformer={"width": 172, "num_blocks": 3, "num_heads": 4},
        hidden_units=(256, 256, 256, 256),
    ),
}


RELATIONAL_CLASSIFIER: dict[str, Architecture] = {
    "book": {
        "description": (
            "The relational module of the book's chapter 10: 85,228 parameters for a (28, 28, 1) "
            "image, 256 entities after four convolutions, one head."
        ),
        "source": "Zai and Brown, Deep Reinforcement Learning in Action (2020), listing 10.2",
        "config": {
            "conv_filters": (16, 20, 24, 30),
            "conv_kernel_size": 4,
            "conv_strides": 1,
            "conv_padding": "valid",
            "coordinates": {"low": 0.0, "high": 1.0, "divisor": "size"},
            "block": {
                "num_heads": 1,
                "key_size": 36,
                "units": (36,),
                "activation": "relu",
                "residual": False,
                "norm": "joint",
                "qkv_norm": "joint",
            },
            "kernel_initializer": _TORCH_UNIFORM,
        },
    },
    "fast": {
        "description": (
            "Our own architecture, for images of any size: 78,138 parameters, three convolutions "
            "that make an entity of every 4 x 4 pixels, two rounds of attention with four heads, "
            "and norms over the features of each entity."
        ),
        "source": "rrl_tf, chosen by measurement; see docs/tasks/mnist.md",
        "config": {
            "conv_filters": (32, 48, 64),
            "conv_kernel_size": (5, 3, 3),
            "conv_strides": (2, 1, 2),
            "conv_norm": True,
            "coordinates": {},
            "block": {"num_heads": 4, "key_size": 16, "qkv_norm": "entity", "norm": "entity"},
            "num_rounds": 2,
        },
    },
}

CONVOLUTIONAL_CLASSIFIER: dict[str, Architecture] = {
    "book": {
        "description": (
            "The convolutional baseline of the book's chapter 10: 88,252 parameters for a "
            "(28, 28, 1) image."
        ),
        "source": "Zai and Brown, Deep Reinforcement Learning in Action (2020), section 10.3.4",
        "config": {
            "conv_filters": (10, 16, 24, 32, 64),
            "conv_kernel_size": 4,
            "pool_after": (2,),
            "hidden_units": (128,),
            "kernel_initializer": _TORCH_UNIFORM,
        },
    },
}

PATCH_ATTENTION_CLASSIFIER: dict[str, Architecture] = {
    "patch-mnist": {
        "description": (
            "One head of self-attention over 16 patches of 7 x 7 pixels: 15,200 parameters for a "
            "(28, 28, 1) image."
        ),
        "source": '"Self-Attention", SensIO blog, 17 March 2021',
        "config": {
            "patch_size": 7,
            "num_heads": 1,
            "key_size": 49,
            "kernel_initializer": _TORCH_UNIFORM,
        },
    },
}

MLP_CLASSIFIER: dict[str, Architecture] = {
    "patch-mnist": {
        "description": (
            "The dense network that the blog compares with its attention: 623,290 parameters for a "
            "(28, 28, 1) image."
        ),
        "source": '"Self-Attention", SensIO blog, 17 March 2021',
        "config": {"hidden_units": (784,), "kernel_initializer": _TORCH_UNIFORM},
    },
}


_NORMAL = {"class_name": "RandomNormal", "config": {"stddev": 1.0}}
_GPT2_NORMAL = {"class_name": "RandomNormal", "config": {"stddev": 0.02}}

DECISION_TRANSFORMER: dict[str, Architecture] = {
    "min-dt": {
        "description": (
            "Post-norm blocks with GELU and dropout on the output of the attention: 1,125,912 "
            "parameters for states of size 17 and actions of size 6."
        ),
        "source": "github.com/nikhilbarhate99/min-decision-transformer",
        "config": {
            "kernel_initializer": _TORCH_UNIFORM,
            "block_initializer": _TORCH_UNIFORM,
            "embeddings_initializer": _NORMAL,
        },
    },
    "paper": {
        "description": (
            "Pre-norm GPT-2 blocks with ReLU, and dropout on the tokens and on the attention "
            "probabilities."
        ),
        "source": (
            "Chen et al., Decision Transformer (2021), sizes of the Gym experiments in "
            "github.com/kzl/decision-transformer"
        ),
        "config": {
            "max_timestep": 1000,
            "embedding_dropout": 0.1,
            "dropout_placement": "probabilities",
            "norm": "pre",
            "activation": "relu",
            "kernel_initializer": _TORCH_UNIFORM,
            "block_initializer": _GPT2_NORMAL,
            "embeddings_initializer": _NORMAL,
        },
    },
    "fast": {
        "description": (
            "Our own architecture: pre-norm blocks that predict the action only, so that the last "
            "block updates only a third of the tokens."
        ),
        "source": "rrl_tf; see docs/tasks/decision_transformer.md",
        "config": {
            "max_timestep": 1024,
            "norm": "pre",
            "heads": ("action",),
            "embeddings_initializer": _GPT2_NORMAL,
        },
    },
}

RELATIONAL_VQA: dict[str, Architecture] = {
    "fast": {
        "description": (
            "Our own architecture for Sort-of-CLEVR: two convolutions that turn a (75, 75, 3) "
            "image into 9 x 9 cells (nearly every object covers the centre of a cell), sines and "
            "cosines for the positions of the cells, and three rounds of attention with four heads "
            "between cells and questions."
        ),
        "source": "rrl_tf, chosen by measurement; see docs/tasks/sort_of_clevr.md",
        "config": {
            "coordinates": {"frequencies": [math.pi / 4 * w for w in (1, 2, 4, 8)]},
            "block": {"num_heads": 4, "key_size": 16, "qkv_norm": "entity", "norm": "entity"},
        },
    },
}

CONVOLUTIONAL_VQA: dict[str, Architecture] = {
    "fast": {
        "description": (
            "A baseline for Sort-of-CLEVR: four convolutions with 24 channels and dense layers, "
            "with about as many parameters as the relational model."
        ),
        "source": (
            "convolutions of github.com/kimhc6028/relational-networks without batch normalisation; "
            "our own sizes of the dense layers"
        ),
        "config": {"hidden_units": (150, 150)},
    },
}


_SLOTS = {"mem_slots": 4, "head_size": 16, "num_heads": 2}
# A memory that forgets less at the start of training is easier to train.
_RELATIONAL = {"core": "relational_memory", "core_arguments": {**_SLOTS, "forget_bias": 2.0}}
_MEMORIES = {
    "relational-memory-entities": (
        "a Relational Memory of 4 slots that attend to the visible cells",
        {**_RELATIONAL, "memory_input": "entities"},
    ),
    "relational-memory": (
        "a Relational Memory of 4 slots that reads one vector per step",
        _RELATIONAL,
    ),
    "relational-memory-long": (
        "a Relational Memory of 4 slots that reads one vector per step and whose units initially "
        "remember up to 40 steps",
        {**_RELATIONAL, "core_arguments": {**_SLOTS, "time_scale": 40}},
    ),
    "lstm": ("an LSTM of 64 units", {"core": "lstm", "core_arguments": {"units": 64}}),
    "lstm-long": (
        "an LSTM of 64 units that initially remember up to 40 steps",
        {"core": "lstm", "core_arguments": {"units": 64, "time_scale": 40}},
    ),
    "window": (
        "a causal transformer over the last 16 steps",
        {"core": "window", "core_arguments": {"context_length": 16, "width": 64}},
    ),
    "none": (
        "a dense layer instead of a memory, as a baseline",
        {"core": "none", "core_arguments": {"units": 64}},
    ),
}


def _recurrent_q_networks():
    """Combine every memory with both encoders, except memories of entities and the dense encoder.

    Only the relational encoder has entities.
    """
    grid = RELATIONAL_Q_NETWORK["fast"]["config"]
    names = ("conv_filters", "position_embedding", "block", "num_rounds")
    relational = {name: grid[name] for name in names}
    dense = ("Two dense layers", "dense", {"hidden_units": (64, 32)})
    cell = ("The cells and relations of `fast`", "relational", relational)
    # Networks that read the agent's cell learn what to remember much later than networks that read
    # the maximum of every feature; see docs/experiments/memory.md.
    maximum = (
        "The cells and relations of `fast`, with the maximum of each feature as the readout",
        "relational",
        {**relational, "readout": "max"},
    )
    return {
        f"{name}{suffix}": {
            "description": f"{view}, and {memory}.",
            "source": "rrl_tf; sizes as in Kapturowski et al. (2019) scaled down to small grids",
            "config": {
                "num_actions": 5,
                "encoder": encoder,
                "encoder_arguments": arguments,
                "hidden_units": (64,),
                **core,
            },
        }
        for name, (memory, core) in _MEMORIES.items()
        for suffix, (view, encoder, arguments) in (
            ("", maximum if name.endswith("-long") else cell),
            ("-dense", dense),
        )
        if encoder == "relational" or "memory_input" not in core
    }


RECURRENT_Q_NETWORK: dict[str, Architecture] = _recurrent_q_networks()
