"""REST replies and HTTP status codes of errors."""

import gzip
import http.client
import json

import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.export import load_policy

pytestmark = pytest.mark.tf_only


@pytest.fixture(scope="module")
def ask(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=10)

    def ask(method, path, body=None, headers=None):
        if isinstance(body, dict):
            body = json.dumps(body)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        assert response.headers["Content-Type"] == "application/json"
        return response.status, json.loads(response.read())

    yield ask
    connection.close()


def test_predict_in_rows_and_columns(ask, exported, tools):
    raw = tools.observations(4)
    actions = load_policy(exported / "1").act(raw).tolist()
    status, reply = ask("POST", "/v1/models/tiny:predict", {"instances": raw.tolist()})
    assert status == 200 and [row["action"] for row in reply["predictions"]] == actions
    named = {"instances": [{"observation": one} for one in raw.tolist()]}
    assert ask("POST", "/v1/models/tiny/versions/1:predict", named) == (200, reply)
    for inputs in (raw.tolist(), {"observation": raw.tolist()}):
        body = {"inputs": inputs, "signature_name": "act_with_attention"}
        status, reply = ask("POST", "/v1/models/tiny:predict", body)
        assert status == 200 and reply["outputs"]["action"] == actions
        assert np.shape(reply["outputs"]["attention_round_1"]) == (4, 2, 9, 9)


def test_both_transports_give_the_same_numbers(ask, server, tools):
    from serving.client import connect

    raw = tools.observations(3)
    reply = ask("POST", "/v1/models/tiny:predict", {"inputs": raw.tolist()})[1]["outputs"]
    with connect(f"grpc://127.0.0.1:{server.grpc_port}", "tiny") as client:
        q_values = client.predict({"observation": raw}, "act")["q_values"]
    np.testing.assert_array_equal(np.array(reply["q_values"], "float32"), q_values)


def test_empty_batch_has_an_empty_reply(ask, server, tools):
    """`[]` has no row shape over REST, so the signature determines it."""
    from serving.client import connect

    for scheme, port in (("grpc", server.grpc_port), ("http", server.rest_port)):
        with connect(f"{scheme}://127.0.0.1:{port}", "tiny") as client:
            outputs = client.predict({"observation": tools.observations(0)})
        assert outputs["action"].shape == (0,)
        assert outputs["q_values"].shape == (0, tools.ACTIONS)
    assert ask("POST", "/v1/models/tiny:predict", {"inputs": {"observation": []}})[0] == 200
    for refused in ({"instances": []}, {"inputs": [[]]}, {"inputs": [], "signature_name": "none"}):
        assert ask("POST", "/v1/models/tiny:predict", refused)[0] == 400


def test_status_and_metadata_are_json_of_the_messages(ask):
    entry = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK"}}
    entry["status"]["error_message"] = ""
    for path in ("/v1/models/tiny", "/v1/models/tiny/versions/1", "/v1/models/t%69ny"):
        assert ask("GET", path) == (200, {"model_version_status": [entry]})
    for path in ("/v1/models/tiny/metadata", "/v1/models/tiny/versions/01/metadata"):
        status, reply = ask("GET", path)
        assert status == 200
        assert reply["model_spec"] == {"name": "tiny", "signature_name": "", "version": "1"}
        act = reply["metadata"]["signature_def"]["signature_def"]["act"]
        assert act["method_name"] == "tensorflow/serving/predict"
        observation = act["inputs"]["observation"]
        assert observation["dtype"] == "DT_UINT8" and observation["name"]
        dims = [{"size": size, "name": ""} for size in ("-1", "3", "3", "2")]
        assert observation["tensor_shape"] == {"dim": dims, "unknown_rank": False}


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/", 404),
        ("POST", "/other", 404),
        ("GET", "/v1/models", 400),
        ("GET", "/v1/models/", 400),
        ("GET", "/v1/nothing", 400),
        ("GET", "/v1/models?verbose=1", 400),
        ("GET", "/v1/models/tiny:predict", 400),
        ("PUT", "/v1/models/tiny:predict", 400),
        ("DELETE", "/v1/models/tiny", 400),
        ("OPTIONS", "/v1/models/tiny", 400),
        ("POST", "/v1/models/tiny", 400),
        ("POST", "/v1/models/tiny:nothing", 400),
        ("POST", "/v1/models/tiny/versions/x:predict", 400),
        ("POST", "/v1/models/tiny/versions/9223372036854775808:predict", 400),
        ("POST", "/v1/models/tiny/versions/2:predict", 404),
        ("POST", "/v1/models/other:predict", 404),
        ("POST", "/v1/models/..%2Ftiny:predict", 404),
        ("POST", "/v1/models/tiny/labels/stable:predict", 400),
        ("GET", "/v1/models/other", 404),
        ("GET", "/v1/models/tiny/versions/2", 404),
        ("GET", "/v1/models/other/metadata", 404),
        ("GET", "/v1/models/tiny/labels/stable/metadata", 400),
    ],
)
def test_invalid_paths_and_methods_have_http_errors(ask, tools, method, path, expected):
    body = {"instances": tools.observations(1).tolist()} if method == "POST" else None
    status, reply = ask(method, path, body)
    assert status == expected and list(reply) == ["error"] and reply["error"]


def test_invalid_bodies_are_refused(ask, tools):
    rows = tools.observations(2).tolist()
    cases = [
        ("", "JSON Parse error"),
        ("[]", "expected an object"),
        ({"instances": rows, "signature_name": 3}, "'signature_name' must be a string"),
        ({"instances": rows, "signature_name": "none"}, '"none" not found'),
        ({"instances": [row[:2] for row in rows]}, "[2,2,3,2]; expected [?,3,3,2]"),
        ({"instances": np.zeros((1, 3, 3, 2)).tolist()}, "whole numbers (uint8); received 0.0"),
        ({"instances": [rows[0], rows[1][:2]]}, "differ in length"),
        ({"instances": [{"other": rows[0]}]}, "received ['other']"),
    ]
    for body, words in cases:
        status, reply = ask("POST", "/v1/models/tiny:predict", body)
        assert status == 400 and words in reply["error"]


def test_gzip_chunked_and_100_continue_bodies(ask, tools):
    plain = json.dumps({"instances": tools.observations(2).tolist()}).encode()
    answer = ask("POST", "/v1/models/tiny:predict", plain)
    packed = gzip.compress(plain)
    assert ask("POST", "/v1/models/tiny:predict", packed, {"Content-Encoding": "gzip"}) == answer
    chunks = iter([plain[:50], plain[50:]])
    assert ask("POST", "/v1/models/tiny:predict", chunks) == answer
    assert ask("POST", "/v1/models/tiny:predict", plain, {"Expect": "100-continue"}) == answer
    status, _ = ask("POST", "/v1/models/tiny:predict", plain, {"Content-Type": "text/odd"})
    assert status == 200


def mark_as_own_export(directory):
    """Add the file that marks our exports, whose declared shapes the server enforces."""
    (directory / "assets.extra").mkdir()
    (directory / "assets.extra" / "policy.json").write_text("{}")


def test_a_graph_error_on_bad_data_is_a_400(tmp_path, tools):
    def pick(x):
        return {"y": tf.gather(tf.range(3), x)}

    def total(x):
        return {"y": tf.reduce_sum(x)}

    spec, one = ([tf.TensorSpec(shape, tf.int32, name="x")] for shape in ([None], []))
    functions = {"serving_default": (pick, spec), "total": (total, spec)}
    functions["count"] = (lambda x: {"y": tf.range(x)}, one)
    tools.save_module(tmp_path / "4", functions)
    mark_as_own_export(tmp_path / "4")
    changes = {"rest_api_max_request_bytes": 1000, "rest_api_enable_cors_support": True}
    with tools.serve(tmp_path, **changes) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=10)

        def ask(body, method="POST", **headers):
            connection.request(method, "/v1/models/tiny:predict", json.dumps(body), headers)
            response = connection.getresponse()
            return response, response.read()

        response, body = ask({"instances": [0, 2]})
        assert json.loads(body) == {"predictions": [0, 2]}
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        response, body = ask({"instances": [9]})
        assert response.status == 400 and b"indices" in body
        scalar = {"signature_name": "total"}
        response, body = ask({"instances": [1, 2]} | scalar)
        assert response.status == 400 and b"rows" in body
        assert json.loads(ask({"inputs": [1, 2]} | scalar)[1]) == {"outputs": 3}
        count = {"signature_name": "count"}
        for instances in ([2], [{"x": 2}]):
            response, body = ask({"instances": instances} | count)
            assert response.status == 400 and b"send 'inputs' instead" in body
        assert json.loads(ask({"inputs": {"x": 2}} | count)[1]) == {"outputs": [0, 1]}
        assert ask({}, "OPTIONS", Origin="https://example.org")[0].status == 200
        assert ask({}, "OPTIONS")[0].status == 400
        assert ask({"instances": [0] * 1000})[0].status == 413
        connection.close()


@pytest.mark.parametrize("is_own_export", [False, True])
def test_max_request_rows_does_not_limit_inputs_of_a_fixed_size(tmp_path, tools, is_own_export):
    spec = tf.TensorSpec([50], tf.float32, name="x")
    tools.save_module(tmp_path / "1", {"serving_default": (lambda x: {"y": x + 1}, [spec])})
    if is_own_export:
        mark_as_own_export(tmp_path / "1")
    with tools.serve(tmp_path, max_request_rows=4) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=10)
        for values in (50, 51, 150):
            fits = values == 50 or not is_own_export
            connection.request(
                "POST", "/v1/models/tiny:predict", json.dumps({"inputs": [1.0] * values})
            )
            response = connection.getresponse()
            assert (b"2.0" if fits else b"shape [%d]" % values) in response.read()
            assert response.status == (200 if fits else 400)
        connection.close()


@pytest.mark.parametrize("prefix", ["", "http://127.0.0.1", "HTTPS://any.host:8501"])
@pytest.mark.parametrize("query", ["", "?", "?verbose=1&path=/v1/models/other:predict"])
def test_queries_and_whole_uris_are_accepted(ask, server, tools, prefix, query):
    status, reply = ask("GET", f"{prefix}/v1/models/tiny{query}")
    assert status == 200 and reply["model_version_status"]
    body = {"instances": tools.observations(2).tolist()}
    status, reply = ask("POST", f"{prefix}/v1/models/tiny:predict{query}", body)
    assert status == 200 and len(reply["predictions"]) == 2
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=20)
    for method, expected in (("GET", b'{"ready": true}'), ("HEAD", b"")):
        connection.request(method, f"{prefix}/readyz{query}")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, expected)
    connection.close()


def test_a_timeout_of_0_is_no_limit(exported, tools):
    """As in tensorflow_model_server."""
    with tools.serve(exported, rest_api_timeout_in_ms=0) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=20)
        body = json.dumps({"instances": tools.observations(1).tolist()})
        connection.request("POST", "/v1/models/tiny:predict", body)
        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.parametrize(("iterations", "expected"), [(-1, 1), (0, 1), (1, 1), (3, 3)])
def test_number_of_warm_ups_counts_only_if_positive(
    exported, tools, monkeypatch, iterations, expected
):
    """As in tensorflow_model_server, whose default is 0."""
    from serving.server import loading

    used = []
    monkeypatch.setattr(loading, "warm_up", lambda servable, count, metrics: used.append(count))
    flags = tools.make_flags(exported, num_request_iterations_for_warmup=iterations)
    loading.Loader(flags).load("tiny", 1, exported / "1").close()
    assert used == [expected]
