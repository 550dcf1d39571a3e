"""Runs of `train_atari`."""

import dataclasses
import importlib
import json

import numpy as np
import pytest

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]


@pytest.fixture(autouse=True)
def packages():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")


def toy_config(tmp_path, **changes):
    from train_scripts.train_atari import PRESETS

    numbers = {
        "steps": 48,
        "num_envs": 2,
        "batch_size": 4,
        "learning_starts": 20,
        "replay_capacity": 100,
        "updates_per_step": 0.1,
        "log_every": 24,
        "evaluate_every": 48,
        "checkpoint_every": 24,
        "evaluation_episodes": 1,
        "jit_compile": False,
        "runs": str(tmp_path),
    }
    return dataclasses.replace(PRESETS["atari-100k"], **{**numbers, **changes})


@pytest.fixture
def short_games(monkeypatch):
    """Limit games to 150 frames."""
    import gymnasium

    module = importlib.import_module("rrl_tf.envs.atari")
    make = module._game

    def shorter(game, render_mode):
        return gymnasium.wrappers.TimeLimit(make(game, render_mode), 150)

    monkeypatch.setattr(module, "_game", shorter)


@pytest.mark.parametrize(
    "network", ["atari", pytest.param("convolutional", marks=pytest.mark.slow)]
)
def test_run_writes_evaluation_figures_and_export(tmp_path, short_games, network):
    from rrl_tf.export import load_policy
    from train_scripts.train_atari import main

    run, agent = main(toy_config(tmp_path, network=network))
    assert run.folder.path == tmp_path / f"Alien-v5-{network}-seed0"
    summary = json.loads((run.folder.path / "evaluation.json").read_text())
    assert summary["step"] == 48
    assert summary["eval/return"] % 10 == 0  # the score of the game, not the signs of rewards
    assert not any("success" in name for name in summary)
    pictures = {"episode.gif"} | ({"attention.png"} if network == "atari" else set())
    assert {path.name for path in run.folder.figures.iterdir()} == pictures
    policy = load_policy(run.folder.export / "1")
    seen = np.random.default_rng(0).integers(0, 256, (2, 84, 84, 4)).astype("uint8")
    np.testing.assert_array_equal(policy.act(seen), agent.greedy(seen))
    assert policy.details["action_names"][:2] == ["NOOP", "FIRE"]


def test_networks_have_similar_parameter_counts(tmp_path):
    from rrl_tf.envs import atari_task
    from train_scripts.train_atari import make_network

    task, counts = atari_task(), []
    for name in ("atari", "convolutional"):
        network = make_network(toy_config(tmp_path, network=name), task)
        network.build((None, *task.preprocessor.shape))
        counts.append(network.count_params())
    assert 0.95 < counts[0] / counts[1] < 1.05


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--env=ALE/Aliens-v5", "received 'ALE/Aliens-v5'"),
        ("--network=nope", "invalid choice 'nope'"),
        ("--frames=0", "frames.*received 0"),
    ],
)
def test_wrong_option_writes_nothing(rejected, argument, message):
    import re

    from train_scripts import train_atari

    assert re.search(message, rejected(train_atari, "atari-100k", argument))
