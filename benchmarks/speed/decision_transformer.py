"""What a training step of the Decision Transformer costs, beside min-decision-transformer's.

The same network (post-norm, GELU, width 128, 3 blocks, windows of 20 steps), the same windows, the
same optimiser, in Keras and in PyTorch; and the pipeline that makes the windows. Ours updates in
the last block only what the actions are predicted from.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import median
from benchmarks.pytorch import comparison
from benchmarks.pytorch.comparison import COMPILED, EAGER, OURS, OURS_XLA, PRECISIONS
from benchmarks.pytorch.decision_transformer import TorchDecisionTransformer, TorchTrainer
from benchmarks.speed.offline_data import ACTIONS, STATES, made_up_data
from rrl_tf.convert import min_decision_transformer
from rrl_tf.models import DecisionTransformer
from rrl_tf.offline import Scaling, Windows

LENGTH = 20


@dataclasses.dataclass(frozen=True)
class Config(comparison.Config):
    """What is compared, and how long."""

    compiled: bool = True
    """Compare with `torch.compile` too."""
    batch_size: int = 64


def main(config):
    """Measures the CPU time of one training step, ours and PyTorch's."""
    data = made_up_data()
    # Full windows: PyTorch's network has no mask, and would attend to padding in front.
    windows = Windows(data, LENGTH, sampling="episodes")
    scaling = Scaling.of(data, return_scale=1000.0)
    window = scaling.window(windows.batch(config.batch_size, 0))
    batch = {name: np.asarray(values) for name, values in window.items()}
    pipeline = iter(windows.dataset(config.batch_size, scaling))
    steps, products = {}, count_products(batch)
    for precision in config.precisions:
        add_contestants(steps, precision, batch, config)

    def notes(seconds):
        batches = median(seconds["pipeline"])
        faster = min(median(seconds[name]) for name in steps) / batches
        return (
            f"CPU time of a step at batch {config.batch_size}, one thread; the last three columns "
            "are ratios of medians.",
            f"Matrix products of the original's step: {products / 1e9:.2f} GFLOP; the share counts "
            "all of them for every contestant, though ours leaves out what no action is predicted "
            "from.",
            f"The input pipeline makes a batch in {1e3 * batches:.2g} ms, {faster:.0f} × faster "
            "than the fastest step (aim: 5 ×).",
        )

    return comparison.compare(
        config,
        "Cost of one training step of the Decision Transformer",
        ("precision", "step"),
        steps,
        dict.fromkeys(steps, products),
        notes,
        pipeline=lambda: next(pipeline),
    )


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
    comparison.check_equal(losses, precision)


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
