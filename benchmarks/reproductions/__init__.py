"""Every claim about learning, and about what the originals do otherwise: one command each.

What trains takes hours. What a run leaves for the tables (its metrics and its last evaluation) is
copied to `docs/results`, and tables and figures are made from those copies: `--no-train` does no
more than that.
"""
