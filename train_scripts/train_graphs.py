"""Train attention along the edges of small graphs, and test it on graphs twice as large.

python -m train_scripts.train_graphs                         # attention along the edges
python -m train_scripts.train_graphs --preset without-edges  # every node attends to every node
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from rrl_tf import data, training, viz
from rrl_tf.training.config import SupervisedConfig, require_positive
from train_scripts import command_line

if TYPE_CHECKING:  # `--help` is shown without Keras
    import keras
    from matplotlib.figure import Figure

TEST_SEED, VALIDATION_SEED = 2**32 - 1, 2**32 - 2
"""Seeds of the graphs for evaluation; training never draws these graphs."""


@dataclasses.dataclass(frozen=True)
class Config(SupervisedConfig):
    """Set the options of a run. A step is one update."""

    runs: str = "runs/graphs"
    edges: bool = True
    """Attend along the edges; otherwise, every node attends to every node."""
    num_nodes: int = 12
    """Number of nodes of a graph in training; test graphs have this number and twice as many."""
    neighbors: tuple[float, float] = (1.0, 2.0)
    """Smallest and largest mean number of neighbours of a node."""
    width: int = 32
    """Size of a node's state."""
    num_heads: int = 2
    """Attention heads of a round."""
    key_size: int = 16
    """Size of a head's queries and keys."""
    num_rounds: int = 12
    """Number of rounds, which share their weights; twice as many on graphs twice as large."""
    test_graphs: int = 2000
    """Number of graphs of each size in the final evaluation; `eval/` uses a quarter of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "num_nodes", "width", "num_heads", "key_size", "num_rounds")
        require_positive(self, "test_graphs")


FAST = Config(
    preset="fast",
    learning_rate=2e-3,
    warmup_steps=50,
    clip_norm=1.0,
    steps=400,
    batch_size=64,
    draw_every=200,
)
PRESETS = {
    "fast": FAST,
    "without-edges": dataclasses.replace(FAST, preset="without-edges", edges=False),
}
ABOUT = {
    "fast": "attention along the edges",
    "without-edges": "every node attends to every node",
}


def main(config: Config) -> training.FitRun:
    """Train message passing on small graphs. Repeat the command to resume the run."""
    import keras

    replicas = training.make_replicas(config, config.batch_size)
    keras.utils.set_random_seed(config.seed)
    batches = data.RandomGraphs(
        config.batch_size, config.log_every, config.num_nodes, config.neighbors, config.seed
    )
    run = training.FitRun(
        config,
        make_model(config),
        steps=config.steps,
        steps_per_epoch=config.log_every,
        checkpoint_every=config.checkpoint_every,
        replicas=replicas,
    )
    if not run.is_finished():
        batches.epoch = run.step // config.log_every
        larger = make_network(config, 2 * config.num_rounds)
        count = -(-config.test_graphs // 4)
        small, large = (draw_graphs(config, times, count, VALIDATION_SEED) for times in (1, 2))

        def measure(step):
            larger.set_weights(run.model.get_weights())
            right, on_larger = is_right(run.model, small), is_right(larger, large)
            return {"eval/accuracy": float(right.mean()), "eval/larger": float(on_larger.mean())}

        def draw(model):
            return attention_figures(model, large, config)

        figures = training.LogFigures(run.log, draw, config.draw_every)
        run.fit(batches, measure=measure, callbacks=[figures])
        run.by_chief(finish, run)
    return run


def make_network(config: Config, num_rounds: int) -> keras.Model:
    """Return a model that maps nodes `(B, N, 2)` and edges `(B, N, N)` to logits `(B, N, 2)`.

    N can be any number. The rounds share their weights, so the weights fit a network of any number
    of rounds.
    """
    import keras

    from rrl_tf.layers import RelationalBlock, RelationalModule

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
    """Return a compiled network with new weights."""
    return training.compile_classifier(make_network(config, config.num_rounds), config)


def draw_graphs(config: Config, times: int, count: int, seed: int) -> data.Graphs:
    """Return random graphs `times` as large as those in training."""
    return data.random_graphs(count, times * config.num_nodes, config.neighbors, seed)


def is_right(model: keras.Model, graphs: data.Graphs) -> np.ndarray:
    """Return a mask `(M, N)` of the nodes that the model classifies correctly."""
    from keras import ops

    inputs, targets = data.connected(graphs)
    # `predict` would trace a graph for every network and size, and TensorFlow would warn.
    logits = [
        model({name: values[i : i + 250] for name, values in inputs.items()})
        for i in range(0, len(targets), 250)
    ]
    return ops.convert_to_numpy(ops.concatenate(logits)).argmax(-1) == targets


def trace_rounds(
    model: keras.Model, graph: data.Graphs, edges: bool, num_rounds: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for each round, the attention `(H, N, N)` on one graph and the nodes' answers.

    An answer is the probability that the node is connected to the marked node, `(N,)`.
    """
    from keras import ops

    block, head = model.get_layer("rounds").block, model.get_layer("head")
    x, rounds = model.get_layer("node")(graph.nodes), []
    for _ in range(num_rounds):
        x, attention = block(x, edges=graph.edges if edges else None, return_attention_scores=True)
        probability = ops.softmax(head(x))[0, :, 1]
        rounds.append((ops.convert_to_numpy(attention[0]), ops.convert_to_numpy(probability)))
    return rounds


def attention_figures(model: keras.Model, graphs: data.Graphs, config: Config) -> dict[str, Figure]:
    """Draw some rounds on the graph whose longest path is nearest to eight edges."""
    shown = int(np.abs(graphs.distances.max(axis=-1) - 8).argmin())
    graph = data.Graphs(*(each[shown : shown + 1] for each in graphs))
    rounds = trace_rounds(model, graph, config.edges, 2 * config.num_rounds)
    numbers = sorted({number for number in (1, 2, 4, 8) if number < len(rounds)} | {len(rounds)})
    figure = viz.graph_attention_figure(
        graph.edges[0],
        int((graph.distances[0] == 0).argmax()),
        graph.distances[0] >= 0,
        {f"round {number}": rounds[number - 1] for number in numbers},
    )
    return {"attention": figure}


def floor(graphs: data.Graphs) -> float:
    """Return the accuracy of the best guess without the edges.

    This guess is "connected" for the marked node, and the more frequent answer for all others.

    Example:
        >>> edges = np.zeros((1, 4, 4), bool)
        >>> floor(data.Graphs(np.eye(2)[[[0, 1, 1, 1]]], edges, np.array([[0, 1, -1, -1]])))
        0.75
    """
    others = (graphs.distances >= 0)[graphs.distances != 0]
    right = max(others.sum(), (~others).sum()) + (graphs.distances == 0).sum()
    return float(right / graphs.distances.size)


def finish(run: training.FitRun) -> None:
    """Test and draw the trained model."""
    config, model = run.config, run.model
    larger = make_network(config, 2 * config.num_rounds)
    larger.set_weights(model.get_weights())
    small, large = (draw_graphs(config, times, config.test_graphs, TEST_SEED) for times in (1, 2))
    right = is_right(larger, large)
    summary = {
        "parameters": model.count_params(),
        "test/accuracy": float(is_right(model, small).mean()),
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
        f"node accuracy {right.mean():.1%} on {len(right):,} new graphs of {right.shape[1]} nodes, "
        f"{summary['test/accuracy']:.1%} on graphs of {config.num_nodes}; at most "
        f"{summary['floor']:.1%} without the edges. {summary['parameters']:,} parameters",
        figures=attention_figures(model, large, config),
    )


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="fast", about=ABOUT)
