"""TensorFlow Serving's published cases of JSON, sent to signatures that return their inputs."""

import json
import math
import sys

import numpy as np
import pytest
from tensorflow.core.example import example_pb2

from serving.errors import ServingError
from serving.server.json_codec import classify_reply, examples_from_json, parse, regress_reply

pytestmark = pytest.mark.tf_only
HELLO, WORLD, TF, SERVING = (
    {"b64": text} for text in ("aGVsbG8=", "d29ybGQ=", "dGY=", "c2VydmluZw==")
)
PAIRS = [[1, 2], [3, 4], [5, 6]]
MORE_PAIRS = [[7, 8], [9, 0], [1, 2]]
MAX, MIN = sys.float_info.max, sys.float_info.min


@pytest.fixture
def predict(published):
    """Function that returns (HTTP status, reply) of a predict request."""

    def predict(body, signature=""):
        if isinstance(body, dict) and signature:
            body = body | {"signature_name": signature}
        return published.ask("POST", "/v1/models/tensors:predict", body)

    return predict


@pytest.mark.parametrize(
    ("signature", "values"),
    [
        ("", PAIRS),
        ("", [1, 2, 3, 4, 5]),
        ("", [PAIRS, MORE_PAIRS]),
        ("floats", [1, 2.0, 3, 4, 5.003, 0.007, 0.0]),
        ("doubles", [1.0, 2, 3, 4, 0.662, 0, 0.0]),
        ("floats", [[9000000, 999999, 0.5], [0.0003, 0.00003, 555557.5]]),
        ("strings", ["foo", "bar"]),
        ("bytes", [[HELLO, WORLD], [TF, SERVING]]),
    ],
)
@pytest.mark.parametrize(("form", "answer"), [("instances", "predictions"), ("inputs", "outputs")])
def test_values_come_back(predict, form, answer, signature, values):
    assert predict({form: values}, signature) == (200, {answer: values})


@pytest.mark.parametrize("text", ["1435774380", "1435774380.0"])
def test_a_number_is_rounded_to_float32_however_it_is_written(predict, text):
    body = f'{{"signature_name": "floats", "instances": [{text}]}}'
    status, reply = predict(body)
    assert status == 200
    np.testing.assert_array_equal(np.float32(reply["predictions"]), np.float32([1435774380]))


@pytest.mark.parametrize(
    ("number", "expected"), [(MAX, math.inf), (-MAX, -math.inf), (MIN, 0.0), (-MIN, -0.0)]
)
def test_numbers_beyond_float32(predict, number, expected):
    status, reply = predict({"instances": [number]}, "floats")
    assert status == 200 and reply == {"predictions": [expected]}
    assert math.copysign(1, reply["predictions"][0]) == math.copysign(1, expected)


def test_numbers_that_are_not_finite(predict):
    body = '{"signature_name": "floats", "instances": [[NaN, Infinity], [3.0, -Infinity]]}'
    status, reply = predict(body)
    assert status == 200
    assert json.dumps(reply) == '{"predictions": [[NaN, Infinity], [3.0, -Infinity]]}'


@pytest.mark.parametrize(
    ("instances", "expected"),
    [
        ([HELLO, WORLD], ["hello", "world"]),
        ([[HELLO], [WORLD]], [["hello"], ["world"]]),
        ([{"default": [[HELLO], [WORLD]]}], [[["hello"], ["world"]]]),
    ],
)
def test_base64_rows(predict, instances, expected):
    assert predict({"instances": instances}, "strings") == (200, {"predictions": expected})


@pytest.mark.parametrize(
    "text", ["aGVsbG8", "aGVs\nbG8=", "aGVs\r\nbG8=\r\n", " aGVsbG8 ", "aGVs\tbG8", "aGVsbG8="]
)
def test_base64_without_padding_or_with_line_breaks(predict, text):
    for form, answer in (("instances", "predictions"), ("inputs", "outputs")):
        body = {form: [{"b64": text}]}
        assert predict(body, "strings") == (200, {answer: ["hello"]})
    (example,) = examples_from_json({"examples": [{"names": [{"b64": text}]}]})
    (value,) = example_pb2.Example.FromString(example).features.feature["names"].bytes_list.value
    assert value == b"hello"


@pytest.mark.parametrize(
    "text", ["-_-_", "a", "aGVsb", "aGVsbG8==", "aGVs=bG8", "=aGVsbG8", "aGVsbG8!", "aGVsbG8\u00a0"]
)
def test_refused_base64(predict, text):
    status, reply = predict({"instances": [{"b64": text}]}, "strings")
    assert status == 400 and reply["error"]
    with pytest.raises(ServingError):
        examples_from_json({"examples": [{"names": [{"b64": text}]}]})


def test_several_inputs_in_rows(predict):
    body = """{"signature_name": "rows", "instances": [
        {"int_tensor": [[1,2],[3,4],[5,6]], "str_tensor": ["foo", "bar"],
         "float_tensor": [1.0, NaN], "dbl_tensor": [NaN]},
        {"int_tensor": [[7,8],[9,0],[1,2]], "str_tensor": ["baz", "bat"],
         "float_tensor": [2.0, Infinity], "dbl_tensor": [2.0]}]}"""
    status, reply = predict(body)
    assert status == 200
    first, second = reply["predictions"]
    assert (first["int_tensor"], second["int_tensor"]) == (PAIRS, MORE_PAIRS)
    assert (first["str_tensor"], second["str_tensor"]) == (["foo", "bar"], ["baz", "bat"])
    assert first["float_tensor"][0] == 1.0 and math.isnan(first["float_tensor"][1])
    assert second["float_tensor"] == [2.0, math.inf] and second["dbl_tensor"] == [2.0]
    assert math.isnan(first["dbl_tensor"][0])


@pytest.mark.parametrize("inputs", [{"default": [PAIRS]}, [PAIRS]])
def test_one_input_in_columns_with_and_without_its_name(predict, inputs):
    assert predict({"inputs": inputs}) == (200, {"outputs": [PAIRS]})


def test_several_inputs_in_columns(predict):
    inputs = {"int_tensor": [PAIRS], "str_tensor": ["foo", "bar"], "bin_tensor": HELLO}
    outputs = inputs | {"bin_tensor": "hello"}
    assert predict({"inputs": inputs}, "columns") == (200, {"outputs": outputs})


def test_several_outputs_in_rows_and_columns(predict):
    columns = {
        "double_scalar_tensor": [8.0, 9.0],
        "float_tensor": [[1.0], [2.0]],
        "int_tensor": [PAIRS, MORE_PAIRS],
        "str_tensor": [["foo", "bar"], ["baz", "bat"]],
        "str_tensor_bytes": [[HELLO, WORLD], [TF, SERVING]],
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert predict({"inputs": columns}, "five") == (200, {"outputs": columns})
    assert predict({"instances": rows}, "five") == (200, {"predictions": rows})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "JSON Parse error"),
        ({"signature_name": 5, "instances": [*PAIRS[:2], [5, 6, 7]]}, "must be a string"),
        ({"instances": PAIRS, "inputs": PAIRS}, "either 'instances' (rows) or 'inputs'"),
        ({"instances": [[1, 2], [3, 4], [5, 6, 7]]}, "differ in length"),
        ({"instances": [[1, 2], [3, 4], [[5, 6]]]}, "differ in length or depth"),
        ({"instances": [1, [1]]}, "differ in length or depth"),
        ({"instances": [[1, 2], ["a", "b"]]}, "whole numbers (int32)"),
        ('{"signature_name": ' + "[" * 500_000 + "]" * 500_000 + "}", "JSON Parse error"),
    ],
)
def test_errors_of_one_input(predict, body, words):
    status, reply = predict(body)
    assert status == 400 and words in reply["error"]


ROW = {"int_tensor": PAIRS, "str_tensor": ["foo", "bar"]}


@pytest.mark.parametrize(
    ("signature", "instances", "words"),
    [
        ("pair", [ROW, {"int_tensor": [MORE_PAIRS], "str_tensor": ["baz", "bat"]}], "differ"),
        ("pair", [ROW | {"int_tensor": [*PAIRS, [7, 8]]}, ROW], "differ in length"),
        ("pair", [ROW, [1, 20, 30], ROW], "all objects or all plain values"),
        ("strings", [["baz", "bar"], {"default": ["baz", "bat"]}], "all objects or all plain"),
    ],
)
def test_errors_of_several_inputs(predict, signature, instances, words):
    status, reply = predict({"instances": instances}, signature)
    assert status == 400 and words in reply["error"]


@pytest.mark.parametrize(
    "body", ['{"instances": [1]}X', '{"instances": [1]}{}', '\ufeff{"instances": [1]}']
)
def test_a_body_is_one_json_document(predict, body):
    """tensorflow_model_server skips a byte order mark, and ignores text after the document."""
    status, reply = predict(body.encode())
    assert status == 400 and "JSON Parse error" in reply["error"]


def test_the_last_of_duplicate_keys_counts(predict):
    """Python's `json` takes the last one, tensorflow_model_server the first one."""
    assert predict('{"instances": [1], "instances": [2]}') == (200, {"predictions": [2]})


def test_nesting_of_unused_keys_is_limited(predict):
    """tensorflow_model_server has no limit; here Python's recursion limit applies."""
    for depth, expected in ((500, 200), (500_000, 400)):
        status, _ = predict('{"instances": [1], "nested":' + "[" * depth + "]" * depth + "}")
        assert status == expected


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("complex", "JSON cannot represent complex64"),
        ("scalar", "no rows"),
        ("other_batch", "no rows"),
        ("no_rows_and_one", "no rows"),
    ],
)
def test_outputs_that_rows_cannot_hold(predict, signature, words):
    status, reply = predict({"instances": [1, 2]}, signature)
    assert status == 400 and words in reply["error"]


@pytest.mark.parametrize("signature", ["no_rows", "no_rows_twice"])
def test_outputs_of_no_rows(predict, signature):
    assert predict({"instances": [1, 2]}, signature) == (200, {"predictions": []})


def features_of(document):
    """Return the values of each example, with the kind of each feature."""
    examples = map(example_pb2.Example.FromString, examples_from_json(document))
    found = []
    for example in examples:
        kinds = {name: each.WhichOneof("kind") for name, each in example.features.feature.items()}
        features = example.features.feature
        found.append(
            {
                name: (kind, list(getattr(features[name], kind).value))
                for name, kind in kinds.items()
            }
        )
    return found


def test_examples_without_a_context():
    examples = [
        {"names": ["foo", "bar"], "ratings": [8.0, 9.0], "age": 20},
        {"names": ["baz"], "ratings": 6.0},
    ]
    assert features_of({"examples": examples}) == [
        {
            "names": ("bytes_list", [b"foo", b"bar"]),
            "ratings": ("float_list", [8.0, 9.0]),
            "age": ("int64_list", [20]),
        },
        {"names": ("bytes_list", [b"baz"]), "ratings": ("float_list", [6.0])},
    ]


def test_examples_with_a_context():
    body = b"""{"signature_name": "custom", "context": {"query": "pizza", "location": ["sfo"]},
        "examples": [
            {"names": ["foo", "bar"], "ratings": [8.0, 9.0, NaN, Infinity], "age": 20},
            {"names": ["baz", {"b64": "aGVsbG8="}], "ratings": 6.0, "intboolmix": [1, true, false]},
            {"names": "bar", "ratings": -Infinity}]}"""
    first, second, third = features_of(parse(body))
    context = {"query": ("bytes_list", [b"pizza"]), "location": ("bytes_list", [b"sfo"])}
    kind, ratings = first.pop("ratings")
    assert kind == "float_list" and ratings[:2] == [8.0, 9.0] and ratings[3] == math.inf
    assert math.isnan(ratings[2])
    names = ("bytes_list", [b"foo", b"bar"])
    assert first == context | {"names": names, "age": ("int64_list", [20])}
    assert second == context | {
        "names": ("bytes_list", [b"baz", b"hello"]),
        "ratings": ("float_list", [6.0]),
        "intboolmix": ("int64_list", [1, 1, 0]),
    }
    assert third == context | {
        "names": ("bytes_list", [b"bar"]),
        "ratings": ("float_list", [-math.inf]),
    }


@pytest.mark.parametrize("verb", ["classify", "regress"])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"signature_name": ["hello"], "examples": [{"names": ["foo"]}]}, "must be a string"),
        ({"context": [{"names": ["foo", "bar"]}]}, "'examples' must be a list"),
        ({"context": [{"names": ["foo"]}], "examples": [{}]}, "an object of features"),
        ({"examples": {"names": ["foo", "bar"]}}, "'examples' must be a list"),
        ({"examples": [[{"names": ["foo", "bar"]}]]}, "an object of features"),
        ({"examples": [{"names": [10, None]}]}, "'names' must be a number"),
        ({"examples": [{"names": [10, 10.0]}]}, "'names' mixes kinds"),
        ({"examples": [{"names": [10, {"test": 10}]}]}, "'names' mixes kinds"),
        ({"examples": [{"names": [[10], 20]}]}, "'names' must be a number"),
        ({"examples": [{"names": [20, 18446744073709551603]}]}, "'names'"),
    ],
)
def test_refused_examples(published, verb, body, words):
    model = {"classify": "classifier", "regress": "regressor"}[verb]
    status, reply = published.ask("POST", f"/v1/models/{model}:{verb}", body)
    assert status == 400 and words in reply["error"]


def test_replies_of_classify_and_regress():
    labels = np.array([[b"car", b"bike", b"bus"]] * 2, object)
    scores = np.array([[0.2, 0.7, 0.1], [0.7, 0.1, 0.2]], np.float32)
    assert json.loads(classify_reply(labels, scores)) == {
        "results": [
            [["car", 0.2], ["bike", 0.7], ["bus", 0.1]],
            [["car", 0.7], ["bike", 0.1], ["bus", 0.2]],
        ]
    }
    values = np.array([0.2, 0.9, 1.0], np.float32)
    assert json.loads(regress_reply(values)) == {"results": [0.2, 0.9, 1.0]}
    values = np.array([0.2, math.inf, 1.0, -math.inf, math.nan], np.float32)
    assert regress_reply(values) == b'{"results": [0.2, Infinity, 1.0, -Infinity, NaN]}'
