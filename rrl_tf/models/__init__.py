"""Models over the relational layers. `keras.ops` only."""

from rrl_tf.models.relational_q_network import RelationalQNetwork

__all__ = ["RelationalQNetwork"]
