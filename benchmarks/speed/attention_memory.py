"""Measure the peak memory and the time of a training step of attention, with and without chunks.

Every size runs in a new process, because the peak memory of a process never falls. The number of
entities doubles until a step needs more than the limit.
"""

import concurrent.futures
import dataclasses
import multiprocessing
import resource
import time

import numpy as np
import tensorflow as tf

from benchmarks.measure import Report, use_one_thread
from rrl_tf.layers import MultiHeadDotProductAttention


@dataclasses.dataclass(frozen=True)
class Config:
    """Set the sizes of the layer and the limit of memory."""

    smallest: int = 256
    """Smallest number of entities."""
    largest: int = 32_768
    """Largest number of entities."""
    chunk_size: int = 256
    """Queries per chunk."""
    limit_mib: int = 2048
    """Limit of the memory that a step adds to its process, in MiB."""


def main(config):
    """Measure how memory and time grow with the number of entities."""
    rows, is_open = [], {None: True, config.chunk_size: True}
    entities = config.smallest
    while entities <= config.largest and any(is_open.values()):
        row = {"entities": entities}
        for chunk, label in ((None, "all queries"), (config.chunk_size, "chunks")):
            if is_open[chunk]:
                mib, seconds = in_new_process(entities, chunk)
                is_open[chunk] = mib <= config.limit_mib
                row |= {f"{label}: MiB": mib, f"{label}: CPU s": seconds}
        rows.append(row)
        entities *= 2
    note = (
        f"Four heads of size 16, one example with 64 features in float32; chunks of "
        f"{config.chunk_size} queries. A column ends after the first step above "
        f"{config.limit_mib} MiB."
    )
    return Report("Memory of attention", rows, (note,))


def in_new_process(entities, chunk):
    """Return the result of `measure_step` in a new process."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        1, mp_context=context, initializer=use_one_thread
    ) as pool:
        return pool.submit(measure_step, entities, chunk).result()


def measure_step(entities, chunk):
    """Return the MiB that two training steps add, and the CPU seconds of the second one."""
    layer = MultiHeadDotProductAttention(4, 16, output_size=64, query_chunk_size=chunk)
    layer.build((1, entities, 64))
    inputs = tf.constant(np.random.default_rng(0).normal(size=(1, entities, 64)), tf.float32)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(layer(inputs) ** 2)
        return tape.gradient(loss, layer.trainable_variables)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step()
    begun = time.process_time()
    step()
    seconds = time.process_time() - begun
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, seconds
