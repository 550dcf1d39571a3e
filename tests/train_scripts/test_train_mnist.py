import dataclasses
import gzip
import json
import re
import shutil
import struct

import numpy as np
import pytest
from run_metrics import metrics

from rrl_tf.errors import InvalidInput

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder of digits that are easy to classify: the row of a bright bar is the label."""
    folder = tmp_path_factory.mktemp("mnist")
    rng = np.random.default_rng(0)
    for part, count in (("train", 120), ("t10k", 40)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = rng.integers(0, 60, (count, 28, 28), np.uint8)
        for image, label in zip(images, labels):
            image[4 + 2 * label : 6 + 2 * label, 4:24] = 255
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            with gzip.open(folder / f"{part}-{name}-ubyte.gz", "wb") as file:
                file.write(header + array.tobytes())
    return str(folder)


def toy(data, runs, preset="patch-mnist", **changes):
    from train_scripts.train_mnist import PRESETS

    numbers = {
        "steps": 8,
        "batch_size": 10,
        "held_out": 20,
        "log_every": 2,
        "checkpoint_every": 4,
        "draw_every": 4,
        "warmup_steps": 2,
        "data": data,
        "runs": str(runs),
        "name": "toy",
    }
    return dataclasses.replace(PRESETS[preset], **{**numbers, **changes})


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory, few_pictures):
    """Return a finished run."""
    from train_scripts import train_mnist

    choices = {"perturbed": True, "schedule": "cosine", "profile": True}
    return train_mnist.main(toy(data, tmp_path_factory.mktemp("trained"), **choices))


def test_run_writes_log_evaluation_figures_and_export(data, trained, capsys):
    from rrl_tf.data.mnist import load_mnist
    from rrl_tf.data.perturb import clean
    from rrl_tf.export import SavedModelSession
    from train_scripts import train_mnist

    run, config = trained, trained.config
    folder, model = run.folder, run.model
    assert [int(row["step"]) for row in metrics(folder.path)] == [2, 4, 6, 8]
    summary = json.loads((folder.path / "evaluation.json").read_text())
    assert summary["step"] == 8 and summary["parameters"] == 15_200
    test = load_mnist(data)["test"]
    expected = np.asarray(model(clean(test.images))).argmax(-1)
    assert summary["test/clean"] == np.mean(expected == test.labels)
    assert {path.name for path in folder.figures.iterdir()} == {"attention.png"}
    session = SavedModelSession(folder.export / "1")
    answer = session.run("classify_with_attention", {"image": test.images})
    np.testing.assert_array_equal(answer["class"], expected)
    assert answer["attention_round_1"].shape == (40, 1, 16, 16)
    assert list(folder.path.glob("plugins/profile/*/*.xplane.pb"))

    train_mnist.main(config)
    assert "is already trained to step 8" in capsys.readouterr().out
    assert [path.name for path in folder.export.iterdir()] == ["1"]


def test_mlp_learns_easy_digits(data, tmp_path):
    from train_scripts import train_mnist

    intervals = {"log_every": 20, "checkpoint_every": 20, "draw_every": 60}
    folder = train_mnist.main(toy(data, tmp_path, "patch-mnist-mlp", steps=60, **intervals)).folder
    assert json.loads((folder.path / "evaluation.json").read_text())["test/clean"] == 1
    assert {path.name for path in folder.figures.iterdir()} == set()


def test_resume_after_kill_is_bit_exact(data, tmp_path, killed_at, trained):
    from train_scripts import train_mnist

    config = dataclasses.replace(trained.config, runs=str(tmp_path), profile=False)
    with killed_at(6):
        train_mnist.main(config)
    assert not (tmp_path / "toy" / "evaluation.json").exists()
    resumed = train_mnist.main(config)
    for ours, theirs in zip(resumed.model.get_weights(), trained.model.get_weights()):
        np.testing.assert_array_equal(ours, theirs)
    assert metrics(resumed.folder.path) == metrics(trained.folder.path)


def test_early_stop_holds_after_resume(data, tmp_path):
    from train_scripts import train_mnist

    config = toy(data, tmp_path, learning_rate=1e-30, patience=2)
    folder = train_mnist.main(config).folder
    assert [int(row["step"]) for row in metrics(folder.path)] == [2, 4, 6]
    (folder.path / "evaluation.json").unlink()
    train_mnist.main(config)  # like a run killed before its evaluation
    assert [int(row["step"]) for row in metrics(folder.path)] == [2, 4, 6]
    assert json.loads((folder.path / "evaluation.json").read_text())["step"] == 6


@pytest.mark.parametrize(
    "preset",
    ["book", *(pytest.param(p, marks=pytest.mark.slow) for p in ("book-cnn", "fast-long"))],
)
def test_preset_trains(data, tmp_path, preset):
    from train_scripts import train_mnist

    few = {"steps": 2, "batch_size": 4, "held_out": 4, "checkpoint_every": 2, "draw_every": 2}
    run = train_mnist.main(toy(data, tmp_path, preset, warmup_steps=1, **few))
    assert json.loads((run.folder.path / "evaluation.json").read_text())["step"] == 2
    assert all(np.isfinite(weight).all() for weight in run.model.get_weights())


def test_held_out_images_are_always_the_same():
    from rrl_tf.data.mnist import Split
    from train_scripts.train_mnist import held_out

    split = Split(np.zeros((50, 28, 28), np.uint8), np.arange(50))
    training, validation = held_out(split, 8)
    assert sorted([*training.labels, *validation.labels]) == list(range(50))
    assert len(validation.labels) == 8
    np.testing.assert_array_equal(held_out(split, 8)[1].labels, validation.labels)


def test_presets_have_the_numbers_of_their_sources():
    from train_scripts.train_mnist import BOOK, PATCHES, PRESETS

    assert (BOOK.steps, BOOK.batch_size, BOOK.learning_rate) == (1000, 300, 1e-3)
    assert (BOOK.shift, BOOK.rotation, BOOK.spots, BOOK.perturbed) == (6, 30, 10, True)
    assert BOOK.schedule == "constant" and BOOK.replacement
    assert (PATCHES.batch_size, PATCHES.learning_rate, PATCHES.perturbed) == (64, 3e-3, False)
    assert PATCHES.steps == -(-5 * 60_000 // 64) and not PATCHES.replacement
    assert PRESETS["fast"].steps == BOOK.steps and PRESETS["fast"].batch_size == BOOK.batch_size
    assert all(preset == config.preset for preset, config in PRESETS.items())


def test_other_images_do_not_resume_a_run(data, tmp_path, trained, capsys):
    from train_scripts import train_mnist

    moved = tmp_path / "moved"
    shutil.copytree(data, moved)
    shutil.copytree(trained.folder.path, tmp_path / "toy")
    config = dataclasses.replace(trained.config, runs=str(tmp_path))
    train_mnist.main(dataclasses.replace(config, data=str(moved)))
    assert "is already trained" in capsys.readouterr().out
    labels = moved / "train-labels-idx1-ubyte.gz"
    content = bytearray(gzip.decompress(labels.read_bytes()))
    content[-1] ^= 1
    labels.write_bytes(gzip.compress(bytes(content)))
    with pytest.raises(InvalidInput, match=r"data_checksum was .* and is now .*"):
        train_mnist.main(dataclasses.replace(config, data=str(moved)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--warmup-steps=1000"], "`warmup_steps` must be less than the 1,000 steps"),
        (
            ["--data=/nowhere"],
            "`folder` must be an existing folder with MNIST; received '/nowhere'",
        ),
        (["--model=resnet"], "resnet"),
        (["--batch-size=101"], "batch_size must be at most the 100 images .*; received 101"),
        (["--network=nope"], "nope"),
        (["--held-out=200"], "held_out must leave some of the 120 images.*; received 200"),
        (["--held-out=0"], "`held_out` must be greater than 0; received 0"),
    ],
)
def test_wrong_option_writes_nothing(data, rejected, arguments, message):
    from train_scripts import train_mnist

    options = [f"--data={data}", "--held-out=20", "--batch-size=10", *arguments]
    assert re.search(message, rejected(train_mnist, "fast", *options))
