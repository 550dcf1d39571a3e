"""Every speed claim and results table: one command, one table."""

import rrl_tf  # noqa: F401  (quietens TensorFlow, if nothing has loaded it yet)
