"""Exported policies: the files, the outputs and the errors."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.export import SavedModelSession, export_policy, load_policy
from rrl_tf.export.writer import write_version

pytestmark = pytest.mark.tf_only
SHAPE, ACTIONS, HEADS = (3, 3, 2), 4, 2


class TinyAttention(keras.Model):
    """Returns Q values and, on request, attention scores."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scorer = keras.layers.Dense(HEADS)
        self.head = keras.layers.Dense(ACTIONS)

    def call(self, inputs, return_attention_scores=False):
        entities = ops.reshape(inputs, (-1, 9, 2))
        logits = ops.transpose(self.scorer(entities), (0, 2, 1))[:, :, None, :]
        scores = ops.softmax(ops.repeat(logits, 9, axis=2), axis=-1)
        mixed = ops.matmul(scores, entities[:, None])
        q_values = self.head(ops.reshape(mixed, (-1, HEADS * 9 * 2)))
        return (q_values, {"round_1": scores}) if return_attention_scores else q_values


def preprocess(observation):
    return ops.cast(observation, "float32") / 10.0


def make_model(seed=0, **kwargs):
    keras.utils.set_random_seed(seed)
    return TinyAttention(**kwargs)


def observations(batch, seed=0):
    return np.random.default_rng(seed).integers(0, 11, (batch, *SHAPE), np.uint8)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    model = make_model()
    base = tmp_path_factory.mktemp("export")
    details = {"environment": "tiny", "action_names": ["a", "b", "c", "d"], "scores": {"train": 1}}
    return model, export_policy(base, model, preprocess, SHAPE, details=details)


@pytest.fixture(scope="module")
def policy(exported):
    return load_policy(exported[1])


def test_signatures_return_the_model_outputs_for_any_batch_size(exported):
    model, folder = exported
    session = SavedModelSession(folder)
    assert set(session.signatures) == {"act", "act_with_attention", "serving_default"}
    for batch in (1, 2, 7):
        raw = observations(batch)
        q_values, scores = model(preprocess(raw), return_attention_scores=True)
        for signature in session.signatures:
            answer = session.run(signature, {"observation": raw})
            np.testing.assert_allclose(answer["q_values"], q_values, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(answer["action"], answer["q_values"].argmax(-1))
            assert answer["action"].dtype == np.int32 and answer["q_values"].dtype == np.float32
        attention = session.run("act_with_attention", {"observation": raw})["attention_round_1"]
        np.testing.assert_allclose(attention, scores["round_1"], rtol=1e-5, atol=1e-6)
        assert attention.shape == (batch, HEADS, 9, 9)


def test_every_weight_is_saved_once(exported):
    model, folder = exported[:2]
    saved = tf.train.list_variables(str(folder / "variables" / "variables"))
    shapes = [tuple(shape) for name, shape in saved if "VARIABLE_VALUE" in name]
    assert sorted(shapes) == sorted(tuple(weight.shape) for weight in model.weights)


def test_run_returns_the_named_outputs_only(exported):
    session = SavedModelSession(exported[1])
    answer = session.run("act", {"observation": observations(2)}, ("q_values",))
    assert list(answer) == ["q_values"]


def test_graph_holds_no_python_and_no_forced_xla(exported):
    graph = SavedModelSession(exported[1]).meta_graph.graph_def
    nodes = list(graph.node) + [n for f in graph.library.function for n in f.node_def]
    assert not {n.op for n in nodes} & {"PyFunc", "EagerPyFunc", "PyFuncStateless"}
    attributes = [f.attr for f in graph.library.function] + [n.attr for n in nodes]
    assert not any(a["_XlaMustCompile"].b for a in attributes if "_XlaMustCompile" in a)


def test_policy_json_describes_the_signatures_and_keeps_the_details(exported):
    document = json.loads((exported[1] / "assets.extra" / "policy.json").read_text())
    assert document["environment"] == "tiny" and document["action_names"] == ["a", "b", "c", "d"]
    act = document["signatures"]["act"]
    assert act["inputs"] == {"observation": {"dtype": "uint8", "shape": [None, *SHAPE]}}
    assert act["outputs"] == {
        "action": {"dtype": "int32", "shape": [None]},
        "q_values": {"dtype": "float32", "shape": [None, ACTIONS]},
    }


def test_warmup_file_replays_on_every_signature(exported):
    from tensorflow_serving.apis import prediction_log_pb2

    session = SavedModelSession(exported[1])
    path = exported[1] / "assets.extra" / "tf_serving_warmup_requests"
    seen = set()
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
        assert session.run(request.model_spec.signature_name, inputs)
        seen.add(request.model_spec.signature_name)
    assert seen == set(session.signatures)


def test_versions_count_up_and_are_never_overwritten(tmp_path):
    model = make_model()
    for name in ("007", "notes", "12.tmp"):
        (tmp_path / name).mkdir()
    assert export_policy(tmp_path, model, preprocess, SHAPE).name == "8"
    assert export_policy(tmp_path, model, preprocess, SHAPE, version=3).name == "3"
    with pytest.raises(FileExistsError, match="version 3"):
        export_policy(tmp_path, model, preprocess, SHAPE, version=3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["007", "12.tmp", "3", "8", "notes"]


def test_mixed_precision_answers_in_float32(tmp_path):
    model = make_model(dtype="mixed_bfloat16")
    policy = load_policy(export_policy(tmp_path, model, preprocess, SHAPE))
    outputs = policy.details["signatures"]["act_with_attention"]["outputs"]
    assert {spec["dtype"] for spec in outputs.values()} == {"float32", "int32"}


def test_a_model_without_attention_has_no_attention_signature(tmp_path):
    inputs = keras.Input(SHAPE)
    model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(inputs)))
    policy = load_policy(export_policy(tmp_path, model, preprocess, SHAPE))
    assert set(policy.details["signatures"]) == {"act", "serving_default"}
    with pytest.raises(ValueError, match="received 'act_with_attention'"):
        policy.act(observations(1), return_attention_scores=True)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_a_sequential_model_on_vectors_is_a_policy(tmp_path, dtype):
    model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)])
    names = {"action_names": ["left", "right"]}
    folder = export_policy(
        tmp_path, model, lambda x: ops.cast(x, "float32"), (4,), dtype, details=names
    )
    policy = load_policy(folder)
    assert set(policy.signatures) == {"act", "serving_default"}
    raw = np.random.default_rng(0).normal(scale=3, size=(5, 4)).astype(dtype)
    expected = np.argmax(model(raw), axis=-1)
    np.testing.assert_array_equal(policy.act(raw), expected)
    assert policy.act(raw[3]) == expected[3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observation_shape": (3, 0)}, "positive sizes"),
        ({"observation_dtype": "str"}, "numeric"),
        ({"version": 0}, "positive integer"),
        ({"version": "1"}, "positive integer"),
        ({"version": -1}, "positive integer"),
        ({"version": True}, "positive integer; received True"),
        ({"details": {"scores": np.nan}}, "JSON"),
        ({"details": {"action_names": ["left"]}}, r"4 actions; received \['left'\]"),
        ({"model": keras.layers.Identity()}, r"\(B, A\); received shape \(2, 3, 3, 2\)"),
    ],
)
def test_an_invalid_argument_raises_and_writes_nothing(tmp_path, arguments, message):
    defaults = {"model": make_model(), "preprocessor": preprocess, "observation_shape": SHAPE}
    with pytest.raises(ValueError, match=message):
        export_policy(tmp_path / "base", **(defaults | arguments))
    assert not list(tmp_path.glob("base/*"))


def test_an_output_without_rows_raises(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])

    def answer(x):
        return {"y": model(x), "mean": ops.mean(x), "name": tf.constant("mine")}

    endpoint = (answer, [tf.TensorSpec((None, 4), name="x")])
    endpoints = {"act": endpoint, "serving_default": endpoint}
    with pytest.raises(
        InvalidInput,
        match=r"must return outputs of batch size 1 for inputs .*; received .*'mean': \(\)",
    ):
        write_version(tmp_path, model, endpoints)
    assert not list(tmp_path.iterdir())


def test_act_takes_one_observation_or_a_batch(policy):
    raw = observations(5)
    batch = policy.act(raw)
    assert batch.shape == (5,)
    assert [policy.act(one) for one in raw] == batch.tolist()
    assert isinstance(policy.act(raw[0].tolist()), int)
    action, attention = policy.act(raw[0], return_attention_scores=True)
    assert action == batch[0] and attention["round_1"].shape == (HEADS, 9, 9)
    np.testing.assert_allclose(attention["round_1"].sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 3), (1, 1, 3, 3, 2), (3, 3), ()])
def test_act_reports_a_wrong_shape(policy, shape):
    with pytest.raises(ValueError, match=r"3, 3, 2\].*received shape"):
        policy.act(np.zeros(shape, np.uint8))


def test_act_reports_a_wrong_dtype(policy):
    with pytest.raises(ValueError, match=r"uint8; received .* float32"):
        policy.act(observations(1).astype("float32"))


@pytest.mark.parametrize("signature", ["act", "act_with_attention"])
@pytest.mark.parametrize("cast", [np.ndarray.tolist, tf.constant])
def test_lists_and_tensors_with_values_outside_the_dtype_raise(policy, signature, cast):
    raw = observations(2)
    answer = policy.act(raw, signature != "act")
    np.testing.assert_equal(policy.act(cast(raw), signature != "act"), answer)
    for value, received in ((300, "0 to 255; received 300"), (0.99, r"\(uint8\); received 0.99")):
        with pytest.raises(InvalidInput, match=f"observation must be .*{received}"):
            policy.act(cast(np.full(SHAPE, value)), signature != "act")
        with pytest.raises(InvalidInput, match=f"observation must be .*{received}"):
            policy.predict({"observation": cast(np.full((1, *SHAPE), value))}, signature)


@pytest.mark.parametrize("value", [[[1], [1, 2]], "abc", None, {"observation": 1}])
def test_an_invalid_observation_raises(policy, value):
    with pytest.raises(InvalidInput, match=r"observation.* .*uint8"):
        policy.act(value)


def test_predict_needs_names(policy):
    with pytest.raises(InvalidInput, match=r"names \['observation'\]; received \[array"):
        policy.predict([observations(1)])
