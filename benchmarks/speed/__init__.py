"""Every speed claim: one command, one table.

One process and one thread; contestants take turns, so that a change of the machine's speed meets
all of them; tables hold medians. CPU time is that of all threads of the process: it changes little
with who else uses the machine. Wall time is what a user waits.

Against PyTorch (`pip install torch==2.13.0`) both sides begin with the same weights, and there is
no table unless their first losses are the same. Matrix products are counted by PyTorch's
`FlopCounterMode`; the share of the matrix-product rate is that count, divided by the time, divided
by the rate of a large product in TensorFlow of the same precision, which takes turns with the rest.
"""
