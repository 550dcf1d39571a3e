"""Presets of the models that answer questions about pictures."""

from __future__ import annotations

import math

from rrl_tf.models.presets import Preset

RELATIONAL_ANSWERER: dict[str, Preset] = {
    "fast": {
        "description": (
            "Ours, for Sort-of-CLEVR: two convolutions down to 9 x 9 cells of a (75, 75, 3) "
            "picture, so that the middle of a cell lies in nearly every object, sines and cosines "
            "of their places, and three rounds of four heads among them and the questions."
        ),
        "source": "rrl_tf, chosen by measurement; see docs/sort_of_clevr.md",
        "config": {
            "coordinates": {"frequencies": [math.pi / 4 * w for w in (1, 2, 4, 8)]},
            "block": {"num_heads": 4, "key_size": 16, "qkv_norm": "entity", "norm": "entity"},
        },
    },
}

CONVOLUTIONAL_ANSWERER: dict[str, Preset] = {
    "fast": {
        "description": (
            "What the relations are compared with on Sort-of-CLEVR: four convolutions of 24 "
            "channels and dense layers, with about as many parameters."
        ),
        "source": (
            "convolutions of github.com/kimhc6028/relational-networks without their batch norms; "
            "sizes of the dense layers ours"
        ),
        "config": {"hidden_units": (150, 150)},
    },
}
