"""Named configurations of the models, and where their numbers come from.

A preset is a dict with a `description`, a `source`, and a `config`: keyword arguments of the model.
"""

import copy

RELATIONAL_Q_NETWORK = {
    "book": {
        "description": (
            "The chapter's multi-head relational module, exactly: 91,597 parameters on a "
            "(7, 7, 3) view and 5 actions. Its scores are not pairwise, and the ELU keeps every "
            "Q value above -1."
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
            # PyTorch's default for linear layers and convolutions: U(-1, 1) / sqrt(fan in).
            "kernel_initializer": {
                "class_name": "VarianceScaling",
                "config": {"scale": 1 / 3, "mode": "fan_in", "distribution": "uniform"},
            },
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
            "learned positions, two rounds of dot-product attention among the cells in sight, a "
            "dueling head that reads the agent's cell alone. Whatever it knows of key, door and "
            "goal has come to the agent by attention."
        ),
        "source": "rrl_tf, chosen by measurement; see docs/doorkey.md",
        "config": {
            "num_actions": 5,
            "conv_filters": (32,),
            "position_embedding": True,
            "block": {"num_heads": 2, "key_size": 16},
            "num_rounds": 2,
            "unseen_feature": 0,
            "readout": "cell",
            "readout_cell": (3, 6),
            "hidden_units": (64,),
            "dueling": True,
        },
    },
}


def preset_config(presets, name, overrides):
    """The configuration of a preset, with some arguments replaced.

    Args:
        presets: dict name -> preset.
        name: which one.
        overrides: arguments to replace. Where both the preset's value and the override are dicts
            (as `block=`), the override's entries replace the preset's one by one.

    Returns:
        A new dict of keyword arguments.

    Raises:
        ValueError: for an unknown name; it lists the known ones.
    """
    if name not in presets:
        raise ValueError(f"Unknown preset {name!r}. The presets are: {', '.join(presets)}")
    config = copy.deepcopy(presets[name]["config"])
    for argument, value in overrides.items():
        if isinstance(value, dict) and isinstance(config.get(argument), dict):
            value = {**config[argument], **value}
        config[argument] = value
    return config
