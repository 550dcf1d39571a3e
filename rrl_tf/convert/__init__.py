"""Weights of the original implementations, filled into our models."""

from rrl_tf.convert.deep_rl_in_action import deep_rl_in_action

__all__ = ["deep_rl_in_action"]
