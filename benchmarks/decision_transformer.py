"""What a training step of the Decision Transformer costs, beside min-decision-transformer's.

    python -m benchmarks.decision_transformer

The same network (post-norm, GELU, width 128, 3 blocks, windows of 20 steps), the same windows, the
same optimiser, in Keras and in PyTorch, with equal first losses; and the pipeline that makes the
windows. Ours updates in the last block only what the actions are predicted from. Contestants take
turns, on one thread, and the CPU time of the process counts. Needs `pip install torch==2.13.0`.
"""

import dataclasses
from typing import Literal

import gymnasium
import keras
import numpy as np
import tensorflow as tf
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.against_torch import (
    PRECISIONS,
    check_equal,
    large_product,
    milliseconds,
    notes,
    ratios,
)
from benchmarks.measure import alternate, timed, use_one_thread
from benchmarks.report import Report
from benchmarks.torch_decision_transformer import TorchDecisionTransformer, TorchTrainer
from rrl_tf.convert import min_decision_transformer
from rrl_tf.data.episodes import Episode, OfflineData
from rrl_tf.data.scaling import Scaling
from rrl_tf.data.windows import Windows
from rrl_tf.models import DecisionTransformer
from train_scripts import command_line

OURS, OURS_XLA = "ours", "ours, XLA"
EAGER, COMPILED = "PyTorch eager", "PyTorch compiled"
COLUMNS = (
    "precision",
    "step",
    "ms",
    "10 to 90 %",
    "share of the product rate",
    "of PyTorch eager",
    "of PyTorch compiled",
    "of PyTorch eager in float32",
)
STATES, ACTIONS, LENGTH = 17, 6, 20


@dataclasses.dataclass(frozen=True)
class Config:
    """What is compared, and how long."""

    precisions: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")
    """float32, and bfloat16 with float32 weights."""
    compiled: bool = True
    """Compare with `torch.compile` too."""
    batch_size: int = 64
    rounds: int = 15
    """Turns of each contestant."""
    steps: int = 2
    """Steps measured in a turn, after one that isn't."""
    product_size: int = 1024
    """Rows and columns of the large matrix product."""


def main(config):
    """Measures the CPU time of one training step, ours and PyTorch's."""
    use_one_thread()
    torch.set_num_threads(1)
    data = made_up_data()
    # Full windows: PyTorch's network has no mask, and would attend to padding in front.
    windows = Windows(data, LENGTH, sampling="episodes")
    scaling = Scaling.of(data, return_scale=1000.0)
    batch = {
        n: np.asarray(v) for n, v in scaling.window(windows.batch(config.batch_size, 0)).items()
    }
    steps = {}
    for precision in config.precisions:
        add_contestants(steps, precision, batch, config)
    rates = {
        precision: large_product(precision, config.product_size) for precision in config.precisions
    }
    pipeline = iter(windows.dataset(config.batch_size, scaling))
    contestants = {**steps, **rates, "pipeline": lambda: next(pipeline)}
    seconds = alternate(
        {name: lambda f=f: timed(f, config.steps) for name, f in contestants.items()},
        config.rounds,
    )
    rate = {p: 2 * config.product_size**3 / np.median(seconds[p]) for p in rates}
    products = count_products(batch)
    rows = [row(seconds, name, products, rate[name[0]]) for name in steps]
    Report(
        "decision_transformer",
        "Cost of one training step of the Decision Transformer",
        COLUMNS,
        rows,
        own_notes(products, seconds) + notes(rate),
        vars(config),
    ).write()


def made_up_data(episodes=50, steps=500):
    """Random numbers in the shape of Walker2d."""
    rng = np.random.default_rng(0)
    parts = tuple(
        Episode(
            rng.normal(size=(steps + 1, STATES)).astype("float32"),
            rng.uniform(-1, 1, size=(steps, ACTIONS)).astype("float32"),
            rng.normal(size=steps).astype("float32"),
            False,
            True,
        )
        for _ in range(episodes)
    )
    return OfflineData("made up", parts, gymnasium.spaces.Box(-1, 1, (ACTIONS,)), "none")


def add_contestants(steps, precision, batch, config):
    """Adds `(precision, who) → function` for all that make a training step.

    Raises:
        ValueError: if ours and PyTorch's compute something else.
    """
    torch.manual_seed(0)
    network = TorchDecisionTransformer(STATES, ACTIONS)
    weights = network.state_dict()
    window = {name: torch.from_numpy(np.array(values)) for name, values in batch.items()}
    losses = {}
    for who, compiled in ((EAGER, False), *(((COMPILED, True),) if config.compiled else ())):
        twin = TorchDecisionTransformer(STATES, ACTIONS)
        twin.load_state_dict(weights)
        trainer = TorchTrainer(twin, 1e-4, 1e-4, 0.25, precision == "bfloat16", compiled)
        twin.eval()
        losses[who] = trainer.loss(window).item()
        steps[precision, who] = lambda trainer=trainer: trainer.step(window)
    inputs = {name: tf.constant(values) for name, values in batch.items()}
    targets, real = {"action": inputs["actions"]}, {"action": inputs["mask"]}
    for who, jit_compile in ((OURS, False), (OURS_XLA, True)):
        model = our_model(weights, precision, jit_compile)
        losses[who] = model.evaluate(inputs, targets, sample_weight=real, verbose=0)
        steps[precision, who] = lambda model=model: model.train_on_batch(inputs, targets, real)
    check_equal(losses, precision)


def our_model(weights, precision, jit_compile):
    """Our network with the original's weights, compiled to train on actions."""
    whole = DecisionTransformer.from_preset("min-dt", state_size=STATES, action_size=ACTIONS)
    whole.build()
    min_decision_transformer(whole, weights)
    model = DecisionTransformer.from_preset(
        "min-dt",
        state_size=STATES,
        action_size=ACTIONS,
        heads=("action",),
        dtype=PRECISIONS[precision],
    )
    model.build()
    model.set_weights(whole.get_weights()[: len(model.weights)])
    model.compile(
        keras.optimizers.AdamW(1e-4, weight_decay=1e-4, global_clipnorm=0.25),
        {"action": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")},
        jit_compile=jit_compile,
    )
    return model


def count_products(batch):
    """Floating-point operations of the matrix products in a step of the original."""
    trainer = TorchTrainer(TorchDecisionTransformer(STATES, ACTIONS), 1e-4, 1e-4, 0.25, False)
    window = {name: torch.from_numpy(np.array(values)) for name, values in batch.items()}
    with FlopCounterMode(display=False) as counter:
        trainer.step(window)
    return counter.get_total_flops()


def row(seconds, name, products, rate):
    """A line of the table."""
    precision, who = name
    eager, compiled = (precision, EAGER), (precision, COMPILED)
    values = (
        precision,
        who,
        *milliseconds(seconds[name]),
        f"{products / np.median(seconds[name]) / rate:.0%}",
        *ratios(seconds, name, (eager, compiled, ("float32", EAGER))),
    )
    return dict(zip(COLUMNS, values))


def own_notes(products, seconds):
    """What the table leaves out."""
    pipeline = np.median(seconds["pipeline"])
    fastest = min(np.median(values) for name, values in seconds.items() if isinstance(name, tuple))
    return (
        "CPU time of a step at batch 64, one thread; the last three columns are ratios of medians.",
        f"Matrix products of the original's step: {products / 1e9:.2f} GFLOP; the share counts all "
        "of them for every contestant, though ours leaves out what no action is predicted from.",
        f"The input pipeline makes a batch in {1e3 * pipeline:.2g} ms, {fastest / pipeline:.0f} × "
        "faster than the fastest step (aim: 5 ×).",
    )


if __name__ == "__main__":
    command_line.run(main, Config)
