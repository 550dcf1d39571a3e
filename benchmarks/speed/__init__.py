"""Measure speed; each command writes one table.

All benchmarks except those of servers run in one process on one thread. In a comparison with
PyTorch (`pip install torch==2.13.0`), both implementations start with the same weights, and no
table is written unless their first losses are equal. "Fraction of the matmul rate" is the rate of
floating-point operations in an update, which PyTorch's `FlopCounterMode` counts, divided by the
rate of a large matrix product in TensorFlow with the same precision.
"""
