"""The fingerprint of a memory: only memories of the same policy are accepted."""

import keras
import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_recurrent_policy, load_policy
from rrl_tf.models import RecurrentQNetwork

pytestmark = pytest.mark.tf_only
SHAPE = (3, 3, 2)


def make_network(seed=0, preset="lstm-dense", **core):
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


def initial_memory(asked):
    return asked.predict({"batch_size": np.int32(1)}, "initial_memory")["memory"]


def same_weights_other_bias():
    memory, other = (
        make_network(preset="relational-memory-dense", mem_slots=2, head_size=3, forget_bias=bias)
        for bias in (2.0, -2.0)
    )
    other.set_weights(memory.get_weights())
    return memory, other


@pytest.mark.parametrize(
    "networks",
    [lambda: (make_network(0, units=5), make_network(1, units=5)), same_weights_other_bias],
    ids=["of other weights", "of other numbers"],
)
def test_a_memory_of_another_policy_raises(tmp_path, networks):
    first, second = (policy(tmp_path / name, each) for name, each in zip("ab", networks()))
    memory = step(first, initial_memory(first))["next_memory"]
    step(first, memory)
    with pytest.raises(InvalidInput, match="memory must come from this version of this policy"):
        step(second, memory)


def test_a_memory_of_zeros_is_accepted(tmp_path):
    asked = policy(tmp_path, make_network(units=5))
    zeros = np.zeros_like(initial_memory(asked))
    step(asked, zeros)
    zeros[:, 0] = 5.0
    with pytest.raises(InvalidInput, match="memory must come from this version of this policy"):
        step(asked, zeros)


def test_a_second_export_accepts_the_memory(tmp_path):
    """A resumed run exports a version for each command, possibly with the same weights."""
    network = make_network(units=5)
    again = RecurrentQNetwork.from_config(network.get_config() | {"name": "other"})
    again.build({"observation": (None, *SHAPE)})
    again.set_weights(network.get_weights())
    first, second = policy(tmp_path / "a", network), policy(tmp_path / "b", again)
    memory = step(first, initial_memory(first))["next_memory"]
    values = [step(each, memory)["q_values"] for each in (first, second)]
    np.testing.assert_array_equal(*values)


@pytest.mark.parametrize(
    ("network", "received"),
    [
        (lambda: RecurrentQNetwork.from_preset("lstm-dense", num_actions=3), "an unbuilt Recurr"),
        (lambda: keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)]), "a built Sequent"),
    ],
)
def test_a_network_without_weights_raises(tmp_path, network, received):
    with pytest.raises(InvalidInput, match=f"a built RecurrentQNetwork; received {received}"):
        export_recurrent_policy(tmp_path / "export", network(), lambda x: x, SHAPE)
    assert not (tmp_path / "export").exists()
