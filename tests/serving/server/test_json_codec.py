"""JSON codec: values in requests and replies over REST."""

import base64
import gzip
import json
import sys
import zlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from serving.errors import ServingError
from serving.server import json_codec

pytestmark = pytest.mark.tf_only


def numpy_dtypes(dtypes):
    return {name: tf.as_dtype(dtype).as_numpy_dtype for name, dtype in dtypes.items()}


def read_predict(text, signatures):
    return json_codec.read_predict(text, "", 1 << 24, signatures)


def read(document, **dtypes):
    body = document if isinstance(document, str) else json.dumps(document)
    signatures = {"": {name: np.dtype(d) for name, d in numpy_dtypes(dtypes).items()}}
    return read_predict(body.encode(), signatures)[1:3]


def code_of(document, **dtypes):
    with pytest.raises(ServingError) as refusal:
        read(document, **dtypes)
    return refusal.value.code


json_arrays = st.sampled_from(
    ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bool"]
).flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=4)))


@settings(max_examples=80, deadline=None)
@given(json_arrays)
def test_round_trip_of_values(array):
    text = json_codec.predict_reply({"x": array}, rows=True)
    rows = json.loads(text)["predictions"]
    (back, is_rows) = read({"instances": rows}, x=array.dtype.name)
    assert is_rows
    np.testing.assert_array_equal(back["x"], array)
    assert back["x"].dtype == array.dtype
    columns = json.loads(json_codec.predict_reply({"x": array}, rows=False))["outputs"]
    np.testing.assert_array_equal(read({"inputs": columns}, x=array.dtype.name)[0]["x"], array)


def slowly(text, signatures):
    """Parse a request with `json`, without the fast path."""
    return json_codec._predict(json_codec.parse(text), signatures)


# Fragments of valid and invalid requests.
_SCRAPS = """1 -0 2.5 1e3 1e400 NaN true null [ ] [] [1] [1,2] [[1],[2]] [1],[2] { } , : "x" "y"
    "a]" \\
    "\\u005b" "instances" "inputs" "signature_name" 99999999999999999999 01 +1 é {"x":[1,2]} 256
    {"x":[1],[2]} {"b64":"AA=="} 2147483648 9999999999999999999999999999999 -1 1.0"""
_scraps = st.sampled_from(_SCRAPS.split())
_numbers = st.integers(-(2**66), 2**66) | st.integers(-3, 300) | st.floats() | st.booleans()
_values = st.recursive(_numbers | st.text(max_size=3), lambda v: st.lists(v, max_size=3))
_documents = st.dictionaries(
    st.sampled_from(["instances", "inputs", "other"]),
    _values
    | st.dictionaries(st.sampled_from("xy"), _values)
    | st.lists(st.dictionaries(st.sampled_from("xy"), _values, max_size=2), max_size=3),
    max_size=2,
)
_texts = st.one_of(
    _documents.map(json.dumps),
    _documents.map(lambda d: json.dumps(d, indent=1)),
    st.lists(_scraps, max_size=12).map("".join),
    _documents.map(lambda d: "\ufeff" + json.dumps(d)),
    st.lists(_scraps, max_size=8).map(lambda s: '{"inputs": ' + "".join(s) + "}"),
    st.lists(_scraps, max_size=8).map(lambda s: '{"instances": [' + "".join(s) + "]}"),
    # A repeated key, an unknown key, broken lists.
    st.tuples(_values, _values).map(
        lambda two: f'{{"inputs": {json.dumps(two[0])}, "inputs": {json.dumps(two[1])}}}'
    ),
    _scraps.map(lambda s: f'{{"inputs": [1, 2], "other": [{s}]}}'),
)


@settings(max_examples=400, deadline=None)
@given(_texts, st.sampled_from(["float32", "float64", "uint8", "int32", "int64", "uint64", "bool"]))
def test_fast_path_equals_slow_path(text, dtype):
    for names in ("x", "xy"):
        signatures = {"": {name: np.dtype(dtype) for name in names}}
        outcomes = []
        for read_one in (read_predict, slowly):
            try:
                name, arrays, rows, _ = read_one(text.encode(), signatures)
                arrays = arrays and {
                    key: (array.dtype, array.shape, array.tobytes())
                    for key, array in arrays.items()
                }
                outcomes.append((name, arrays, rows))
            except ServingError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("form", ["rows", "objects", "columns", "named"])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "uint64", "float32", "float64"])
def test_plain_numbers_take_the_fast_path(form, dtype, monkeypatch):
    values = np.random.default_rng(0).integers(0, 9, (3, 2, 4)).astype(dtype)
    rows = values.tolist()
    document = {
        "rows": {"instances": rows},
        "objects": {"instances": [{"x": row} for row in rows]},
        "columns": {"signature_name": "s", "inputs": rows},
        "named": {"inputs": {"x": rows}, "signature_name": "s"},
    }[form]
    monkeypatch.setattr(json_codec, "parse", None)
    signatures = {name: {"x": np.dtype(dtype)} for name in ("", "s")}
    _, arrays, *_ = read_predict(json.dumps(document).encode(), signatures)
    np.testing.assert_array_equal(arrays["x"], values)


outputs_in_rows = st.integers(1, 3).flatmap(
    lambda size: st.dictionaries(
        st.sampled_from(["a", "%d", 'q"']),
        st.sampled_from(["float32", "float64", "int64", "uint8", "bool"]).flatmap(
            lambda dtype: hnp.arrays(
                dtype, hnp.array_shapes(max_dims=3).map(lambda shape: (size, *shape))
            )
        ),
        min_size=1,
    )
)


@settings(max_examples=200, deadline=None)
@given(outputs_in_rows, st.booleans())
def test_replies_equal_json(outputs, rows):
    expected = {name: json_codec._to_lists(name, array) for name, array in outputs.items()}
    if len(expected) == 1:
        (expected,) = expected.values()
    elif rows:
        expected = [dict(zip(expected, row)) for row in zip(*expected.values())]
    reply = json.loads(json_codec.predict_reply(outputs, rows))
    np.testing.assert_equal(reply, {"predictions" if rows else "outputs": expected})


@settings(max_examples=80, deadline=None)
@given(hnp.arrays("float32", 1, elements=st.floats(width=32)))
def test_floats_are_written_with_the_shortest_digits(array):
    text = json_codec.predict_reply({"x": array}, rows=False).decode().replace(" ", "")[12:-2]
    if np.isfinite(array[0]):
        assert "." in text or "e" in text
        assert sum(letter.isdigit() for letter in text.split("e")[0].strip("-0.")) <= 9
        assert np.float32(text) == array[0]
    else:
        assert text in ("NaN", "Infinity", "-Infinity")


@pytest.mark.parametrize(
    ("document", "dtype", "expected"),
    [
        ({"inputs": 1}, "float32", 1.0),
        ({"inputs": []}, "float32", []),
        ({"inputs": [[], []]}, "int32", [[], []]),
        ({"inputs": {"x": [1, 2]}}, "float32", [1, 2]),
        ({"instances": [1, 2.5]}, "float32", [1, 2.5]),
        ({"instances": [{"x": [1]}, {"x": [2]}]}, "int32", [[1], [2]]),
        ('{"inputs": [NaN, Infinity, -Infinity, 1e39, 1e-60]}', "float32", None),
        ({"inputs": [2**63 - 1, -(2**63)]}, "int64", [2**63 - 1, -(2**63)]),
        ({"inputs": 2**64 - 1}, "uint64", 2**64 - 1),
        ({"inputs": [10**400, -(10**400)]}, "float64", [np.inf, -np.inf]),
        ({"inputs": [True, False]}, "bool", [True, False]),
        ({"instances": ["é", {"b64": "AAE="}]}, "string", ["é".encode(), b"\x00\x01"]),
        ({"inputs": {"b64": ""}}, "string", b""),
        ({"inputs": 1, "other": 2}, "int32", 1),
    ],
)
def test_valid_json_values_become_arrays(document, dtype, expected):
    array = read(document, x=dtype)[0]["x"]
    if expected is None:
        expected = [np.nan, np.inf, -np.inf, np.inf, 0]
    np.testing.assert_array_equal(array, np.array(expected, array.dtype))


@pytest.mark.parametrize(
    ("document", "dtype"),
    [
        ({"inputs": 1.0}, "int32"),
        ('{"inputs": 1e3}', "int32"),
        ({"inputs": True}, "int32"),
        ({"inputs": True}, "float32"),
        ({"inputs": "1"}, "float32"),
        ({"inputs": None}, "float32"),
        ({"inputs": 2**31}, "int32"),
        ({"inputs": 256}, "uint8"),
        ({"inputs": -1}, "uint64"),
        ({"inputs": 2**63}, "int64"),
        ({"inputs": 0}, "bool"),
        ({"inputs": 5}, "string"),
        ({"inputs": {"b64": "%"}}, "string"),
        ({"inputs": {"b64": 1}}, "string"),
        ('{"inputs": "\\ud800"}', "string"),
        ({"inputs": [{"b64": "AA==", "more": 1}]}, "string"),
        ({"inputs": {"b64": "AA=="}}, "float32"),
        ({"inputs": [[1], [1, 2]]}, "float32"),
        ({"inputs": [[1], 2]}, "float32"),
        ({"inputs": [[[1]], [[]]]}, "float32"),
        ({"inputs": {"y": 1}}, "float32"),
        ('{"inputs": ' + "[" * 100 + "1" + "]" * 100 + "}", "float32"),
        ({"instances": []}, "float32"),
        ({"instances": 3}, "float32"),
        ({"instances": {"x": 3}}, "float32"),
        ({"instances": [{"x": 1}, 2]}, "float32"),
        ({"instances": [{"x": 1}, {"x": 1, "y": 2}]}, "float32"),
        ({"instances": [{}]}, "float32"),
        ({"instances": [1.0]}, "bfloat16"),
        ({"instances": [1], "inputs": [1]}, "float32"),
        ({}, "float32"),
        ("[1]", "float32"),
        ("", "float32"),
        ("{", "float32"),
        ('{"inputs": ' + "[" * 100_000, "float32"),
        ('{"inputs": ' + "9" * 5000 + "}", "float32"),
    ],
)
def test_invalid_values_are_refused(document, dtype):
    assert code_of(document, x=dtype) == "INVALID_ARGUMENT"


def test_compressed_bodies_within_the_limit():
    text = b'{"instances": [1, 2]}'
    for encoding, packed in (("gzip", gzip.compress(text)), ("deflate", zlib.compress(text))):
        for limit in (len(text), sys.maxsize):
            assert json_codec.decompress(packed, encoding, limit) == text
        with pytest.raises(ServingError, match=f"larger than {len(text) - 1} bytes"):
            json_codec.decompress(packed, encoding, len(text) - 1)


def test_body_must_be_utf8():
    with pytest.raises(ServingError, match="JSON Parse error"):
        json_codec.parse(b'{"inputs": "\xff"}')


def test_several_inputs_are_read_from_rows_and_columns():
    two = {"a": "int32", "b": "float32"}
    rows, _ = read({"instances": [{"a": 1, "b": [1]}, {"a": 2, "b": [2]}]}, **two)
    assert rows["a"].tolist() == [1, 2] and rows["b"].tolist() == [[1], [2]]
    columns, _ = read({"inputs": {"a": 1, "b": [1, 2], "unknown": 3}}, **two)
    assert columns["a"].shape == () and columns["b"].tolist() == [1, 2] and len(columns) == 2
    assert code_of({"inputs": {"a": 1}}, **two) == "INVALID_ARGUMENT"
    assert code_of({"inputs": [1, 2]}, **two) == "INVALID_ARGUMENT"
    assert code_of({"instances": [1, 2]}, **two) == "INVALID_ARGUMENT"
    assert code_of({"inputs": [1.0]}, x="float16") == "UNIMPLEMENTED"


def replies(outputs, rows):
    return json.loads(json_codec.predict_reply(outputs, rows))


def test_replies_of_several_outputs():
    outputs = {"action": np.array([1, 2], "int32"), "q": np.array([[0.5], [3]], "float32")}
    assert replies(outputs, True) == {
        "predictions": [{"action": 1, "q": [0.5]}, {"action": 2, "q": [3.0]}]
    }
    assert replies(outputs, False) == {"outputs": {"action": [1, 2], "q": [[0.5], [3.0]]}}


def test_replies_keep_odd_shapes():
    assert replies({"x": np.zeros((2, 0), "int32")}, True) == {"predictions": [[], []]}
    assert replies({"x": np.zeros((0, 2), "int32")}, False) == {"outputs": []}
    assert replies({"x": np.array(True)}, False) == {"outputs": True}
    for bad in ({"x": np.array(1)}, {"x": np.zeros(2), "y": np.zeros(3)}):
        with pytest.raises(ServingError, match="rows"):
            json_codec.predict_reply(bad, rows=True)
    with pytest.raises(ServingError, match="cannot represent"):
        json_codec.predict_reply({"x": np.zeros(2, "float16")}, rows=True)


def test_outputs_named_bytes_are_base64():
    array = np.array(["é".encode(), b'"'], object)
    assert replies({"x": array}, True) == {"predictions": ["é", '"']}
    encoded = [{"b64": base64.b64encode(value).decode()} for value in array]
    assert replies({"x_bytes": array}, True) == {"predictions": encoded}
