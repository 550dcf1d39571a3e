"""Benchmarks of speed: one command writes one table.

All run in one process on one thread, except for servers. Against PyTorch
(`pip install torch==2.13.0`) both sides start with the same weights, and there is no table unless
their first losses are equal. PyTorch's `FlopCounterMode` counts the matrix products. "Share of the
product rate" is that count divided by the time and by the rate of a large matrix product in
TensorFlow of the same precision, which takes turns with the sides.
"""
