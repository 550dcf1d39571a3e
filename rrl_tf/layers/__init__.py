"""Define the layers of the models. Attention layers can return their scores.

The layers use `keras.ops` only, so they run on TensorFlow, JAX and PyTorch.
"""

from rrl_tf.layers.append_coordinates import AppendCoordinates
from rrl_tf.layers.causal_transformer_block import CausalTransformerBlock
from rrl_tf.layers.censored_normal import (
    CensoredNormal,
    CensoredNormalLoss,
    censored_normal_mean,
)
from rrl_tf.layers.multi_head_dot_product_attention import MultiHeadDotProductAttention
from rrl_tf.layers.position_embedding import PositionEmbedding
from rrl_tf.layers.random_shift import RandomShift
from rrl_tf.layers.relational_block import RelationalBlock
from rrl_tf.layers.relational_memory import RelationalMemory
from rrl_tf.layers.relational_memory_cell import RelationalMemoryCell
from rrl_tf.layers.relational_module import RelationalModule
from rrl_tf.layers.relative_position_bias import RelativePositionBias
from rrl_tf.layers.trajectory_embedding import TrajectoryEmbedding

__all__ = [
    "AppendCoordinates",
    "CausalTransformerBlock",
    "CensoredNormal",
    "CensoredNormalLoss",
    "MultiHeadDotProductAttention",
    "PositionEmbedding",
    "RandomShift",
    "RelationalBlock",
    "RelationalMemory",
    "RelationalMemoryCell",
    "RelationalModule",
    "RelativePositionBias",
    "TrajectoryEmbedding",
    "censored_normal_mean",
]
