"""Trains relations along the edges of small graphs, and tests them on graphs twice as large.

python -m train_scripts.train_graphs                         # attention goes along the edges
python -m train_scripts.train_graphs --preset without-edges  # every node attends to every node
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import keras
import numpy as np
from keras import ops

from rrl_tf import viz
from rrl_tf.data.graphs import Graphs, RandomGraphs, connected, random_graphs
from rrl_tf.layers import RelationalBlock, RelationalModule
from rrl_tf.training import (
    FitConfig,
    FitRun,
    make_optimizer,
    make_replicas,
    require_multiple,
    require_positive,
)
from rrl_tf.training.optimizers import OptimizerName
from train_scripts import command_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEST_SEED, VALIDATION_SEED = 2**32 - 1, 2**32 - 2
"""Of graphs that are evaluated; no training draws them, whatever its seed."""
ATTENTION = "attention.png"


@dataclasses.dataclass(frozen=True)
class Config(FitConfig):
    """Every number of a run. A step is one update."""

    preset: str = "fast"
    runs: str = "runs/graphs"

    edges: bool = True
    """Attend along the edges; or from every node to every node, so that the edges are not seen."""
    num_nodes: int = 12
    """Of the graphs that are trained on; those of the test have twice as many."""
    neighbors: tuple[float, float] = (1.0, 2.0)
    """Neighbours of a node on average, at least and at most."""
    width: int = 32
    """Size of a node's state."""
    num_heads: int = 2
    """Of a round's attention."""
    key_size: int = 16
    """Of a head's queries and keys."""
    num_rounds: int = 12
    """Of message passing, with the same weights; on graphs twice as large, twice as many."""

    optimizer: OptimizerName = "adam"
    """Muon updates matrices by the orthogonal part of their momentum, and the rest as Adam."""
    learning_rate: float = 2e-3
    warmup_steps: int = 50
    clip_norm: float | None = 1.0

    steps: int = 400
    """Updates, a multiple of `log_every`."""
    batch_size: int = 64
    """Graphs."""
    test_graphs: int = 2000
    """For the evaluation at the end, of either size; a quarter of them for `eval/` in the log."""

    log_every: int = 50
    """Steps between rows of the log; a divisor of `steps`."""
    checkpoint_every: int = 100
    """Steps between checkpoints, a multiple of `log_every`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "steps", "batch_size", "test_graphs", "num_nodes", "num_rounds")
        require_positive(self, "width", "num_heads", "key_size", "log_every", "checkpoint_every")
        require_multiple(self, ("steps", "checkpoint_every"), "log_every")
        self.optimizer_options(self.steps)  # raises where the schedule has no steps left


FAST = Config()
PRESETS = {
    "fast": FAST,
    "without-edges": dataclasses.replace(FAST, preset="without-edges", edges=False),
}


def main(config: Config) -> FitRun:
    """Trains message passing on small graphs; the same command again continues."""
    replicas = make_replicas(config, config.batch_size)
    keras.utils.set_random_seed(config.seed)
    model = make_model(config)
    data = RandomGraphs(
        config.batch_size, config.log_every, config.num_nodes, config.neighbors, config.seed
    )
    run = FitRun(
        config,
        model,
        steps=config.steps,
        steps_per_epoch=config.log_every,
        checkpoint_every=config.checkpoint_every,
        replicas=replicas,
    )
    if not run.is_finished():
        data.epoch = run.step // config.log_every
        larger = make_network(config, 2 * config.num_rounds)
        count = -(-config.test_graphs // 4)
        small, large = (drawn(config, times, count, VALIDATION_SEED) for times in (1, 2))

        def measure(step):
            larger.set_weights(model.get_weights())
            right, on_larger = is_right(model, small), is_right(larger, large)
            return {"eval/accuracy": float(right.mean()), "eval/larger": float(on_larger.mean())}

        run.fit(data, measure=measure)
        run.by_chief(finish, run)
    return run


def make_network(config: Config, num_rounds: int) -> keras.Model:
    """From nodes `(B, N, 2)` and edges `(B, N, N)` of any N to logits `(B, N, 2)`.

    The rounds share their weights, so these fit a network of any number of rounds.
    """
    nodes = keras.Input((None, 2), name="nodes")
    edges = keras.Input((None, None), dtype="bool", name="edges")
    block = RelationalBlock(
        config.num_heads, config.key_size, norm="entity", dtype=config.dtype, name="block"
    )
    rounds = RelationalModule(
        block, num_rounds, share_weights=True, dtype=config.dtype, name="rounds"
    )
    x = keras.layers.Dense(config.width, dtype=config.dtype, name="node")(nodes)
    x = rounds(x, edges=edges if config.edges else None)
    logits = keras.layers.Dense(2, dtype="float32", name="head")(x)
    return keras.Model({"nodes": nodes, "edges": edges}, logits)


def make_model(config: Config) -> keras.Model:
    """A compiled network with new weights."""
    model = make_network(config, config.num_rounds)
    model.compile(
        make_optimizer(config.optimizer, **config.optimizer_options(config.steps)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=config.jit_compile,
    )
    return model


def drawn(config: Config, times: int, count: int, seed: int) -> Graphs:
    """Graphs so many times as large as those that are trained on."""
    return random_graphs(count, times * config.num_nodes, config.neighbors, seed)


def is_right(model: keras.Model, graphs: Graphs) -> np.ndarray:
    """Of which nodes `(M, N)` the model tells whether they are connected with the marked one."""
    inputs, targets = connected(graphs)
    # `predict` would trace a graph anew, and TensorFlow warn of it, for every network and size.
    logits = [
        model({name: values[i : i + 250] for name, values in inputs.items()})
        for i in range(0, len(targets), 250)
    ]
    return ops.convert_to_numpy(ops.concatenate(logits)).argmax(-1) == targets


def watched(
    model: keras.Model, graph: Graphs, edges: bool, num_rounds: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each round's attention `(H, N, N)`, and what the nodes of one graph would say after it.

    That is the probability `(N,)` that they are connected with the marked one.
    """
    block, head = model.get_layer("rounds").block, model.get_layer("head")
    x, found = model.get_layer("node")(graph.nodes), []
    for _ in range(num_rounds):
        x, attention = block(x, edges=graph.edges if edges else None, return_attention_scores=True)
        probability = ops.softmax(head(x))[0, :, 1]
        found.append((ops.convert_to_numpy(attention[0]), ops.convert_to_numpy(probability)))
    return found


def attention_figure(model: keras.Model, graphs: Graphs, config: Config) -> Figure:
    """Some rounds on the first graph with a way of eight edges, or nearly as long a one."""
    shown = int(np.abs(graphs.distances.max(axis=-1) - 8).argmin())
    graph = Graphs(*(each[shown : shown + 1] for each in graphs))
    found = watched(model, graph, config.edges, 2 * config.num_rounds)
    numbers = sorted({number for number in (1, 2, 4, 8) if number < len(found)} | {len(found)})
    return viz.graph_attention_figure(
        graph.edges[0],
        int((graph.distances[0] == 0).argmax()),
        graph.distances[0] >= 0,
        {f"round {number}": found[number - 1] for number in numbers},
    )


def floor(graphs: Graphs) -> float:
    """The best share of right answers without the edges: yes for the marked node, and one for all.

    Example:
        >>> edges = np.zeros((1, 4, 4), bool)
        >>> floor(Graphs(np.eye(2)[[[0, 1, 1, 1]]], edges, np.array([[0, 1, -1, -1]])))
        0.75
    """
    others = (graphs.distances >= 0)[graphs.distances != 0]
    right = max(others.sum(), (~others).sum()) + (graphs.distances == 0).sum()
    return float(right / graphs.distances.size)


def finish(run: FitRun) -> None:
    """The test of a run that has just been trained."""
    config, model = run.config, run.model
    larger = make_network(config, 2 * config.num_rounds)
    larger.set_weights(model.get_weights())
    small, large = (drawn(config, times, config.test_graphs, TEST_SEED) for times in (1, 2))
    right, on_small = is_right(larger, large), is_right(model, small)
    summary = {
        "parameters": model.count_params(),
        "test/accuracy": float(on_small.mean()),
        "test/larger": float(right.mean()),
        "test/larger_whole_graphs": float(right.all(axis=-1).mean()),
        "test/larger_same_rounds": float(is_right(model, large).mean()),
        "test/larger_of_distance": {
            "none" if distance < 0 else str(distance): float(
                right[large.distances == distance].mean()
            )
            for distance in np.unique(large.distances)
        },
        "floor": floor(large),
        "training_minutes": sum(row["time/epoch"] for row in run.log.rows) / 60,
    }
    run.finish(
        summary,
        f"of the nodes of {len(right):,} new graphs of {right.shape[1]} nodes {right.mean():.1%} "
        f"right, of {config.num_nodes} nodes {on_small.mean():.1%}; who does not see the edges "
        f"can be right for {summary['floor']:.1%}. {summary['parameters']:,} parameters",
        [viz.save_figure(attention_figure(model, large, config), run.folder.figures / ATTENTION)],
    )


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="fast")
