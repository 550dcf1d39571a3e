"""What `train_recurrent` makes of its options."""

import dataclasses
import inspect
import json

import gymnasium
import keras
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from rrl_tf.agents import run as agent_run
from rrl_tf.errors import InvalidInput
from rrl_tf.models.recurrent_presets import RECURRENT_Q_NETWORK
from train_scripts import train_recurrent

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]
DOORKEY = train_recurrent.PRESETS["doorkey-6x6"]


def test_the_bound_on_cells_changes_no_value():
    task = train_recurrent.make_task(DOORKEY)
    env = task.make_test_env()
    views = np.stack([env.reset(**reset)[0] for reset in task.evaluation_resets(at_most=40)])
    inputs = {
        "observation": task.preprocessor(views),
        "previous_action": np.full(len(views), -1),
        "previous_reward": np.zeros(len(views), "float32"),
    }
    values = []
    for bound_entities in (True, False):
        keras.utils.set_random_seed(0)
        config = dataclasses.replace(DOORKEY, bound_entities=bound_entities)
        network = train_recurrent.make_network(config, task)
        values.append(keras.ops.convert_to_numpy(network(inputs)[0]))
        assert network.encoder_layer.max_entities == (30 if bound_entities else None)
    np.testing.assert_allclose(*values, atol=1e-5)


@pytest.mark.parametrize("network", RECURRENT_Q_NETWORK)
def test_every_network_plays_in_rooms_where_cells_are_bounded(network):
    config = dataclasses.replace(DOORKEY, network=network)
    task = train_recurrent.make_task(config)
    made = train_recurrent.make_network(config, task)
    made.build({"observation": (None, *task.preprocessor.shape)})
    reads_all = network.endswith(("-dense", "-long"))
    assert ("max_entities" in made.encoder_arguments) == (not reads_all)


@pytest.mark.parametrize(
    ("preset", "activation"), [("key-corridor-s3r3", "leaky_relu"), ("memory-s7", "relu")]
)
def test_units_after_the_memory_are_what_the_preset_says(preset, activation):
    config = train_recurrent.PRESETS[preset]
    task = train_recurrent.make_task(config)
    assert train_recurrent.make_network(config, task).hidden_activation == activation


def test_cells_are_bounded_of_rooms():
    config = dataclasses.replace(
        DOORKEY, bound_entities=True, environment="memory", sizes=(7,), held_out=False
    )
    with pytest.raises(InvalidInput, match=r"doorkey.*memory"):
        train_recurrent.make_network(config, train_recurrent.make_task(config))


GYMNASIUM = train_recurrent.PRESETS["gymnasium"]


@pytest.mark.parametrize(
    "network", ["lstm-dense", pytest.param("relational-memory-entities", marks=pytest.mark.slow)]
)
def test_any_environment_is_trained_on(network, tmp_path):
    config = dataclasses.replace(
        GYMNASIUM,
        env="MiniGrid-MemoryS7-v0",
        actions=(0, 1, 2),
        max_steps=20,
        network=network,
        runs=str(tmp_path),
        steps=192,
        batch_size=2,
        learning_starts=160,
        updates_per_step=0.02,
        evaluation_episodes=2,
    )
    run, _ = train_recurrent.main(config)
    assert run.folder.path == tmp_path / "MiniGrid-MemoryS7-v0-seed0"
    assert (run.folder.export / "1").exists()
    task = train_recurrent.make_task(config)
    assert task.num_actions == 3 and task.success_return > 0


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (GYMNASIUM, {}, "--preset gymnasium goes with --env .* received env ''"),
        (DOORKEY, {"env": "CartPole-v1"}, "goes with --env .*'CartPole-v1' and .*'doorkey'"),
        (GYMNASIUM, {"env": "CartPole-v1", "held_out": True}, "gymnasium has no held_out"),
        (GYMNASIUM, {"env": "CartPole-v1", "sizes": (5,)}, r"no sizes; received \(5,\)"),
        (DOORKEY, {"actions": (0, 1)}, r"doorkey has no actions; received \(0, 1\)"),
    ],
)
def test_an_environment_and_its_options_go_together(config, changes, message):
    with pytest.raises(InvalidInput, match=message):
        train_recurrent.make_task(dataclasses.replace(config, **changes))


@pytest.mark.parametrize("name", ["nope", "doorkey-6x6"])
def test_a_network_that_there_is_not_is_told_by_its_option(name):
    """It was called a preset, which is another option, and trained agents were offered."""
    config = dataclasses.replace(DOORKEY, network=name)
    with pytest.raises(InvalidInput, match=f"`network` must be one of .*lstm.*; received '{name}'"):
        train_recurrent.make_network(config, train_recurrent.make_task(config))


def test_help_names_every_network():
    source = inspect.getsource(train_recurrent.Config)
    told = source.split("network: str")[1].split('"""')[1]
    for name in RECURRENT_Q_NETWORK:
        assert name.removesuffix("-dense") in told, name


class Counting(gymnasium.Env):
    """Five steps, each worth 1; nobody tells what a success is."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 5
        return np.zeros(2, "float32"), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(2, "float32"), 1.0, self.left == 0, False, {}


def test_where_nobody_tells_of_a_success_none_is_logged(tmp_path, monkeypatch):
    """Once, it was said that nothing was solved."""
    monkeypatch.setitem(gymnasium.registry, "Counting-v0", EnvSpec("Counting-v0", Counting))
    monkeypatch.setattr(agent_run, "finish", lambda *_: None)
    numbers = {"steps": 600, "learning_starts": 590, "log_every": 200, "evaluation_episodes": 2}
    run, _ = train_recurrent.main(
        dataclasses.replace(GYMNASIUM, env="Counting-v0", runs=str(tmp_path), **numbers)
    )
    assert {row["rollout/return"] for row in run.log.rows if "rollout/return" in row} == {5.0}
    assert not any(name.endswith("success") for row in run.log.rows for name in row)


def test_other_hosts_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    """Once, each trained alone, as chief, in the same folder."""
    cluster = {"worker": ["localhost:1", "localhost:2"]}
    task = {"type": "worker", "index": 1}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    with pytest.raises(InvalidInput, match="trains on one host; received a cluster of 2"):
        train_recurrent.main(dataclasses.replace(DOORKEY, runs=str(tmp_path / "runs")))
    assert not (tmp_path / "runs").exists()
