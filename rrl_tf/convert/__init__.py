"""Load weights of the original implementations into our models."""

from rrl_tf.convert.deep_rl_in_action import deep_rl_in_action
from rrl_tf.convert.hugging_face_decision_transformer import hugging_face_decision_transformer
from rrl_tf.convert.min_decision_transformer import min_decision_transformer
from rrl_tf.convert.patch_mnist import patch_mnist
from rrl_tf.convert.sonnet_relational_memory import sonnet_relational_memory

__all__ = [
    "deep_rl_in_action",
    "hugging_face_decision_transformer",
    "min_decision_transformer",
    "patch_mnist",
    "sonnet_relational_memory",
]
