"""Named configurations of the models, and where their numbers come from.

A preset is a dict with a `description`, a `source`, and a `config`: keyword arguments of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Preset: TypeAlias = Mapping[str, Any]

# PyTorch's default for linear layers and convolutions: U(-1, 1) / sqrt(fan in).
_TORCH_UNIFORM = {
    "class_name": "VarianceScaling",
    "config": {"scale": 1 / 3, "mode": "fan_in", "distribution": "uniform"},
}

RELATIONAL_Q_NETWORK: dict[str, Preset] = {
    "book": {
        "description": (
            "The chapter's multi-head relational module, exactly, with scores that are not "
            "pairwise and Q values that stay above -1: 91,597 parameters on a (7, 7, 3) view and "
            "5 actions."
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
            "The relational architecture of the Box-World and StarCraft agents, with a Q value "
            "per action instead of a policy: any grid size, two rounds that share their weights."
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
            "Ours, small and quick to train on a CPU, and made to be looked at: one-hot cells, "
            "learned positions, two rounds of dot-product attention among the cells in sight, and "
            "a dueling head that reads the agent's cell alone, so that whatever it knows of key, "
            "door and goal has come to the agent by attention."
        ),
        "source": "rrl_tf, chosen by measurement; see docs/doorkey.md",
        # `unseen_feature`, `readout_cell` and `readout_feature` are the preprocessor's.
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
        "As `fast`, with relative positions: instead of a learned vector for every cell, a learned "
        "bias for the way from a cell to another, so that it takes grids of any size."
    ),
    "config": {
        **RELATIONAL_Q_NETWORK["fast"]["config"],
        "position_embedding": False,
        "block": {**RELATIONAL_Q_NETWORK["fast"]["config"]["block"], "max_offset": 6},
    },
}
RELATIONAL_Q_NETWORK["atari"] = {
    "description": (
        "The relational agent over the frames of a game: two 4 x 4 convolutions, with "
        "max-pooling between, make 81 entities of 84 x 84 pixels, which two rounds of attention "
        "relate."
    ),
    "source": (
        "Zambaldi et al., Deep Reinforcement Learning with Relational Inductive Biases (2019), and "
        "figure 10.25 of Zai and Brown (2020), in sizes for a CPU; see docs/atari.md"
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
            "qkv_norm": "entity",  # without it, patches of a picture are too alike to tell apart
        },
        "num_rounds": 2,
        "hidden_units": (256,),
        "dueling": True,
        "random_shift": 4,
    },
}


def _sequence_classifiers(name, task, memory, lstm_units, transformer, hidden_units):
    """Presets of a Relational Memory and of baselines with as many parameters, within 2 %."""
    cores = {
        "": ("relational_memory", {**memory, "unroll": True}),
        "-lstm": ("lstm", {"units": lstm_units, "unroll": True}),
        "-transformer": ("transformer", {**transformer, "norm": "pre"}),
    }
    return {
        f"{name}{suffix}": {
            "description": f"For the Nth farthest of {task}: {core.replace('_', ' ')}.",
            "source": (
                "Santoro et al., Relational recurrent neural networks (2018), sizes as in "
                "github.com/L0SG/relational-rnn-pytorch"
                if name + suffix == "paper"
                else "rrl_tf; see docs/relational_memory.md"
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


MEMORY_SEQUENCE_CLASSIFIER: dict[str, Preset] = {
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
        "paper",
        "8 vectors of 16 numbers",
        memory={"mem_slots": 8, "head_size": 32, "num_heads": 8},
        lstm_units=481,
        transformer={"width": 172, "num_blocks": 3, "num_heads": 4},
        hidden_units=(256, 256, 256, 256),
    ),
}


RELATIONAL_CLASSIFIER: dict[str, Preset] = {
    "book": {
        "description": (
            "The chapter's relational module, exactly: 85,228 parameters on a (28, 28, 1) image, "
            "256 entities after four convolutions, one head."
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
            "Ours: 78,138 parameters, three convolutions down to an entity for every 4 x 4 pixels, "
            "two rounds of four heads among them, and norms over the features of each entity, so "
            "that it takes images of any size."
        ),
        "source": "rrl_tf, chosen by measurement; see docs/mnist.md",
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

CONVOLUTIONAL_CLASSIFIER: dict[str, Preset] = {
    "book": {
        "description": (
            "The convolutional network that the chapter compares with: 88,252 parameters on a "
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

PATCH_ATTENTION_CLASSIFIER: dict[str, Preset] = {
    "patch-mnist": {
        "description": (
            "One head of self-attention over 16 patches of 7 x 7 pixels: 15,200 parameters on a "
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

MLP_CLASSIFIER: dict[str, Preset] = {
    "patch-mnist": {
        "description": (
            "The network that the blog compares its attention with: 623,290 parameters on a "
            "(28, 28, 1) image."
        ),
        "source": '"Self-Attention", SensIO blog, 17 March 2021',
        "config": {"hidden_units": (784,), "kernel_initializer": _TORCH_UNIFORM},
    },
}


_NORMAL = {"class_name": "RandomNormal", "config": {"stddev": 1.0}}
_GPT2_NORMAL = {"class_name": "RandomNormal", "config": {"stddev": 0.02}}

DECISION_TRANSFORMER: dict[str, Preset] = {
    "min-dt": {
        "description": (
            "Post-norm blocks with GELU and dropout on the output of the attention: 1,125,912 "
            "parameters with 17 numbers to a state and 6 to an action."
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
            "Pre-norm GPT-2 blocks with ReLU, dropout on the tokens and on the attention "
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
            "Ours: pre-norm blocks that predict nothing but the action, so that the last one "
            "updates a third of the tokens."
        ),
        "source": "rrl_tf; see docs/decision_transformer.md",
        "config": {
            "max_timestep": 1024,
            "norm": "pre",
            "heads": ("action",),
            "embeddings_initializer": _GPT2_NORMAL,
        },
    },
}
