"""A loaded policy has constants instead of variables, and the outputs of the export."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.export import (
    SavedModelSession,
    export_decision_transformer,
    export_policy,
    export_recurrent_policy,
    load,
    load_policy,
)
from rrl_tf.models import (
    BehaviorCloning,
    DecisionTransformer,
    RecurrentQNetwork,
)
from rrl_tf.offline.scaling import Scaling

pytestmark = pytest.mark.tf_only
SHAPE, STATES, ACTIONS = (3, 3, 2), 5, 3


def preprocess(observation):
    return keras.ops.cast(observation, "float32") / 10.0


def lstm(folder):
    network = RecurrentQNetwork.from_preset(
        "lstm-dense", num_actions=3, core_arguments={"units": 5}
    )
    network.build({"observation": (None, *SHAPE)})
    return export_recurrent_policy(folder, network, preprocess, SHAPE)


def trajectories(model, folder):
    model.build()
    rng = np.random.default_rng(0)
    low, high = np.array([-1, 0, 2], "float32"), np.array([1, 2, 3], "float32")
    scaling = Scaling(*rng.normal(size=(2, STATES)).astype("float32"), 100.0, low, high)
    return export_decision_transformer(folder, model, scaling, (STATES,))


def transformer(folder):
    sizes = {"width": 16, "num_blocks": 2, "context_length": 4}
    return trajectories(DecisionTransformer(STATES, ACTIONS, **sizes), folder)


def dense(folder):
    return trajectories(
        BehaviorCloning(STATES, ACTIONS, return_conditioned=True, members=2), folder
    )


POLICIES = {"lstm": lstm, "transformer": transformer, "dense": dense}


@pytest.fixture(scope="module", params=POLICIES)
def both(request, tmp_path_factory):
    """The export as a session with variables, and as a loaded policy with constants."""
    keras.utils.set_random_seed(0)
    folder = POLICIES[request.param](tmp_path_factory.mktemp("frozen"))
    return SavedModelSession(folder), load_policy(folder)


def resources(session):
    """Return the names of a session's operations for variables or tables."""
    operations = session._session.graph.get_operations()
    return [o.name for o in operations if any(t.dtype == tf.resource for t in o.outputs)]


def inputs_of(policy, signature, batch, seed):
    """Return random inputs; a memory is the initial one of the policy."""
    rng, inputs = np.random.default_rng(seed), {}
    for name, (dtype, shape) in policy.signatures[signature]["inputs"].items():
        sizes = [batch if size < 0 else size for size in shape]
        draw = rng.normal(size=sizes) if dtype.kind == "f" else rng.integers(0, 3, sizes)
        inputs[name] = np.asarray(draw, dtype)
    if "memory" in inputs:
        start = {"batch_size": np.array(batch, "int32")}
        inputs["memory"] = policy.predict(start, "initial_memory")["memory"]
    return inputs


@given(batch=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=5, deadline=None)
def test_every_signature_equals_the_export(both, batch, seed):
    session, policy = both
    assert resources(session) and not resources(policy._session)
    for signature in policy.signatures.keys() - {"serving_default"}:  # the same as `act`
        inputs = inputs_of(policy, signature, batch, seed)
        answers, expected = policy.predict(inputs, signature), session.run(signature, inputs)
        assert answers.keys() == expected.keys()
        for name, value in expected.items():
            assert answers[name].dtype == value.dtype
            np.testing.assert_allclose(answers[name], value, rtol=1e-6, atol=1e-6)


def test_a_wrong_memory_raises_the_same_message(tmp_path):
    folder = POLICIES["lstm"](tmp_path)
    session, policy = SavedModelSession(folder), load_policy(folder)
    inputs = inputs_of(policy, "act", 2, 0)
    others = inputs["memory"] + 1  # the last number is the fingerprint
    for wrong in (inputs["memory"][:1], others):
        with pytest.raises(tf.errors.InvalidArgumentError) as expected:
            session.run("act", {**inputs, "memory": wrong})
        words = expected.value.message.splitlines()[0]
        assert "memory" in words
        with pytest.raises(InvalidInput, match=re.escape(words)):
            policy.predict({**inputs, "memory": wrong}, "act")


class Counting(keras.Model):
    """Counts its calls in a variable, which therefore cannot become a constant."""

    def build(self, shape):
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs):
        self.calls.assign_add(1.0)
        return inputs[:, :2] + self.calls


class LookingUp(keras.Model):
    """Has a lookup table, which is a resource but not a variable."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table, self.head = keras.layers.IntegerLookup(vocabulary=[3, 5]), keras.layers.Dense(2)

    def call(self, inputs):
        return self.head(keras.ops.cast(self.table(inputs), "float32"))


@pytest.mark.parametrize("model, dtype", [(Counting, "float32"), (LookingUp, "int64")])
def test_written_variables_and_tables_are_not_frozen(model, dtype, tmp_path):
    folder = export_policy(tmp_path, model(), lambda x: x, (4,), dtype)
    session, policy = SavedModelSession(folder), load_policy(folder)
    raw = {"observation": np.array([[3, 1, 0, 5]], dtype)}
    for _ in range(3):
        expected = session.run("act", raw)["q_values"]
        np.testing.assert_array_equal(policy.predict(raw)["q_values"], expected)


def test_large_weights_are_not_frozen(tmp_path, monkeypatch):
    folder = POLICIES["dense"](tmp_path)
    monkeypatch.setattr(load, "_MOST_BYTES_FROZEN", 100)
    policy = load_policy(folder)
    assert resources(policy._session)
    inputs = inputs_of(policy, "act", 1, 0)
    np.testing.assert_array_equal(
        policy.predict(inputs, "act")["action"],
        SavedModelSession(folder).run("act", inputs)["action"],
    )
