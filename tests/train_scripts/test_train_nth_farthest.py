import dataclasses
import json
import re

import numpy as np
import pytest
from run_metrics import metrics

from rrl_tf.export import load_policy

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]


def toy_config(tmp_path, **changes):
    from train_scripts.train_nth_farthest import FAST

    numbers = {
        "num_vectors": 3,
        "dimension": 2,
        "stages": ((2, 1, 2, 0), (3, 1, 3, 1)),
        "steps": 12,
        "log_every": 3,
        "checkpoint_every": 6,
        "draw_every": 6,
        "batch_size": 8,
        "warmup_steps": 2,
        "evaluation_questions": 200,
        "jit_compile": False,
        "runs": str(tmp_path),
        "name": "toy",
    }
    return dataclasses.replace(FAST, **{**numbers, **changes})


@pytest.mark.parametrize(
    "network",
    ["fast", pytest.param("fast-transformer", marks=pytest.mark.slow), "fast-lstm"],
)
def test_run_writes_log_evaluation_figures_and_export(tmp_path, capsys, network):
    from train_scripts import train_nth_farthest

    config = toy_config(tmp_path, network=network)
    run = train_nth_farthest.main(config)
    folder, model = run.folder, run.model
    rows = metrics(folder.path)
    assert [row["step"] for row in rows] == ["3", "6", "9", "12"]
    assert [bool(row["eval/accuracy"]) for row in rows] == [False, True, False, True]
    summary = json.loads((folder.path / "evaluation.json").read_text())
    sequences, answers = train_nth_farthest.evaluation_questions(config)
    right = model.predict(sequences, batch_size=200, verbose=0).argmax(-1) == answers
    assert summary["eval/accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    assert summary["eval/accuracy"] == pytest.approx(float(rows[-1]["eval/accuracy"]), abs=1e-4)
    assert len(summary["eval/accuracy_of_n"]) == 3
    for row, accuracy in enumerate(summary["eval/accuracy_of_position"]):
        # A row is a vector (2), its label (3), n (3) and m (3); with n = 2, the answer is m.
        of_row = (sequences[:, row, 2:5] == sequences[:, row, 8:]).all(-1)
        assert accuracy == pytest.approx(right[of_row & (sequences[:, 0, 7] == 0)].mean())
    assert (folder.figures / "attention.png").exists() == (network != "fast-lstm")
    exported = load_policy(folder.export)
    np.testing.assert_array_equal(exported.classify(sequences) == answers, right)
    exported.close()
    printed = capsys.readouterr().out
    for floor in ("chance 33", "no geometry 6", "norms only"):
        assert floor in printed

    train_nth_farthest.main(config)
    assert "is already trained" in capsys.readouterr().out
    assert metrics(folder.path) == rows


def test_stage_is_passed_by_accuracy_or_after_stage_rows(tmp_path):
    from train_scripts.train_nth_farthest import current_stage, training_questions

    def stages(config, *accuracies):
        rows = [{"train/accuracy": accuracy} for accuracy in accuracies]
        questions = training_questions(config)
        return [current_stage(rows[:count], questions, config) for count in range(len(rows) + 1)]

    config = toy_config(tmp_path, stage_passed=0.3, stage_rows=3)
    # Two vectors need no geometry, so only an accuracy of 1 passes. With three, 0.767 passes.
    reached = stages(config, 0.9, 1.0, 0.7, 0.76, 0.8, 0.5, 0.9)
    assert reached == [0, 0, 1, 1, 1, 2, 2, 2]
    # Farthest of three vectors: a guess between the two other than m is right half of the time.
    farthest = dataclasses.replace(config, stages=((3, 1, 1, 0),))
    assert stages(farthest, 0.64) == [0, 0] and stages(farthest, 0.66) == [0, 1]
    assert stages(dataclasses.replace(config, stage_rows=2), 0.1, 0.1, 0.1)[-1] == 1


def test_dense_layers_get_their_initial_weights_again(tmp_path, monkeypatch):
    from train_scripts import train_nth_farthest as script

    renewed, set_initial_weights = [], script.set_initial_weights

    def renew(layers):
        before = [value.numpy() for layer in layers for value in layer.weights]
        set_initial_weights(layers)
        after = [value.numpy() for layer in layers for value in layer.weights]
        assert not any(np.array_equal(*pair) for pair in zip(before, after))
        renewed.append(after)

    config = toy_config(tmp_path, new_dense_steps=(4, 7))
    monkeypatch.setattr(script, "set_initial_weights", renew)
    run = script.main(config)
    assert len(renewed) == 2
    for first, second, value in zip(*renewed, run.model.weights[-len(renewed[0]) :]):
        np.testing.assert_array_equal(first, second)
        assert not np.array_equal(first, value)  # trained further


def test_vector_names_mark_m_and_the_answer(tmp_path):
    from train_scripts import train_nth_farthest

    for order in ("paper", "sonnet"):
        config = toy_config(tmp_path, num_vectors=5, order=order)
        sequences, answers = train_nth_farthest.evaluation_questions(config, 20)
        for sequence, answer in zip(sequences, answers):
            names = train_nth_farthest.vector_names(config, sequence, answer)
            assert sorted(name.split()[1] for name in names) == list("01234")
            (m,) = [name for name in names if " = m" in name]
            (right,) = [name for name in names if "answer" in name]
            assert right.split()[1] == str(answer)
            n = sequence[0, 2 + 5 : 2 + 10] if order == "paper" else sequence[0, 2 + 10 :]
            is_itself = n.argmax() == (4 if order == "paper" else 0)
            assert (m == right) == is_itself


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num-vectors=0"], "num_vectors.*received:? 0"),
        (["--stages", "9", "1", "1", "0"], "active_vectors.*received:? 9"),
        (["--steps=400"], "`warmup_steps` must be less than the 400 steps.*; received 500"),
        (["--new-dense-steps", "9", "0"], "new_dense_steps.*received 0"),
        (["--stage-passed=1.5"], "`stage_passed` must be from 0 to 1; received 1.5"),
        (["--network=nope"], "nope"),
    ],
)
def test_wrong_option_writes_nothing(rejected, arguments, message):
    from train_scripts import train_nth_farthest

    error = rejected(train_nth_farthest, "fast", *arguments)
    assert re.search(message, error)


@pytest.mark.parametrize("preset", ["fast", "five", "paper"])
def test_schedule_without_warm_up_starts_at_the_peak(tmp_path, preset):
    from train_scripts import train_nth_farthest

    for schedule in ("constant", "cosine"):
        config = dataclasses.replace(
            train_nth_farthest.PRESETS[preset], warmup_steps=0, schedule=schedule
        )
        assert config.make_optimizer().learning_rate == config.learning_rate
