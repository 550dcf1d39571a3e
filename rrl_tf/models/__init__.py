"""Define Keras models that use the layers of `rrl_tf.layers`.

The models use `keras.ops` only, so they run on TensorFlow, JAX and PyTorch.
"""

from rrl_tf.models.behavior_cloning import BehaviorCloning
from rrl_tf.models.decision_transformer import DecisionTransformer
from rrl_tf.models.image_classifiers import (
    ConvolutionalClassifier,
    MLPClassifier,
    PatchAttentionClassifier,
    RelationalClassifier,
)
from rrl_tf.models.memory_sequence_classifier import MemorySequenceClassifier
from rrl_tf.models.multi_input_q_network import MultiInputQNetwork
from rrl_tf.models.q_networks import (
    convolutional_q_network,
    dense_q_network,
    grid_q_network,
)
from rrl_tf.models.recurrent_q_network import RecurrentQNetwork
from rrl_tf.models.relational_q_network import RelationalQNetwork
from rrl_tf.models.vqa import ConvolutionalVQA, RelationalVQA

__all__ = [
    "BehaviorCloning",
    "ConvolutionalClassifier",
    "ConvolutionalVQA",
    "DecisionTransformer",
    "MLPClassifier",
    "MemorySequenceClassifier",
    "MultiInputQNetwork",
    "PatchAttentionClassifier",
    "RecurrentQNetwork",
    "RelationalClassifier",
    "RelationalQNetwork",
    "RelationalVQA",
    "convolutional_q_network",
    "dense_q_network",
    "grid_q_network",
]
