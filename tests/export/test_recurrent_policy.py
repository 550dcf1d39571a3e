"""Exported recurrent policies: the memory is an input and an output, and the graph keeps none."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from rrl_tf.export import SavedModelSession, export_policy, load_policy
from rrl_tf.layers import RelationalMemoryCell

pytestmark = pytest.mark.tf_only
SHAPE, ACTIONS, MEMORY = (4,), 3, 2 * 6


class Remembering(keras.Model):
    """Computes Q values from the memory of a Relational Memory Core."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.cell = RelationalMemoryCell(
            2, 3, num_heads=2, learned_start=True, dtype=self.dtype_policy
        )
        self.head = keras.layers.Dense(ACTIONS)

    def build(self, observation_shape, memory_shape=None):
        self.cell.build(observation_shape)
        self.head.build((None, MEMORY))

    def call(self, inputs, memory, return_attention_scores=False):
        output, state, scores = self.cell(inputs, memory, return_attention_scores=True)
        results = (self.head(output), state)
        return (*results, scores) if return_attention_scores else results


def make_model(**kwargs):
    model = Remembering(**kwargs)
    model.build((None, *SHAPE))
    start = np.linspace(-1, 1, MEMORY)
    model.cell.initial_memory.assign(start)
    return model, model.cell.get_initial_state


def preprocess(observation):
    return ops.cast(observation, "float32") / 4.0


def export(base, model, initial_memory, **options):
    return export_policy(base, model, preprocess, SHAPE, initial_memory=initial_memory, **options)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    model, initial_memory = make_model()
    return model, export(tmp_path_factory.mktemp("export"), model, initial_memory)


def test_a_step_returns_the_next_memory(exported):
    model, folder = exported
    session = SavedModelSession(folder)
    assert set(session.signatures) == {
        *("act", "act_with_attention", "initial_memory", "serving_default")
    }
    memory = session.run("initial_memory", {"batch_size": np.array(3, np.int32)})["memory"]
    np.testing.assert_allclose(memory, np.tile(np.linspace(-1, 1, MEMORY), (3, 1)), rtol=1e-6)
    expected = memory
    for seed in range(5):
        raw = np.random.default_rng(seed).integers(0, 9, (3, *SHAPE), np.uint8)
        q_values, (expected,), scores = model(
            preprocess(raw), expected, return_attention_scores=True
        )
        for name in ("act_with_attention", "act"):
            answer = session.run(name, {"observation": raw, "memory": memory})
            np.testing.assert_allclose(answer["q_values"], q_values, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(answer["next_memory"], expected, rtol=1e-4, atol=1e-5)
            assert answer["action"].tolist() == answer["q_values"].argmax(-1).tolist()
        attention = session.run("act_with_attention", {"observation": raw, "memory": memory})
        np.testing.assert_allclose(attention["attention_block_1"], scores["block_1"], rtol=1e-3)
        memory = answer["next_memory"]


def test_requests_are_independent(exported):
    session = SavedModelSession(exported[1])
    inputs = {"observation": np.ones((1, *SHAPE), np.uint8), "memory": np.ones((1, MEMORY), "f4")}
    first = session.run("act", inputs)
    session.run("act", {**inputs, "memory": -inputs["memory"]})
    np.testing.assert_array_equal(session.run("act", inputs)["next_memory"], first["next_memory"])


def test_policy_json_contains_the_memory(exported):
    folder = exported[1]
    document = json.loads((folder / "assets.extra" / "policy.json").read_text())
    memory = {"dtype": "float32", "shape": [None, MEMORY]}
    act = document["signatures"]["act"]
    assert act["inputs"]["memory"] == act["outputs"]["next_memory"] == memory
    initial = document["signatures"]["initial_memory"]
    assert initial["inputs"] == {"batch_size": {"dtype": "int32", "shape": []}}
    assert initial["outputs"] == {"memory": memory}


@pytest.mark.parametrize("batch_size", [-1, 5000, 2**31 - 1])
def test_the_batch_size_is_limited(exported, batch_size):
    session = SavedModelSession(exported[1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="0 to 4096"):
        session.run("initial_memory", {"batch_size": np.array(batch_size, np.int32)})


def test_mixed_precision_has_a_float32_memory(tmp_path):
    policy = load_policy(export(tmp_path, *make_model(dtype="mixed_bfloat16")))
    assert {dtype for dtype, _ in policy.signatures["act"]["outputs"].values()} == {
        np.dtype("float32"),
        np.dtype("int32"),
    }


def test_predict_needs_the_memory(exported):
    policy = load_policy(exported[1])
    raw = np.zeros((1, *SHAPE), np.uint8)
    with pytest.raises(ValueError, match=r"inputs \['memory', 'obs.*serving.sessions"):
        policy.act(raw)
    with pytest.raises(ValueError, match=r"names \['memory', 'observation'\]; received \['obs"):
        policy.predict({"observation": raw})
    memory = policy.predict({"batch_size": np.int32(1)}, "initial_memory")["memory"]
    assert policy.predict({"observation": raw, "memory": memory})["next_memory"].shape == (1, 12)
    memory[0, 5] = np.nan
    with pytest.raises(ValueError, match=r"^memory must be finite in float32; received nan"):
        policy.predict({"observation": raw, "memory": memory})


@pytest.mark.parametrize(
    ("initial_memory", "message"),
    [
        (lambda batch_size: ops.zeros((1, MEMORY)), r"must return an array of shape \(2, ...\)"),
        (lambda batch_size: ops.zeros((batch_size,)), r"must return an array of shape \(2, ...\)"),
        (lambda batch_size: [ops.zeros((2, 6))] * 2, "too many values"),
    ],
)
def test_an_invalid_initial_memory_raises(tmp_path, initial_memory, message):
    with pytest.raises(ValueError, match=message):
        export(tmp_path / "base", make_model()[0], initial_memory)
    assert not list(tmp_path.glob("base/*"))


def test_a_next_memory_of_another_shape_raises(tmp_path):
    class Growing(keras.Model):
        def call(self, inputs, memory):
            return inputs[:, :2], ops.concatenate([memory, memory], axis=1)

    with pytest.raises(Exception, match=r"not compatible"):
        export(tmp_path, Growing(), lambda batch_size: ops.zeros((batch_size, 5)))
