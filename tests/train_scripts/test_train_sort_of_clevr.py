import dataclasses
import json
import re

import numpy as np
import pytest
from run_metrics import metrics

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]


def toy_config(tmp_path, **changes):
    from train_scripts.train_sort_of_clevr import FAST

    numbers = {
        "steps": 4,
        "batch_size": 3,
        "questions_each": 2,
        "validation_pictures": 3,
        "test_pictures": 5,
        "warmup_steps": 1,
        "log_every": 1,
        "checkpoint_every": 2,
        "draw_every": 4,
        "runs": str(tmp_path),
        "name": "toy",
    }
    return dataclasses.replace(FAST, **{**numbers, **changes})


@pytest.mark.parametrize(
    "model", [pytest.param("relational", marks=pytest.mark.slow), "convolutional"]
)
def test_run_writes_log_evaluation_figures_and_export(tmp_path, capsys, model):
    from rrl_tf.data.sort_of_clevr import examples, sample_sort_of_clevr
    from train_scripts import train_sort_of_clevr as script

    config = toy_config(tmp_path, model=model, keep_best=True)
    run = script.main(config)
    folder = run.folder
    rows = metrics(folder.path)
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]
    summary = json.loads((folder.path / "evaluation.json").read_text())
    test = sample_sort_of_clevr(5, seed=script.TEST_SEED)
    right = run.model.predict(examples(test)[0], verbose=0).argmax(-1) == test.answers
    assert summary["test/non_relational"] == pytest.approx(right[:, :10].mean())
    assert summary["test/relational"] == pytest.approx(right[:, 10:].mean())
    assert len(summary["test/of_kinds"]) == 6
    assert "what shape is the ... object" in summary["test/of_kinds"]
    validation = sample_sort_of_clevr(3, seed=script.VALIDATION_SEED)
    last = script.accuracies("eval", script.is_right(run.model, validation), validation)
    assert float(rows[-1]["eval/relational"]) == pytest.approx(last["eval/relational"], abs=1e-4)
    assert last["eval/accuracy"] == pytest.approx(np.mean(list(last.values())))  # as many of each
    best = max(rows, key=lambda row: float(row["eval/accuracy"]))
    assert folder.best_file.name == f"best-{int(best['step']):010d}.keras"
    assert (folder.figures / "attention.png").exists() == (model == "relational")
    assert (folder.export / "1" / "saved_model.pb").exists()
    assert "100 questions about 5 new pictures" in capsys.readouterr().out

    script.main(config)
    assert "is already trained" in capsys.readouterr().out
    assert metrics(folder.path) == rows


def test_training_pictures_are_not_in_the_evaluation():
    from rrl_tf.data.sort_of_clevr import SortOfClevr, sample_sort_of_clevr
    from train_scripts import train_sort_of_clevr as script

    test, validation = (
        sample_sort_of_clevr(4, seed=seed).images
        for seed in (script.TEST_SEED, script.VALIDATION_SEED)
    )
    assert (test != validation).any()
    for seed in (0, 1):
        for epoch in (0, 1):
            shown = SortOfClevr(4, 2, seed=seed, epoch=epoch)[0][0]["images"]
            shown = 255 * (1 - shown)
            for held in (test, validation):
                assert not np.isclose(shown[:, None], held[None]).all(axis=(2, 3, 4)).any()


def test_title_has_question_and_answer():
    from rrl_tf.data.sort_of_clevr import ANSWERS
    from train_scripts import train_sort_of_clevr as script

    question = np.eye(11)[[0, 7, 8]].sum(axis=0)
    square, circle = ANSWERS.index("square"), ANSWERS.index("circle")
    words = "what shape is\nclosest to the red\nobject?"
    assert script.title(question, square, square) == f"{words}\nsquare"
    assert script.title(question, square, circle) == f"{words}\nsquare, not circle"


def test_title_of_any_question_fits_above_its_picture():
    from rrl_tf.data.sort_of_clevr import sample_sort_of_clevr
    from train_scripts import train_sort_of_clevr as script

    shown = sample_sort_of_clevr(20, seed=0)
    for question, answer in zip(shown.questions.reshape(-1, 11), shown.answers.reshape(-1)):
        lines = script.title(question, answer, answer).split("\n")
        assert max(map(len, lines)) <= 20 and len(lines) <= 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--questions-each=0"], "`questions_each` must be greater than 0; received 0"),
        (["--network=nope"], "nope"),
    ],
)
def test_wrong_option_writes_nothing(rejected, arguments, message):
    from train_scripts import train_sort_of_clevr

    error = rejected(train_sort_of_clevr, "fast", *arguments)
    assert re.search(message, error)
