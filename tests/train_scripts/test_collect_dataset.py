"""Collecting: every environment has its own data set, and mistakes cost nothing."""

import dataclasses
import socket
import sys

import keras
import numpy as np
import pytest

from rrl_tf.data.sources import load_episodes
from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_policy
from train_scripts import collect_dataset, command_line

pytestmark = [pytest.mark.tf_only, pytest.mark.filterwarnings("ignore::ResourceWarning")]

CARTS = collect_dataset.Config(environment="CartPole-v1", policies=("random",), episodes=2)


def test_every_environment_has_its_own_data_set(tmp_path):
    """Once, CartPole was written where the next training looks for DoorKey."""
    ids = [
        dataclasses.replace(CARTS, environment=name).dataset_id
        for name in ("CartPole-v1", "DoorKey-5x5", "DoorKey-6x6", "ALE/Pong-v5", "mine:Maze-v0")
    ]
    assert len(set(ids)) == len(ids)
    assert collect_dataset.Config().dataset_id == "rrl/doorkey-5x5/mixed-v0"
    carts = dataclasses.replace(CARTS, folder=str(tmp_path))
    assert collect_dataset.main(carts) == tmp_path / "rrl" / "cartpole-v1" / "random-v0"
    there = dataclasses.replace(
        carts, environment="DoorKey-5x5", dataset="rrl/cartpole-v1/random-v0"
    )
    with pytest.raises(InvalidInput, match=r"in CartPole-v1.* received .*in rrl_tf/DoorKey-5x5"):
        collect_dataset.main(there)


def test_doorkey_is_recorded_with_its_environment(tmp_path):
    config = dataclasses.replace(CARTS, environment="DoorKey-5x5", folder=str(tmp_path))
    data = load_episodes(f"minari:{collect_dataset.main(config)}")
    env = data.make_env()
    observation, _ = env.reset(seed=0)
    assert observation.shape == data.episodes[0].observations.shape[1:] == (7, 7, 4)
    assert env.action_space == data.action_space
    assert env.observation_space == data.observation_space
    env.close()


def test_an_export_plays(tmp_path):
    network = keras.Sequential([keras.layers.Dense(2)])
    network.build((None, 4))
    lean = np.array([[0, 0], [0, 0], [-1, 1], [0, 0]])
    network.set_weights([lean, np.zeros(2)])
    export_policy(tmp_path / "export", network, lambda x: x, (4,), "float32")
    config = dataclasses.replace(
        CARTS,
        policies=(str(tmp_path / "export"),),
        explorations=(0.0,),
        dataset="tests/lean-v0",
        folder=str(tmp_path / "data"),
    )
    data = load_episodes(f"minari:{collect_dataset.main(config)}")
    for episode in data.episodes:
        np.testing.assert_array_equal(episode.actions, episode.observations[:-1, 2] > 0)
    wrong = dataclasses.replace(config, environment="Acrobot-v1", dataset="tests/wrong-v0")
    with pytest.raises(InvalidInput, match=r"expected an observation of shape \(4,\)"):
        collect_dataset.main(wrong)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environment": "NoSuch-v0"}, "cannot make the environment"),
        ({"environment": "no_such_module:NoSuch-v0"}, "cannot make the environment"),
        ({"policies": ("nobody",)}, "received 'nobody'"),
        ({"policies": ("random", "agent")}, "the agent is for DoorKey-5x5"),
        ({"policies": ("random", "http://localhost/doorkey")}, "no server can have this address"),
        ({"policies": ("random", "http://127.0.0.1:{port}/doorkey")}, "gives no action"),
    ],
)
def test_mistakes_are_found_before_anything_is_played(tmp_path, changes, message):
    changes = {**changes, "folder": str(tmp_path / "data"), "episodes": 10**9}
    if "policies" in changes:
        changes["policies"] = tuple(p.format(port=free_port()) for p in changes["policies"])
    with pytest.raises(InvalidInput, match=message):
        collect_dataset.main(dataclasses.replace(CARTS, **changes))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--episodes=0"], "episodes must be greater than 0; received 0"),
        (["--dataset=cartpole"], "dataset must be NAMESPACE/NAME-vN"),
        (["--policies=grpc://nowhere/doorkey"], "no server can have this address"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(
    tmp_path, monkeypatch, capsys, arguments, message
):
    folder = f"--folder={tmp_path / 'data'}"
    monkeypatch.setattr(sys, "argv", ["collect", "--environment=CartPole-v1", folder, *arguments])
    with pytest.raises(SystemExit) as ended:
        command_line.run(collect_dataset.main, collect_dataset.Config)
    error = capsys.readouterr().err
    assert ended.value.code and error.count("\n") == 1 and message in error
    assert not (tmp_path / "data").exists()
