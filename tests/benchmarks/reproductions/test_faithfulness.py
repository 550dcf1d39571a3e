"""What is lost with hidden cells: which states are asked, and what table and figure make of it."""

import json

import numpy as np
import pytest

from rrl_tf.agents import evaluate
from rrl_tf.data.sort_of_clevr_task import examples, sort_of_clevr
from rrl_tf.interpret.faithfulness import LAST, LEAST, MOST, RANDOM
from rrl_tf.models import RelationalAnswerer, RelationalQNetwork

pytestmark = pytest.mark.tf_only


@pytest.fixture
def study(monkeypatch):
    from benchmarks.reproductions import faithfulness

    monkeypatch.setattr(faithfulness, "COUNTS", (1, 2))
    return faithfulness


def check_measured(study, task, network, act):
    resets = task.evaluation_resets(at_most=2)
    played = evaluate(act, task.make_test_env, resets)
    found = study.measured(task, network, starts=2)
    assert found["states"] == played.length.sum() and played.success.all()
    for values in (*found["drop"].values(), *found["kept"].values()):
        assert np.shape(values) == (2, 2)  # starts, counts
    assert np.abs(found["drop"][MOST]).min() > 0
    assert "accuracy_drop" not in found
    assert 1 < found["candidates"] < 48
    return found


def test_a_policy_is_asked_on_its_way(study):
    task, network = study.doorkey_task((5,)), RelationalQNetwork.from_preset("doorkey-5x5")
    act = study.Watched(lambda seen: np.asarray(network(task.preprocessor(seen))).argmax(-1))
    check_measured(study, task, network, act)


def test_a_policy_that_remembers_is_asked_on_its_way(study):
    task, network = study.preset("doorkey-6x6")
    player = study.RecurrentDoubleDQN(network, task.preprocessor).greedy_player()
    check_measured(study, task, network, player)


@pytest.mark.slow  # as of DoorKey, which is asked above
def test_a_policy_on_box_world_is_asked_on_its_way(study):
    task, network = study.preset("box-world")
    act = study.Watched(lambda seen: np.asarray(network(task.preprocessor(seen))).argmax(-1))
    found = check_measured(study, task, network, act)
    assert set(found["kinds"]) <= {"open", "box", "key", "gem", "other"}
    assert sum(kind["states"] for kind in found["kinds"].values()) == found["states"]
    mean = sum(kind["states"] * kind["drop"] for kind in found["kinds"].values()) / found["states"]
    starts = np.array(found["drop"][MOST])[:, 0]
    assert starts.min() - 1e-4 < mean < starts.max() + 1e-4


def test_an_answerer_is_asked_one_question_at_a_time(study, monkeypatch):
    monkeypatch.setattr(study, "CELLS_OF_PICTURES", (1, 81))
    monkeypatch.setattr(study, "QUESTIONS_EACH", 2)
    network = RelationalAnswerer.from_preset("fast", width=16, conv_filters=(4, 8))
    network.build({"images": (None, 75, 75, 3), "questions": (None, None, 11)})
    for weight in network.weights:
        weight.assign(np.random.default_rng(0).normal(0.0, 0.5, size=weight.shape))
    found = study.answered(network, pictures=6)
    shown = sort_of_clevr(6, 2, study.TEST_SEED)
    all_at_once = np.asarray(network(examples(shown)[0])).argmax(axis=-1)
    assert found["accuracy"] == (all_at_once == shown.answers)[:, 2:].mean()
    assert (found["questions"], found["candidates"]) == (12, 81)
    for measure in ("drop", "kept", "accuracy_drop"):
        assert set(found[measure]) == {MOST, LAST, LEAST, RANDOM}
        values = np.array(list(found[measure].values()))
        assert values.shape == (4, 6, 2)  # orders, pictures, counts
        assert np.ptp(values[:, :, 1], axis=0).max() < 1e-4  # no cell is left, in whatever order


def test_the_table_of_kinds_says_what_the_files_say(study, tmp_path):
    kinds = {"box": {"states": 3, "drop": -1.5, "kept": 0.25}}
    kinds["open"] = {"states": 1, "drop": 0.2, "kept": 1.0}
    for seed, each in enumerate((kinds, {"box": {"states": 4, "drop": -0.5, "kept": 0.75}})):
        run = {"states": 4, "kinds": each}
        (tmp_path / f"box-world-seed{seed}.json").write_text(json.dumps(run))
    assert study.kinds(tmp_path).splitlines()[2:] == [
        "| a lock that the held key opens | 1 | 12 % (0 to 25) | 0.200 | 100 % |",
        "| another lock | 2 | 88 % (75 to 100) | -1.000 (-1.500 to -0.500) | 50 % (25 to 75) |",
    ]


def test_box_worlds_first_seed_is_the_preset_and_others_are_trained(study, monkeypatch):
    asked, network = [], object()
    monkeypatch.setattr(study.box_world, "trained", lambda *told: asked.append(told))
    monkeypatch.setattr(study.runs, "network", lambda run: network)
    config = study.Config(box_world_runs="elsewhere")
    _, first = study.agent(config, "box-world", 0)
    assert isinstance(first, RelationalQNetwork) and not asked
    _, second = study.agent(config, "box-world", 2)
    [(used, name, seed)] = asked
    assert (second, used.runs, name, seed) == (network, "elsewhere", "fast", 2)


def write_results(folder, falls):
    """Every start falls by the same; the most attended by twice as much."""
    for seed, fall in enumerate(falls):
        drop = {order: [[fall] * 2] * 5 for order in (LAST, LEAST, RANDOM)}
        drop[MOST] = [[2 * fall] * 2] * 5
        kept = {order: [[0.5, 0.25]] * 5 for order in drop}
        run = {"counts": [1, 2], "states": 9, "drop": drop, "kept": kept}
        (folder / f"fast-graph-seed{seed}.json").write_text(json.dumps(run))


def test_the_table_says_what_the_files_say(study, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "SHOWN", (1, 2))
    assert study.figure(tmp_path) is None
    write_results(tmp_path, (0.1, 0.3))
    lines = study.table(tmp_path).splitlines()
    falls = "0.400 (0.200 to 0.600) | 0.200 (0.100 to 0.300) | 0.200 (0.100 to 0.300)"
    assert lines[2].startswith(f"| DoorKey-5x5 | Q | 2 | 1 | {falls}")
    assert lines[2].endswith("| 0.200 to 0.200 | 50 % | 50 % |")
    assert lines[3].endswith("| 25 % | 25 % |") and len(lines) == 4
    [axes] = study.figure(tmp_path).axes
    assert axes.get_lines()[0].get_ydata().tolist() == pytest.approx([0.4, 0.4])
    heights = [line.get_ydata().tolist() for line in axes.get_lines()]
    assert heights[1:] == [pytest.approx([0.2, 0.2])] * 3  # random, least, last round


def test_what_falls_of_an_answer_is_its_probability_and_the_accuracy(study, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "SHOWN", (2,))
    write_results(tmp_path, (0.1,))
    run = json.loads((tmp_path / "fast-graph-seed0.json").read_text())
    run["accuracy_drop"] = {order: [[0.0, 0.75]] * 5 for order in run["drop"]}
    (tmp_path / "sort-of-clevr-seed0.json").write_text(json.dumps(run))
    *_, probability, accuracy = study.table(tmp_path).splitlines()
    label = "| Sort-of-CLEVR, relational"
    assert probability.startswith(f"{label} | probability | 1 | 2 | 0.200 | 0.100 | 0.100")
    assert accuracy.startswith(f"{label} | accuracy | 1 | 2 | 0.750 | 0.750 | 0.750")
    above, *below = study.figure(tmp_path).axes
    heights = [axes.get_lines()[0].get_ydata().tolist() for axes in below]
    assert heights == [pytest.approx([0.2, 0.2]), pytest.approx([0.0, 0.75])]
    assert above.get_ylim() != below[1].get_ylim()
    assert [axes.get_ylabel() for axes in (above, *below)] == [
        "fall of Q",
        "fall of probability",
        "fall of accuracy",
    ]


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_interval_is_that_of_a_mean(study, seeds):
    """Networks that are asked from the same starts say no more of these than one does."""
    values = np.random.default_rng(0).normal(size=(400, 1))
    found = [{"drop": {MOST: values.tolist()}}] * seeds
    low, high = study.interval(study.resampled(found, "drop", MOST))[:, 0]
    error = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - error, values.mean() + error), abs=0.02)
