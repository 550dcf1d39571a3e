"""Measure a training step of the Relational Memory, of a PyTorch port, and of LSTMs.

A step consists of the forward pass, the backward pass and Adam for a batch of sequences, which a
memory reads and a dense layer classifies. Our step is `train_on_batch`, as in `fit`. It uses Keras'
loop over time or unrolls it (`unroll=True`), without and with XLA (`jit_compile`). The step in
PyTorch has the structure of the best-known port (`benchmarks.pytorch.relational_memory`) and is
eager, once with the port's norms and once with those of the original, over rows. The LSTMs are
Keras', one with the same output size and one with the same number of parameters.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf
import torch

from benchmarks.measure import Report, Rounds, median, middle, take_turns
from benchmarks.pytorch.relational_memory import TorchRelationalMemory
from rrl_tf.layers import RelationalMemory

CLASSES = 8
PORT = "PyTorch, the port's structure"


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """Set the sizes and the number of measurements."""

    batch: int = 64
    steps: int = 8
    """T."""
    features: int = 40
    mem_slots: int = 8
    num_heads: int = 8
    head_size: int = 32
    calls: int = 3


def main(config):
    """Measure the CPU time of one training step."""
    steps = make_steps(config)
    seconds = take_turns({name: step for name, (step, _) in steps.items()}, config)
    rows = [
        {
            "layer": name,
            "parameters": f"{parameters:,}",
            "ms": 1e3 * median(seconds[name]),
            "10 to 90 %": middle(1e3 * seconds[name]),
            "time relative to the port": median(seconds[name] / seconds[PORT]),
        }
        for name, (_, parameters) in steps.items()
    ]
    notes = (
        "CPU time of a training step (forward, backward, Adam), one thread, medians. The last "
        "column is the median ratio to the time of the PyTorch port in the same round.",
        f"B = {config.batch}, T = {config.steps}, {config.features} features, {config.mem_slots} "
        f"slots, {config.num_heads} heads of {config.head_size}, a dense layer to {CLASSES} "
        "classes; float32.",
        "Target: at most 0.6 of the time of the PyTorch port.",
    )
    return Report("Cost of a training step of a memory", rows, notes)


def make_steps(config):
    """Return a dict from names to (function for one training step, number of parameters)."""
    size = config.mem_slots * config.num_heads * config.head_size

    def memory(**options):
        return RelationalMemory(config.mem_slots, config.head_size, config.num_heads, **options)

    units = lstm_units(memory(), config)
    return {
        "ours, unroll=True": keras_step(memory(unroll=True), config),
        "ours, unroll=True, XLA": keras_step(memory(unroll=True), config, jit_compile=True),
        "ours, looped": keras_step(memory(), config),
        "ours, looped, XLA": keras_step(memory(), config, jit_compile=True),
        PORT: torch_step(config),
        "PyTorch, norms over rows": torch_step(config, norm_rows=True),
        f"LSTM of {size} units: the same output": keras_step(keras.layers.LSTM(size), config),
        f"LSTM of {units} units: the same parameters": keras_step(keras.layers.LSTM(units), config),
    }


def lstm_units(memory, config):
    """Return the number of units of the LSTM with about as many parameters as the memory."""
    memory.build((None, None, config.features))
    units = np.arange(1, 5000)
    parameters = 4 * units * (config.features + units + 1)
    return int(units[np.abs(parameters - memory.count_params()).argmin()])


def sequences(config):
    """Return a batch `(B, T, F)` float32 and classes `(B,)`."""
    rng = np.random.default_rng(0)
    shape = (config.batch, config.steps, config.features)
    return rng.normal(size=shape).astype("float32"), rng.integers(CLASSES, size=config.batch)


def keras_step(core, config, jit_compile=False):
    """Return a training step of a Keras layer and a dense layer, and their number of parameters."""
    inputs = keras.Input((config.steps, config.features))
    model = keras.Sequential([inputs, core, keras.layers.Dense(CLASSES)])
    model.compile(
        keras.optimizers.Adam(1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    x, y = (tf.constant(part) for part in sequences(config))
    return lambda: model.train_on_batch(x, y), model.count_params()


def torch_step(config, norm_rows=False):
    """Return the same step for the memory in PyTorch, and its number of parameters."""
    size = config.num_heads * config.head_size
    memory = TorchRelationalMemory(
        config.features, config.mem_slots, config.head_size, config.num_heads, norm_rows
    )
    model = torch.nn.Sequential(memory, torch.nn.Linear(config.mem_slots * size, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    x, y = (torch.tensor(part) for part in sequences(config))

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, sum(parameter.numel() for parameter in model.parameters())
