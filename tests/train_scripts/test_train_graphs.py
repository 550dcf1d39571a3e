import dataclasses
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_metrics import metrics

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]


def toy_config(tmp_path, **changes):
    from train_scripts.train_graphs import FAST

    numbers = {
        "num_nodes": 4,
        "num_rounds": 2,
        "width": 4,
        "key_size": 2,
        "steps": 4,
        "batch_size": 3,
        "test_graphs": 8,
        "warmup_steps": 1,
        "log_every": 1,
        "checkpoint_every": 2,
        "runs": str(tmp_path),
        "name": "toy",
    }
    return dataclasses.replace(FAST, **{**numbers, **changes})


@pytest.fixture(scope="module")
def trained(tmp_path_factory, few_pictures):
    """Return a finished run of `toy_config`."""
    from train_scripts import train_graphs as script

    return script.main(toy_config(tmp_path_factory.mktemp("trained")))


def test_run_writes_log_evaluation_and_figure(trained, capsys):
    from rrl_tf.data.graphs import connected
    from train_scripts import train_graphs as script

    run, config = trained, trained.config
    rows = metrics(run.folder.path)
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]
    assert all(row["eval/accuracy"] and row["eval/larger"] for row in rows)
    summary = json.loads((run.folder.path / "evaluation.json").read_text())
    small = script.draw_graphs(config, 1, 8, script.TEST_SEED)
    inputs, targets = connected(small)
    right = run.model.predict(inputs, verbose=0).argmax(-1) == targets
    assert summary["test/accuracy"] == pytest.approx(right.mean())
    assert summary["floor"] == script.floor(script.draw_graphs(config, 2, 8, script.TEST_SEED))
    report = (run.folder.path / "report.html").read_text()
    assert "8 new graphs of 8 nodes" in report
    assert (run.folder.figures / "attention.png").stat().st_size > 10_000

    script.main(config)
    assert "is already trained" in capsys.readouterr().out
    assert metrics(run.folder.path) == rows


def test_resume_after_kill_is_bit_exact(tmp_path, killed_at, trained):
    from train_scripts import train_graphs as script

    whole, config = trained.folder, toy_config(tmp_path)
    with killed_at(3):
        script.main(config)
    resumed = script.main(config).folder
    assert metrics(resumed.path) == metrics(whole.path)
    for name, array in whole.load_checkpoint()["variables"].items():
        np.testing.assert_array_equal(resumed.load_checkpoint()["variables"][name], array)


def test_answer_depends_on_edges_only_with_edges(tmp_path):
    from train_scripts import train_graphs as script

    rng = np.random.default_rng(0)
    nodes = np.eye(2, dtype="float32")[rng.integers(2, size=(3, 6))]
    graphs = [{"nodes": nodes, "edges": rng.random((3, 6, 6)) < 0.5} for _ in range(2)]
    for edges in (True, False):
        network = script.make_network(toy_config(tmp_path, edges=edges), 3)
        one, other = (np.asarray(network(graph)) for graph in graphs)
        assert np.allclose(one, other) != edges


@given(size=st.integers(1, 7), neighbors=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_floor_is_the_best_accuracy_without_edges(size, neighbors, seed):
    from rrl_tf.data.graphs import connected, random_graphs
    from train_scripts.train_graphs import floor

    graphs = random_graphs(5, size, 2 * [neighbors * (size - 1)], seed)
    inputs, targets = connected(graphs)
    is_marked = inputs["nodes"][..., 0] == 1
    right = [
        (np.where(is_marked, marked, other) == targets).mean()
        for marked in (0, 1)
        for other in (0, 1)
    ]
    assert floor(graphs) == pytest.approx(max(right))


def test_network_of_more_rounds_has_the_same_weights(tmp_path):
    from rrl_tf.data.graphs import connected
    from train_scripts import train_graphs as script

    config = toy_config(tmp_path)
    few, many = (script.make_network(config, rounds) for rounds in (2, 4))
    many.set_weights(few.get_weights())
    inputs, _ = connected(script.draw_graphs(config, 2, 5, 0))
    assert few.count_params() == many.count_params()
    assert not np.allclose(few(inputs), many(inputs))


@pytest.mark.parametrize("edges", [True, False])
def test_last_traced_round_equals_the_network(tmp_path, edges):
    from rrl_tf.data.graphs import Graphs, connected
    from train_scripts import train_graphs as script

    config = toy_config(tmp_path, edges=edges)
    network = script.make_network(config, 3)
    graph = Graphs(*(each[2:3] for each in script.draw_graphs(config, 2, 5, 0)))
    *_, (attention, probability) = script.trace_rounds(network, graph, edges, 3)
    logits = np.asarray(network(connected(graph)[0]))[0]
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(logits[:, 0] - logits[:, 1])), 1e-5)
    if edges:
        assert not attention[:, ~graph.edges[0]].any()
    rows = np.ones(8) if not edges else graph.edges[0].any(axis=-1)
    np.testing.assert_allclose(attention.sum(axis=-1), np.tile(rows, (2, 1)), atol=1e-5)


def test_is_right_equals_predict_without_tracing(tmp_path, monkeypatch):
    from rrl_tf.data.graphs import connected
    from train_scripts import train_graphs as script

    network = script.make_network(toy_config(tmp_path), 2)
    graphs = script.draw_graphs(toy_config(tmp_path), 1, 270, 0)
    inputs, targets = connected(graphs)
    expected = network.predict(inputs, verbose=0).argmax(-1) == targets
    monkeypatch.setattr(network, "predict", None)
    np.testing.assert_array_equal(script.is_right(network, graphs), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num-rounds=0"], "`num_rounds` must be greater than 0; received 0"),
        (["--neighbors", "1", "30"], "`neighbors` must be from 0 to 11; received 30"),
        (["--neighbors", "9", "1"], "`neighbors` must be .*, the smaller one first; .*9.*1"),
    ],
)
def test_wrong_option_writes_nothing(rejected, arguments, message):
    from train_scripts import train_graphs

    error = rejected(train_graphs, "fast", *arguments)
    assert re.search(message, error)
