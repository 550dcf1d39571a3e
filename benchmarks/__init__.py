"""Every speed claim and results table: one command, one table."""

from rrl_tf.quiet import load_tensorflow

load_tensorflow()
