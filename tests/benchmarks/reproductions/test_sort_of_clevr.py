"""The tables of Sort-of-CLEVR and of the graphs, from results made up here."""

import json

import numpy as np
import pytest

pytestmark = pytest.mark.tf_only


@pytest.fixture
def clevr(tmp_path):
    from benchmarks.reproductions import sort_of_clevr

    for name in sort_of_clevr.NETWORKS:
        for seed, accuracy in ((0, 0.75), (1, 0.55)):
            log = f"step,eval/relational\n250,0.4\n500,{accuracy}\n"
            (tmp_path / f"{name}-seed{seed}.csv").write_text(log)
            summary = {
                "step": 500,
                "parameters": 12_345,
                "test/relational": accuracy,
                "test/non_relational": 0.9,
                "test/of_kinds": {text.format("..."): accuracy for text in sort_of_clevr.TEXTS},
                "cpu_minutes": 2.0,
            }
            (tmp_path / f"{name}-seed{seed}.json").write_text(json.dumps(summary))
    return sort_of_clevr


def test_clevr_tables_say_what_the_files_say(clevr, tmp_path):
    lines = clevr.table(tmp_path).splitlines()
    assert "| relations | 12,345 | 2 | 500 | 65.0 % (55.0 to 75.0) | 90.0 % | 2 |" in lines
    assert lines[-1].endswith("| 43.8 % | 50.0 % |  |")
    lines = clevr.kinds(tmp_path).splitlines()
    assert lines[2] == "| what shape is the ... object | 65.0 % | 65.0 % |"
    assert len(lines) == 2 + 6
    labels = clevr.curves(tmp_path).axes[0].get_legend_handles_labels()[1]
    assert "relations (mean of 2)" in labels


def test_without_looking_is_the_share_of_the_most_frequent_answer(clevr):
    from rrl_tf.data.sort_of_clevr import kinds_of, sample_sort_of_clevr

    pictures = sample_sort_of_clevr(5000, seed=3)
    kinds = kinds_of(pictures.questions)
    best = [
        np.bincount(pictures.answers[kinds == kind]).max() / (kinds == kind).sum()
        for kind in range(6)
    ]
    assert np.mean(best[:3]) == pytest.approx(clevr.BLIND["non-relational"], abs=0.02)
    assert np.mean(best[3:]) == pytest.approx(clevr.BLIND["relational"], abs=0.02)


def test_graph_tables_say_what_the_files_say(tmp_path):
    from benchmarks.reproductions import graphs

    for name, accuracy in (("fast", 1.0), ("without-edges", 0.6)):
        summary = {
            "step": 300,
            "parameters": 4450,
            "test/accuracy": accuracy,
            "test/larger": accuracy,
            "test/larger_whole_graphs": accuracy / 2,
            "test/larger_same_rounds": accuracy,
            "test/larger_of_distance": {"none": 1.0, "10": accuracy, "2": 0.5},
            "floor": 0.577,
            "training_minutes": 1.0,
        }
        (tmp_path / f"{name}-seed0.json").write_text(json.dumps(summary))
    lines = graphs.table(tmp_path).splitlines()
    assert lines[2].startswith("| along the edges | 4,450 | 1 | 300 | 100.00 % | 100.00 % | 50.00")
    assert "57.70 %" in lines[-1]
    head, _, _, without = graphs.distances(tmp_path).splitlines()
    assert head == "| attention goes | none | 2 | 10 |"
    assert without == "| from every node to every node | 100.0 % | 50.0 % | 60.0 % |"
