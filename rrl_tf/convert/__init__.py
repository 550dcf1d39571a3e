"""Weights of the original implementations, filled into our models."""

from rrl_tf.convert.deep_rl_in_action import deep_rl_in_action
from rrl_tf.convert.sonnet_relational_memory import sonnet_relational_memory

__all__ = ["deep_rl_in_action", "sonnet_relational_memory"]
