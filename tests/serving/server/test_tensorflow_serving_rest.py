"""TensorFlow Serving's published cases of the REST API."""

import pytest

pytestmark = pytest.mark.tf_only
HALF = "/v1/models/half_plus_two"


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/v1/foo", "Malformed request"),
        ("POST", "/v1/foo", "Malformed request"),
        ("GET", "/v1/models", "Malformed request"),
        ("GET", "/v1/models/debug/model_name", "Malformed request"),
        ("POST", "/v1/models", "Malformed request"),
        ("GET", "/v1/models/foo:predict", "Malformed request"),
        ("GET", "/v1/models/foo/version/50:predict", "Malformed request"),
        ("POST", "/v1/models/foo/version/50:regress", "Malformed request"),
        ("POST", "/v1/models/foo/versions/HELLO:regress", "Malformed request"),
        ("POST", f"/v1/models/foo/versions/{2**64 - 1}:regress", "out of range"),
        ("POST", "/v1/models/foo/metadata", "Malformed request"),
        ("POST", "/v1/models/foo/label/some_label:regress", "Malformed request"),
        ("POST", "/v1/models/foo/versions/50/labels/some_label:regress", "Malformed request"),
        ("POST", "/v1/models/foo/versions/some_label:regress", "Malformed request"),
    ],
)
def test_unsupported_calls(published, method, path, words):
    status, reply = published.ask(method, path)
    assert status == 400 and words in reply["error"]


@pytest.mark.parametrize("path", ["/statuspage", "/index"])
def test_paths_outside_the_api(published, path):
    assert published.ask("GET", path)[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/foo:predict",
        "/v1/models/foo/versions/50:predict",
        f"{HALF}99:predict",
        f"{HALF}/versions/99:predict",
    ],
)
def test_an_unknown_model_or_version(published, path):
    assert published.ask("POST", path, {"instances": [1]})[0] == 404


@pytest.mark.parametrize(
    ("place", "body", "words"),
    [
        ("", "", "JSON Parse error"),
        ("", "instances = [1, 2]", "JSON Parse error"),
        ("", {"instances": ["x", "y"]}, "must be numbers (float32)"),
        ("/labels/no_such_label", {"instances": ["x", "y"]}, "no_such_label"),
        ("", {"signature_name": 100}, "'signature_name' must be a string"),
    ],
)
def test_predict_errors(published, place, body, words):
    status, reply = published.ask("POST", f"{HALF}{place}:predict", body)
    assert status == 400 and words in reply["error"]


@pytest.mark.parametrize(
    ("place", "body", "expected"),
    [
        ("", {"instances": [2.0, 3.0, 4.0]}, {"predictions": [3.0, 3.5, 4.0]}),
        ("", {"inputs": [2.0, 3.0, 4.0]}, {"outputs": [3.0, 3.5, 4.0]}),
        (
            "",
            {"instances": [[1.0, 2.0], [3.0, 4.0]]},
            {"predictions": [[2.5, 3.0], [3.5, 4.0]]},
        ),
        ("", {"instances": [[1.0], [2.0]]}, {"predictions": [[2.5], [3.0]]}),
        ("/versions/123", {"instances": [1.0, 2.0]}, {"predictions": [2.5, 3.0]}),
        ("/labels/stable", {"instances": [1.0, 2.0]}, {"predictions": [2.5, 3.0]}),
        (
            "/versions/123",
            {"signature_name": "serving_default", "instances": [3.0, 4.0]},
            {"predictions": [3.5, 4.0]},
        ),
        (
            "/versions/123",
            {"signature_name": "serving_default", "inputs": [3.0, 4.0]},
            {"outputs": [3.5, 4.0]},
        ),
        ("", {"inputs": 2.0}, {"outputs": 3.0}),
        ("", {"inputs": {"x": 2.0}}, {"outputs": 3.0}),
    ],
)
def test_predict(published, place, body, expected):
    assert published.ask("POST", f"{HALF}{place}:predict", body) == (200, expected)


def test_rows_of_an_input_declared_as_a_scalar(published):
    path, rows = "/v1/models/shapes:predict", {"instances": [2.0, 3.0]}
    answer = published.ask("POST", path, rows | {"signature_name": "scalar"})
    assert answer == (200, {"predictions": [3.0, 4.0]})


@pytest.mark.parametrize("place", ["", "/versions/123", "/labels/stable"])
@pytest.mark.parametrize(
    ("verb", "x", "expected"),
    [
        ("regress", 80.0, [42.0]),
        ("regress", 2.0, [3.0]),
        ("classify", 20.0, [[["", 12.0]]]),
        ("classify", 10.0, [[["", 7.0]]]),
        ("classify", 2.0, [[["", 3.0]]]),
    ],
)
def test_classify_and_regress(published, place, verb, x, expected):
    body = {"signature_name": f"{verb}_x_to_y", "examples": [{"x": x}]}
    assert published.ask("POST", f"{HALF}{place}:{verb}", body) == (200, {"results": expected})
