"""What `train_recurrent` makes of its options."""

import dataclasses

import keras
import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.models.recurrent_presets import RECURRENT_Q_NETWORK
from train_scripts import train_recurrent

pytestmark = pytest.mark.tf_only
DOORKEY = train_recurrent.PRESETS["doorkey-6x6"]


def test_the_bound_on_cells_changes_no_value():
    task = train_recurrent.make_task(DOORKEY)
    env = task.make_test_env()
    views = np.stack([env.reset(**reset)[0] for reset in task.evaluation_resets(at_most=40)])
    inputs = {
        "observation": task.preparation(views),
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
    made.build({"observation": (None, *task.preparation.shape)})
    reads_all = network.endswith(("-dense", "-long"))
    assert ("max_entities" in made.encoder_arguments) == (not reads_all)


def test_cells_are_bounded_of_rooms():
    config = dataclasses.replace(
        DOORKEY, bound_entities=True, environment="memory", sizes=(7,), held_out=False
    )
    with pytest.raises(InvalidInput, match=r"doorkey.*memory"):
        train_recurrent.make_network(config, train_recurrent.make_task(config))
