"""Whose a memory is: of another policy, or of nobody, none is taken."""

import keras
import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_recurrent_policy, load_policy
from rrl_tf.models import RecurrentQNetwork

pytestmark = pytest.mark.tf_only
SHAPE = (3, 3, 2)


def made(seed=0, preset="lstm-dense", **core):
    keras.utils.set_random_seed(seed)
    network = RecurrentQNetwork.from_preset(preset, num_actions=3, core_arguments=core)
    network.build({"observation": (None, *SHAPE)})
    return network


def policy(folder, network):
    return load_policy(export_recurrent_policy(folder, network, lambda x: x / 10, SHAPE, "float32"))


def step(asked, memory):
    ones = np.ones((1, *SHAPE), "float32")
    inputs = {"observation": ones, "reward": np.zeros(1, "float32"), "memory": memory}
    return asked.predict(inputs, "act")


def begun(asked):
    return asked.predict({"batch_size": np.int32(1)}, "initial_memory")["memory"]


def same_weights_other_bias():
    memory, other = (
        made(preset="relational-memory-dense", mem_slots=2, head_size=3, forget_bias=bias)
        for bias in (2.0, -2.0)
    )
    other.set_weights(memory.get_weights())
    return memory, other


@pytest.mark.parametrize(
    "networks",
    [lambda: (made(0, units=5), made(1, units=5)), same_weights_other_bias],
    ids=["of other weights", "of other numbers"],
)
def test_a_memory_of_another_policy_is_refused(tmp_path, networks):
    first, second = (policy(tmp_path / name, each) for name, each in zip("ab", networks()))
    memory = step(first, begun(first))["next_memory"]
    step(first, memory)
    with pytest.raises(InvalidInput, match="memory must come from this version of this policy"):
        step(second, memory)


def test_a_memory_of_nobody_is_taken_where_it_is_all_zeros(tmp_path):
    asked = policy(tmp_path, made(units=5))
    nobody = np.zeros_like(begun(asked))
    step(asked, nobody)
    nobody[:, 0] = 5.0
    with pytest.raises(InvalidInput, match="memory must come from this version of this policy"):
        step(asked, nobody)


def test_the_same_policy_once_more_takes_its_memory(tmp_path):
    """A run that goes on exports a version for each command, perhaps of the same weights."""
    network = made(units=5)
    again = RecurrentQNetwork.from_config(network.get_config() | {"name": "other"})
    again.build({"observation": (None, *SHAPE)})
    again.set_weights(network.get_weights())
    first, second = policy(tmp_path / "a", network), policy(tmp_path / "b", again)
    memory = step(first, begun(first))["next_memory"]
    values = [step(each, memory)["q_values"] for each in (first, second)]
    np.testing.assert_array_equal(*values)


@pytest.mark.parametrize(
    ("network", "received"),
    [
        (lambda: RecurrentQNetwork.from_preset("lstm-dense", num_actions=3), "an unbuilt Recurr"),
        (lambda: keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)]), "a built Sequent"),
    ],
)
def test_what_is_no_network_with_a_memory_is_told(tmp_path, network, received):
    """All that were not built had the same number, so that they took each other's memories."""
    with pytest.raises(InvalidInput, match=f"a built RecurrentQNetwork; received {received}"):
        export_recurrent_policy(tmp_path / "export", network(), lambda x: x, SHAPE)
    assert not (tmp_path / "export").exists()
