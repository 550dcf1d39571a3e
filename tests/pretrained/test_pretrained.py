"""Pretrained models reach the results on their cards; damaged files are errors."""

import hashlib
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest

import rrl_tf
from rrl_tf.agents import evaluate, make_agent
from rrl_tf.data.mnist import load_mnist, preprocessed
from rrl_tf.data.perturb import Perturbation
from rrl_tf.envs import doorkey_task, make_doorkey
from rrl_tf.errors import InvalidInput
from rrl_tf.models import (
    MemorySequenceClassifier,
    MLPClassifier,
    RecurrentQNetwork,
    RelationalQNetwork,
)
from rrl_tf.models.base import read_pretrained
from rrl_tf.pretrained import FOLDER, POLICY, pretrained_folder, pretrained_models
from serving.sessions import MemorySession, WindowSession
from train_scripts import make_preset, train_box_world, train_nth_farthest, train_recurrent

pytestmark = pytest.mark.tf_only

REMEMBERING = [
    "doorkey-6x6",
    "memory-s17",
    "key-corridor-s3r3",
    pytest.param("doorkey-8x8", marks=pytest.mark.slow),
    pytest.param("doorkey-16x16", marks=pytest.mark.slow),
]


def card(name):
    return json.loads((FOLDER / name / "evaluation.json").read_text())


def test_package_is_small_and_lists_its_pretrained_models():
    names = pretrained_models()
    assert {"doorkey-5x5", "doorkey-6x6", "doorkey-8x8", "doorkey-16x16"} <= names.keys()
    assert {"memory-s17", "key-corridor-s3r3", "box-world"} <= names.keys()
    assert {"mnist-relational", "dt-doorkey", "nth-farthest", "nth-farthest-8"} <= names.keys()
    assert all(names.values())
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert size < 15 * 2**20  # 15 MB; the compressed wheel is smaller
    assert "doorkey-5x5" in RelationalQNetwork.presets
    assert "doorkey-8x8" in RecurrentQNetwork.presets
    assert "doorkey-8x8" not in RelationalQNetwork.presets


def test_doorkey_5x5_reaches_the_results_of_its_card():
    policy, task = rrl_tf.load_policy("doorkey-5x5"), doorkey_task((5,))
    resets = task.evaluation_resets(-1, 1000)
    played = evaluate(policy.act, task.make_test_env, resets).summary()
    assert played["success"] == card("doorkey-5x5")["eval/success"] == 1.0
    assert played["solved_length"] == pytest.approx(card("doorkey-5x5")["eval/solved_length"])


def test_box_world_reaches_the_results_of_its_card():
    config = train_box_world.PRESETS["box-world"]
    task = train_box_world.make_task(config)
    policy = rrl_tf.load_policy("box-world")
    resets = task.evaluation_resets(-1, config.evaluation_episodes)
    played = evaluate(policy.act, task.make_test_env, resets).summary()
    # Processors round differently: one or two episodes may differ.
    assert played["success"] == pytest.approx(card("box-world")["eval/success"], abs=0.01)
    first, _ = task.make_test_env().reset(seed=0)
    _, attention = policy.act(first, return_attention_scores=True)
    assert list(attention) == ["round_1", "round_2", "round_3", "round_4"]


@pytest.mark.parametrize("name", REMEMBERING)
def test_recurrent_policies_reach_the_results_of_their_cards(name):
    config = train_recurrent.PRESETS[name]
    task = train_recurrent.make_task(config)
    agent = make_agent(task, RecurrentQNetwork.from_preset(name), config)
    resets = task.evaluation_resets(-1, config.evaluation_episodes)
    played = evaluate(agent.greedy_policy(), task.make_test_env, resets).summary()
    # Processors round differently: one or two episodes may differ.
    assert played["success"] == pytest.approx(card(name)["eval/success"], abs=0.01)


def test_mnist_relational_reaches_the_results_of_its_card():
    source = os.environ.get("MNIST_DATA")
    if source is None and not pathlib.Path("~/tensorflow_datasets/mnist").expanduser().exists():
        pytest.skip("needs MNIST: its four files in the folder $MNIST_DATA, or TensorFlow Datasets")
    test = load_mnist(source)["test"]
    policy, model = rrl_tf.load_policy("mnist-relational"), read_pretrained("mnist-relational")
    right = policy.classify(test.images) == test.labels
    assert right.mean() == pytest.approx(card("mnist-relational")["test/clean"], abs=3e-4)
    digits, labels = preprocessed(test, Perturbation(), 0)
    right = model.predict(digits, batch_size=250, verbose=0).argmax(-1) == labels
    assert right.mean() == pytest.approx(card("mnist-relational")["test/perturbed"], abs=3e-4)


@pytest.mark.parametrize(
    ("name", "preset"), [("nth-farthest", "fast"), ("nth-farthest-8", "paper")]
)
def test_nth_farthest_reaches_the_results_of_its_card(name, preset):
    config = train_nth_farthest.PRESETS[preset]
    sequences, answers = train_nth_farthest.evaluation_questions(config)
    model = MemorySequenceClassifier.from_preset(name)
    labels = model.predict(sequences, batch_size=2000, verbose=0).argmax(-1)
    # Processors round differently: a few answers may differ.
    assert (labels == answers).mean() == pytest.approx(card(name)["eval/accuracy"], abs=3e-4)
    policy = rrl_tf.load_policy(name)
    np.testing.assert_array_equal(policy.classify(sequences[:100]), labels[:100])


def test_dt_doorkey_reaches_the_results_of_its_card():
    policy, count = rrl_tf.load_policy("dt-doorkey"), 100
    envs = [make_doorkey(5, observation="compass") for _ in range(count)]
    session = WindowSession(policy, 0.95, num_envs=count)
    observations = np.stack([env.reset(seed=seed)[0] for seed, env in enumerate(envs)])
    rewards, earned, over = np.zeros(count), np.zeros(count), np.zeros(count, bool)
    while not over.all():
        actions = session.act(observations, rewards)
        for i in np.flatnonzero(~over):
            observations[i], rewards[i], terminated, truncated, _ = envs[i].step(actions[i])
            earned[i] += rewards[i]
            over[i] = terminated or truncated
    expected = card("dt-doorkey")["last"]["0.95"]["return"]
    # Processors round differently: one episode may differ.
    assert earned.mean() == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("name", sorted(pretrained_models()))
def test_pretrained_model_and_policy_have_the_same_weights(name):
    class_name = json.loads((FOLDER / name / "metadata.json").read_text())["class"]
    model = getattr(rrl_tf.models, class_name).from_preset(name)
    stored = np.concatenate([weight.ravel() for weight in model.get_weights()])
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(FOLDER / name / POLICY / "1" / "variables" / "variables"))
    names = [each for each in reader.get_variable_to_shape_map() if "VARIABLE_VALUE" in each]
    held = [reader.get_tensor(each) for each in names]
    held = [values for values in held if values.dtype == stored.dtype]
    assert np.isin(stored.round(6), np.concatenate([v.ravel() for v in held]).round(6)).all()


def test_recurrent_policy_acts_through_a_session():
    policy, task = rrl_tf.load_policy("doorkey-6x6"), doorkey_task((6,))
    env, session = task.make_env(), MemorySession(policy)
    observation, _ = env.reset(seed=3)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(session.act(observation, total))
        total, over = total + float(reward), terminated or truncated
    assert total > 0


def test_saved_and_loaded_is_the_same_model(tmp_path):
    model = small_classifier()
    folder = model.save_to_preset(tmp_path / "mine", "small")
    again = MLPClassifier.from_preset(folder)
    x = keras.random.normal((2, 28, 28, 1))
    np.testing.assert_array_equal(again(x), model(x))
    fresh = MLPClassifier.from_preset(folder, load_weights=False)
    assert fresh.hidden_units == again.hidden_units
    assert (fresh.get_weights()[0] != again.get_weights()[0]).any()


def small_classifier():
    model = MLPClassifier.from_preset("patch-mnist", hidden_units=(8,))
    model.build((None, 28, 28, 1))
    return model


@pytest.mark.parametrize("name", ["patch-mnist", "./patch-mnist", "doorkey-5x5"])
def test_name_of_a_known_preset_is_no_valid_folder(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=r"the name of a known preset, .*; received"):
        small_classifier().save_to_preset(name)
    assert not list(tmp_path.iterdir())
    folder = small_classifier().save_to_preset(f"mine/{name}")
    assert MLPClassifier.from_preset(folder).hidden_units == (8,)


def test_saving_keeps_hidden_folders_of_a_user(tmp_path):
    mine = tmp_path / ".preset-mine"
    mine.mkdir()
    (mine / "notes").write_text("precious")
    small_classifier().save_to_preset(tmp_path / "new")
    assert (mine / "notes").read_text() == "precious"


def test_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    """On a full disk, `save_weights` of Keras crashes the process."""
    model, limits = small_classifier(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            model.save_to_preset(tmp_path / "new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def shortened(content):
    return repr(content[:20])


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(FOLDER / "doorkey-5x5", tmp_path / "copy")
    return tmp_path / "copy"


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("file", ["model.weights.h5", "policy/1/saved_model.pb"])
@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_file_is_an_error(copied, file, damage):
    flip(copied / file) if damage == "changed" else (copied / file).unlink()
    for load in (RelationalQNetwork.from_preset, rrl_tf.load_policy):
        with pytest.raises(InvalidInput, match=f"damaged, missing or not listed: {file}"):
            load(copied)


def test_new_file_is_an_error(copied):
    (copied / "more.txt").write_text("?")
    with pytest.raises(InvalidInput, match=r"damaged, missing or not listed: more\.txt"):
        pretrained_folder(copied)


@pytest.mark.parametrize("place", ["policy/2", "policy/1/assets", "more"])
def test_linked_folder_is_an_error(copied, tmp_path, place):
    elsewhere = shutil.copytree(copied / "policy/1", tmp_path / "elsewhere")
    shutil.rmtree(copied / place, ignore_errors=True)
    (copied / place).symlink_to(elsewhere)
    for load in (RelationalQNetwork.from_preset, rrl_tf.load_policy):
        with pytest.raises(InvalidInput, match=rf"not be links; received '.*', where {place} is"):
            load(copied)


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"class": "x"}', DEEP], ids=shortened)
def test_bad_metadata_is_an_error(copied, content):
    (copied / "metadata.json").write_text(content)
    with pytest.raises(
        InvalidInput, match=r"metadata\.json .*must be a file that save_to_preset wrote"
    ):
        pretrained_folder(copied)


DENSE = json.dumps(keras.saving.serialize_keras_object(keras.layers.Dense(1)))


@pytest.mark.parametrize(
    "content",
    ['"hello"', "{}", '{"class_name": 3}', DENSE, DEEP],
    ids=shortened,
)
def test_configuration_of_no_model_is_an_error(copied, content):
    (copied / "config.json").write_text(content)
    metadata = json.loads((copied / "metadata.json").read_text())
    metadata["sha256"]["config.json"] = hashlib.sha256(content.encode()).hexdigest()
    (copied / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(InvalidInput, match=r"config\.json' was written by.*; received .*") as error:
        RelationalQNetwork.from_preset(copied)
    assert len(str(error.value)) < 1000 and "\n" not in str(error.value)


def test_wrong_names_and_arguments_are_errors(copied, tmp_path):
    with pytest.raises(InvalidInput, match="must hold a RecurrentQNetwork; received a Relational"):
        RecurrentQNetwork.from_preset(copied)
    with pytest.raises(InvalidInput, match="without other arguments; received \\['num_actions'\\]"):
        RelationalQNetwork.from_preset("doorkey-5x5", num_actions=3)
    with pytest.raises(InvalidInput, match=r"must be None or False for an arch.*received 'fast'"):
        RelationalQNetwork.from_preset("fast", load_weights=True)
    for name in ("fast", "doorkey-5x5"):
        with pytest.raises(InvalidInput, match="must be True, False or None; received 'no'"):
            RelationalQNetwork.from_preset(name, load_weights="no")
    for name in (None, 5, "x" * 300):
        with pytest.raises(InvalidInput, match="`preset` must be a path; received"):
            RelationalQNetwork.from_preset(name)
    with pytest.raises(InvalidInput, match=r"doorkey-5x5.*received 'doorkey-4x4'$"):
        RelationalQNetwork.from_preset("doorkey-4x4")
    with pytest.raises(InvalidInput, match=r"'doorkey-8x8', a pretrained RecurrentQNetwork$"):
        RelationalQNetwork.from_preset("doorkey-8x8")
    with pytest.raises(
        InvalidInput, match=r"or one of box-world, doorkey-16x16.*received 'doorkey-4x4'"
    ):
        rrl_tf.load_policy("doorkey-4x4")
    with pytest.raises(InvalidInput, match="must be new"):
        RelationalQNetwork.from_preset(copied).save_to_preset(copied)
    with pytest.raises(InvalidInput, match="must be built; received"):
        MLPClassifier.from_preset("patch-mnist").save_to_preset(tmp_path / "unbuilt")


def test_make_preset_needs_a_finished_run(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(InvalidInput, match=r"config\.json' cannot be read"):
        make_preset.main(make_preset.Config(str(tmp_path / "run"), "x", str(tmp_path)))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_make_preset_rejects_two_sets_of_weights(tmp_path):
    (tmp_path / "config.json").write_text('{"export_best": true}')
    (tmp_path / "evaluation.json").write_text("{}")
    with pytest.raises(InvalidInput, match="must export the weights of its last step"):
        make_preset.main(make_preset.Config(str(tmp_path), "x", str(tmp_path / "presets")))


@pytest.mark.parametrize("name", sorted(pretrained_models()))
def test_code_on_a_card_runs(name):
    text = (FOLDER / name / "README.md").read_text()
    assert "runs/" not in text  # a local path of the training
    said = {}
    exec(text.partition("```python\n")[2].partition("```")[0], said)
    assert said["label"] in range(10) if "label" in said else said["total"] > 0.8


SERVED = """
from serving.server import Flags, running
with running(Flags(preset="doorkey-5x5", port=0)):
    pass
"""


def test_loading_and_serving_print_nothing_from_tensorflow():
    text = (FOLDER / "doorkey-5x5" / "README.md").read_text()
    lines = text.partition("```python\n")[2].partition("```")[0] + SERVED
    environment = dict(os.environ, PYTHONPATH=".")
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    shown = subprocess.run(
        [sys.executable, "-c", lines],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(shown.stdout) > 0.8 and shown.stderr == ""


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("minari:runs/datasets/rrl/doorkey-5x5/mixed-v0", "rrl/doorkey-5x5/mixed-v0"),
        ("minari:mujoco/walker2d/medium-v0", "mujoco/walker2d/medium-v0"),
        ("tfds:d4rl_mujoco_walker2d/v2-medium", "d4rl_mujoco_walker2d/v2-medium"),
        ("MNIST", "MNIST"),
    ],
)
def test_card_names_data_without_their_path(source, name):
    assert make_preset.without_path({"data": source, "seed": 1}) == {"data": name, "seed": 1}


def test_no_pretrained_model_contains_local_paths():
    for file in FOLDER.rglob("*.json"):
        assert "minari:" not in (text := file.read_text()) and "runs/" not in text, file
