"""Models over the relational layers. `keras.ops` only."""

from rrl_tf.models.behavior_cloning import BehaviorCloning
from rrl_tf.models.convolutional_answerer import ConvolutionalAnswerer
from rrl_tf.models.convolutional_classifier import ConvolutionalClassifier
from rrl_tf.models.decision_transformer import DecisionTransformer
from rrl_tf.models.memory_sequence_classifier import MemorySequenceClassifier
from rrl_tf.models.mlp_classifier import MLPClassifier
from rrl_tf.models.patch_attention_classifier import PatchAttentionClassifier
from rrl_tf.models.q_networks import (
    convolutional_q_network,
    dense_q_network,
    grid_q_network,
)
from rrl_tf.models.recurrent_q_network import RecurrentQNetwork
from rrl_tf.models.relational_answerer import RelationalAnswerer
from rrl_tf.models.relational_classifier import RelationalClassifier
from rrl_tf.models.relational_q_network import RelationalQNetwork

__all__ = [
    "BehaviorCloning",
    "ConvolutionalAnswerer",
    "ConvolutionalClassifier",
    "DecisionTransformer",
    "MLPClassifier",
    "MemorySequenceClassifier",
    "PatchAttentionClassifier",
    "RecurrentQNetwork",
    "RelationalAnswerer",
    "RelationalClassifier",
    "RelationalQNetwork",
    "convolutional_q_network",
    "dense_q_network",
    "grid_q_network",
]
