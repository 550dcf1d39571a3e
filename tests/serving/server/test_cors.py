"""Requests from web pages of other origins: headers, and a real browser if there is one."""

import contextlib
import http.client
import json

import pytest

pytestmark = pytest.mark.tf_only
PREDICT = "/v1/models/tiny:predict"
CORS = {  # tensorflow_model_server's headers
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}


def ask(server, method, path, body=None, headers=None):
    """Return (status, CORS headers, body) of a request on a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        found = {name: value for name, value in response.getheaders() if "Access" in name}
        return response.status, found, response.read()


@pytest.fixture(scope="module")
def open_server(exported, tools):
    """A server that accepts requests from pages of any origin."""
    with tools.serve(exported, rest_api_enable_cors_support=True) as server:
        yield server


@pytest.fixture
def body(tools):
    """A request for one action, as JSON."""
    return json.dumps({"instances": tools.observations(1).tolist()})


@pytest.mark.parametrize("path", [PREDICT, "/v1/models/tiny", "/v1/models/other:predict"])
def test_a_preflight_names_origin_methods_and_headers(open_server, path):
    asked = {
        "Origin": "https://example.org",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }
    assert ask(open_server, "OPTIONS", path, headers=asked) == (200, CORS, b"")


def test_every_reply_has_the_headers(open_server, body):
    assert ask(open_server, "POST", PREDICT, body)[:2] == (200, CORS)
    assert ask(open_server, "GET", "/v1/models/tiny/metadata")[:2] == (200, CORS)
    assert ask(open_server, "GET", "/readyz")[:2] == (200, CORS)
    for method, path, status in (
        ("POST", "/v1/models/other:predict", 404),
        ("POST", PREDICT, 400),
        ("OPTIONS", PREDICT, 400),  # without an Origin
        ("PUT", PREDICT, 400),
        ("GET", "/other", 404),
    ):
        assert ask(open_server, method, path)[:2] == (status, CORS)


def test_no_reply_has_the_headers_without_the_flag(server, body):
    for method, path in (("POST", PREDICT), ("GET", "/v1/models/tiny"), ("OPTIONS", PREDICT)):
        assert ask(server, method, path, body, {"Origin": "https://example.org"})[1] == {}


def test_a_page_of_another_origin_sends_json(open_server, open_page, web_server, tmp_path, body):
    """Without allow-methods and allow-headers, a browser sends no JSON."""
    address = json.dumps(f"http://127.0.0.1:{open_server.rest_port}{PREDICT}")
    (tmp_path / "index.html").write_text(
        f"""<!doctype html><title>page</title><link rel="icon" href="data:,"><script>
        fetch({address}, {{method: "POST", headers: {{"Content-Type": "application/json"}},
                           body: {json.dumps(body)}}})
            .then(reply => reply.json())
            .then(reply => Object.keys(reply)[0], error => String(error))
            .then(text => {{ document.body.innerHTML = `<p class="done">${{text}}</p>`; }});
        </script><body></body>"""
    )
    page = open_page(web_server(tmp_path), ".done")
    assert page.inner_text(".done") == "predictions"
