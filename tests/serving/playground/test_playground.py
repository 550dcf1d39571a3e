"""The playground: its files over HTTP, and its DoorKey compared with MiniGrid's."""

import http.client
import itertools
import json
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
from static_pages import in_page

from rrl_tf.envs import DoorKeyStart, enumerate_starts, make_doorkey
from rrl_tf.pretrained import pretrained_folder

pytestmark = pytest.mark.tf_only
FOLDER = pathlib.Path(__file__).parents[3] / "serving" / "playground" / "static"
REPLAY = pathlib.Path(__file__).with_name("replay.mjs")
PLAYS = {
    **dict.fromkeys(["doorkey-5x5", "doorkey-8x8", "dt-doorkey"], True),
    **dict.fromkeys(["memory-s17", "box-world", "nth-farthest"], False),
}
ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
LIKELY = (0.15, 0.15, 0.35, 0.12, 0.05, 0.15, 0.03)  # sometimes reaches the goal


@pytest.fixture(scope="module")
def server(tools):
    with tools.serve(pretrained_folder("doorkey-5x5") / "policy", playground=True) as running:
        yield running


@pytest.fixture(scope="module")
def ask(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=10)

    def ask(path, method="GET", **headers):
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()

    yield ask
    connection.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("", "text/html"),
        ("style.css", "text/css"),
        ("main.js", "text/javascript"),
        ("icon.svg", "image/svg+xml"),
    ],
)
def test_files_have_types_and_a_strict_security_policy(ask, name, kind):
    status, headers, body = ask(f"/playground/{name}?query")
    assert status == 200 and body == (FOLDER / (name or "index.html")).read_bytes()
    assert headers["Content-Type"] == f"{kind}; charset=utf-8"
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-cache"
    again = ask(f"/playground/{name}", **{"If-None-Match": headers["ETag"]})
    assert again[0] == 304 and again[2] == b""
    status, headers, nothing = ask(f"/playground/{name}", "HEAD")
    assert status == 200 and nothing == b"" and int(headers["Content-Length"]) == len(body)


def test_the_folder_redirects_to_the_page(ask):
    status, headers, _ = ask("/playground")
    assert status == 308 and headers["Location"] == "/playground/"


@pytest.mark.parametrize(
    "path",
    [
        "/playground/nothing.js",
        "/playground/../flags.py",
        "/playground/%2e%2e/flags.py",
        "/playground/..%2fflags.py",
        "/playground//etc/passwd",
        "/playground/index.html/",
        "/playgrounds/",
        "/",
    ],
)
def test_paths_out_of_the_folder_are_not_found(ask, path):
    status, headers, body = ask(path)
    assert status == 404 and headers["Content-Type"] == "application/json"
    assert "Not Found" in json.loads(body)["error"]


def test_post_and_put_are_not_found(ask):
    assert ask("/playground/", "POST")[0] == ask("/playground/main.js", "PUT")[0] == 404


def test_the_configuration_lists_the_served_models(ask):
    status, headers, body = ask("/playground/config.json")
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert headers["Cache-Control"] == "no-store"
    (model,) = json.loads(body)["models"]
    path = pretrained_folder("doorkey-5x5") / "policy/1/assets.extra/policy.json"
    assert model == {"name": "tiny", "version": 1, "policy": json.loads(path.read_text())}


def test_the_rest_api_works_next_to_the_page(ask):
    assert ask("/v1/models/tiny")[0] == 200
    assert ask("/readyz")[0] == 200
    assert ask("/v1/playground/")[0] == 400


def test_page_is_not_found_without_the_flag(exported, tools):
    with tools.serve(exported) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=10)
        for path in ("/playground/", "/playground", "/playground/config.json"):
            connection.request("GET", path)
            response = connection.getresponse()
            assert response.status == 404 and "Not Found" in json.load(response)["error"]
        connection.close()


def test_playground_without_a_rest_port_is_refused(capsys):
    from serving.server.flags import parse

    assert parse(["--preset=doorkey-5x5", "--rest_api_port=1", "--playground"])[0].playground
    with pytest.raises(SystemExit):
        parse(["--preset=doorkey-5x5", "--playground"])
    assert "--playground needs --rest_api_port" in capsys.readouterr().err


def test_the_page_contacts_no_other_host():
    for path in FOLDER.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")  # a namespace
        assert "//" not in "".join(line for line in text.splitlines() if "http" in line), path


@pytest.fixture(scope="module")
def notices(tmp_path_factory):
    """The page's notices about packaged presets, in a folder without config.json."""
    folder = tmp_path_factory.mktemp("notices")
    files = shutil.copytree(FOLDER, folder / "playground")
    (files / "package.json").write_text('{"type": "module"}')
    paths = {name: pretrained_folder(name) / "policy/1/assets.extra/policy.json" for name in PLAYS}
    models = [{"name": n, "policy": json.loads(path.read_text())} for n, path in paths.items()]
    done, _ = in_page("notices.mjs", files, models, folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_policies_of_other_environments_do_not_play(notices):
    """A policy of MemoryS17 has the same views, but cannot pick up or toggle."""
    for (name, plays), reason in zip(PLAYS.items(), notices["reasons"], strict=True):
        told = (
            f"The model “{name}” is not a DoorKey policy and cannot play here. You can still play."
        )
        assert reason == (None if plays else told)


def test_a_missing_config_names_write_page(notices):
    assert notices["missing"].startswith("The file config.json is missing or unreadable:")
    assert "write it with serving.playground.static_page.write_page" in notices["missing"]


def as_json(start):
    return vars(start) | {"key": list(start.key), "agent": list(start.agent)}


def record(size, seed, max_steps):
    """Record an episode of a random agent, for the page to replay."""
    env = make_doorkey(size, observation="compass", actions="all", max_steps=max_steps)
    observation, _ = env.reset(seed=seed)
    start, random = env.unwrapped.start, np.random.default_rng(seed)
    episode = {"start": as_json(start), "limit": max_steps or 10 * size**2}
    observations, actions, results = [observation.tolist()], [], []
    over = False
    while not over:
        action = int(random.choice(len(ACTIONS), p=LIKELY))
        observation, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        observations.append(observation.tolist())
        actions.append(ACTIONS[action])
        result = {"reward": reward, "terminated": terminated, "truncated": truncated}
        results.append(result)
    return {**episode, "observations": observations, "actions": actions, "results": results}


def levels(size):
    """Yield valid and invalid levels of this size."""
    x, y = range(0, size), range(0, size)
    some = np.random.default_rng(0).choice(size**6 * 4, 3000, replace=False)
    everything = (x, y, x, y, x, y, range(4))
    sizes = [len(each) for each in everything]
    for number in some:
        wall, door, *cells, direction = map(int, np.unravel_index(number, sizes))
        yield (size, wall, door, tuple(cells[:2]), tuple(cells[2:]), direction)
    yield from (tuple(vars(start).values()) for start in enumerate_starts(size)[:200])


def is_possible(values):
    try:
        DoorKeyStart(*values)
    except ValueError:
        return False
    return True


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """The recording, the levels, and the results of JavaScript for both."""
    if not (node := shutil.which("node")):
        pytest.skip("needs node, to run the page's DoorKey (apt-get install nodejs)")
    folder = tmp_path_factory.mktemp("doorkey")
    rules = shutil.copy(FOLDER / "doorkey.js", folder / "doorkey.mjs")
    runs = [*itertools.product([5], range(10), [None]), *itertools.product([6, 8], range(8), [150])]
    episodes = [record(*run) for run in runs]
    starts = [*levels(5), *levels(6), *levels(8)]
    names = ("size", "wall", "door", "key", "agent", "direction")
    asked = [dict(zip(names, values)) for values in starts]
    (folder / "recording.json").write_text(json.dumps({"episodes": episodes, "starts": asked}))
    command = [node, str(REPLAY), str(rules), str(folder / "recording.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return episodes, starts, json.loads(done.stdout)


def test_doorkey_of_the_page_equals_minigrid(replayed):
    episodes, _, answer = replayed
    assert answer["differences"] == []
    assert answer["steps"] == sum(len(episode["actions"]) for episode in episodes)


def test_the_recording_covers_all_outcomes(replayed):
    ends = [episode["results"][-1] for episode in replayed[0]]
    assert any(end["terminated"] for end in ends) and any(end["truncated"] for end in ends)
    seen = {
        tuple(cell) for e in replayed[0] for o in e["observations"] for row in o for cell in row
    }
    assert {(4, 4, lock) for lock in range(3)} <= {cell[:3] for cell in seen}
    assert any(o[3][6][0] == 5 for e in replayed[0] for o in e["observations"])  # carried


def test_the_editor_accepts_the_levels_of_minigrid_only(replayed):
    _, starts, answer = replayed
    possible = [is_possible(values) for values in starts]
    assert any(possible) and not all(possible)
    assert [problem is None for problem in answer["problems"]] == possible
    assert all(problem is None or problem.endswith(".") for problem in answer["problems"])


def test_the_pages_generator_draws_every_level(replayed):
    for size, drawn in zip((5, 6), replayed[2]["drawn"]):
        every = {json.dumps(as_json(start)) for start in enumerate_starts(size)}
        found = {json.dumps({name: level[name] for name in level}) for level in drawn}
        assert found <= every
        assert len(found) > 0.98 * len(every)  # the rarest one occurs nine times on average
