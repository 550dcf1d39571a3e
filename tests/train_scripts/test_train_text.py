"""Training and resume of `train_text`."""

import dataclasses
import json
import pathlib

import keras
import numpy as np
import pytest

from rrl_tf.data.text import TextBatches
from rrl_tf.errors import InvalidInput
from train_scripts import train_text

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]

TEXT = "to be or not to be, " * 100


def small(tmp_path, **changes):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    numbers = {
        "text": str(text),
        "runs": str(tmp_path / "runs"),
        "embedding": 4,
        "mem_slots": 2,
        "head_size": 3,
        "num_heads": 2,
        "units": 8,
        "epochs": 2,
        "batch_size": 4,
        "length": 8,
        **changes,
    }
    return dataclasses.replace(train_text.PRESETS["rmc"], **numbers)


def test_run_writes_evaluation_and_stays_finished(tmp_path, capsys):
    folder = train_text.main(small(tmp_path)).folder
    summary = json.loads((folder.path / "evaluation.json").read_text())
    assert summary["test/bits_per_character"] < summary["test/bits_of_frequencies"] + 1
    train_text.main(small(tmp_path))
    assert f"is already trained to step {summary['step']}" in capsys.readouterr().out


def test_other_text_does_not_resume_a_run(tmp_path):
    config = small(tmp_path)
    assert train_text.main(config).folder.path.name == "rmc-text-seed0"
    other = pathlib.Path(config.text)
    for text in ("or not to be: ", "to be or not to be; "):
        other.write_text(text * 200)
        with pytest.raises(InvalidInput, match=r"text_checksum was .* and is now .*"):
            train_text.main(config)
    moved = other.with_name("moved.txt")
    moved.write_text(TEXT)
    train_text.main(dataclasses.replace(config, text=str(moved), name="rmc-text-seed0"))


@pytest.mark.slow
def test_dtype_and_schedule_are_applied(tmp_path):
    run = train_text.main(
        small(tmp_path, dtype="mixed_bfloat16", schedule="constant", warmup_steps=5, epochs=1)
    )
    assert run.model.layers[-1].compute_dtype == "bfloat16"
    assert run.log.rows[-1]["train/learning_rate"] == pytest.approx(run.config.learning_rate)


def test_memory_continues_between_batches_and_resets_at_the_start(tmp_path):
    config = small(tmp_path)
    model = train_text.make_model(config, num_characters=5, steps_per_epoch=1)
    codes = np.random.default_rng(0).integers(5, size=4 * 16 + 1)
    data = TextBatches(codes, batch_size=4, length=8)
    for _ in range(2):
        in_parts = model.evaluate(
            data, callbacks=[train_text.memory_reset(model)], verbose=0, return_dict=True
        )
    whole = train_text.make_network(config, 5, batch_size=4)
    whole.set_weights([w.numpy() for w in model.weights])
    whole.get_layer("core").reset_state()
    logits = whole(data.rows[:, :-1])
    bits = train_text.bits_per_character(data.rows[:, 1:], logits)
    assert in_parts["bits_per_character"] == pytest.approx(float(keras.ops.mean(bits)), rel=1e-5)


def test_presets_have_equal_parameter_counts():
    sizes = [
        train_text.make_network(config, 62, 1).count_params()
        for config in train_text.PRESETS.values()
    ]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "nowhere.txt"], "nowhere.txt cannot be read: No such file"),
        (["--text", "{folder}/latin.txt"], "latin.txt must be in UTF-8; received the byte 0xe9"),
        (["--text", "{folder}/short.txt"], "short.txt must have at least"),
        (["--batch_size", "0"], "`batch_size` must be greater than 0; received 0"),
    ],
)
def test_wrong_option_writes_nothing(arguments, message, tmp_path, rejected):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "short.txt").write_text("short")
    arguments = [argument.replace("{folder}", str(tmp_path)) for argument in arguments]
    assert message in rejected(train_text, "rmc", *arguments)
