"""Tasks, networks and runs of `train_recurrent`."""

import dataclasses
import typing

import keras
import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.models.architectures import RECURRENT_Q_NETWORK
from train_scripts import train_recurrent

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]
DOORKEY = train_recurrent.PRESETS["doorkey-6x6"]


def test_bound_entities_changes_no_value():
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
def test_bound_entities_applies_to_networks_that_read_one_cell(network):
    config = dataclasses.replace(DOORKEY, network=network)
    task = train_recurrent.make_task(config)
    made = train_recurrent.make_network(config, task)
    made.build({"observation": (None, *task.preprocessor.shape)})
    reads_all = network.endswith(("-dense", "-long"))
    assert ("max_entities" in made.encoder_arguments) == (not reads_all)


@pytest.mark.parametrize(
    ("preset", "activation"), [("key-corridor-s3r3", "leaky_relu"), ("memory-s7", "relu")]
)
def test_hidden_activation_is_the_presets(preset, activation):
    config = train_recurrent.PRESETS[preset]
    task = train_recurrent.make_task(config)
    assert train_recurrent.make_network(config, task).hidden_activation == activation


def test_bound_entities_needs_doorkey():
    config = dataclasses.replace(
        DOORKEY, bound_entities=True, environment="memory", sizes=(7,), held_out=False
    )
    with pytest.raises(InvalidInput, match=r"doorkey.*memory"):
        train_recurrent.make_network(config, train_recurrent.make_task(config))


GYMNASIUM = train_recurrent.PRESETS["gymnasium"]


@pytest.mark.parametrize(
    "network", ["lstm-dense", pytest.param("relational-memory-entities", marks=pytest.mark.slow)]
)
def test_run_on_any_gymnasium_environment(network, tmp_path):
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
        burn_in=1,
        unroll_length=2,
        n_step=1,
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
        (GYMNASIUM, {}, "presets gymnasium and minigrid need --env.* received env ''"),
        (DOORKEY, {"env": "CartPole-v1"}, "need --env.*'CartPole-v1' and .*'doorkey'"),
        (GYMNASIUM, {"env": "CartPole-v1", "held_out": True}, "gymnasium has no held_out"),
        (GYMNASIUM, {"env": "CartPole-v1", "sizes": (5,)}, r"no sizes; received \(5,\)"),
        (DOORKEY, {"actions": (0, 1)}, r"doorkey has no actions; received \(0, 1\)"),
    ],
)
def test_option_of_another_environment_is_rejected(config, changes, message):
    with pytest.raises(InvalidInput, match=message):
        train_recurrent.make_task(dataclasses.replace(config, **changes))


def test_minigrid_preset_has_the_settings_of_key_corridor():
    presets = [dataclasses.asdict(train_recurrent.PRESETS["minigrid"])]
    presets.append(dataclasses.asdict(train_recurrent.PRESETS["key-corridor-s3r3"]))
    different = {name for name, value in presets[0].items() if presets[1][name] != value}
    assert different == {"preset", "environment", "sizes"}
    config = dataclasses.replace(
        train_recurrent.PRESETS["minigrid"],
        env="MiniGrid-KeyCorridorS3R2-v0",
        curriculum=("MiniGrid-KeyCorridorS3R1-v0",),
    )
    assert len(train_recurrent.make_task(config).levels) == 2


@pytest.mark.parametrize("name", ["nope", "doorkey-6x6"])
def test_unknown_network_is_rejected(name):
    config = dataclasses.replace(DOORKEY, network=name)
    with pytest.raises(InvalidInput, match=f"`network` must be one of .*lstm.*; received '{name}'"):
        train_recurrent.make_network(config, train_recurrent.make_task(config))


def test_help_names_every_network():
    kind = typing.get_type_hints(train_recurrent.Config)["network"]
    assert set(typing.get_args(kind)) == set(RECURRENT_Q_NETWORK)


def test_sizes_of_the_network_are_options():
    sizes = {"num_heads": 4, "key_size": 8, "num_rounds": 1, "hidden_units": (32,)}
    config = dataclasses.replace(DOORKEY, bound_entities=False, **sizes)
    task = train_recurrent.make_task(config)
    found = train_recurrent.make_network(config, task).get_config()
    encoder = found["encoder_arguments"]
    assert (encoder["num_rounds"], tuple(found["hidden_units"])) == (1, (32,))
    assert (encoder["block"]["num_heads"], encoder["block"]["key_size"]) == (4, 8)
    dense = dataclasses.replace(config, network="lstm-dense")
    with pytest.raises(
        InvalidInput, match=r"must be None for other networks; received .*num_heads"
    ):
        train_recurrent.make_network(dense, task)
