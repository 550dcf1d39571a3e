"""The page's results for a changed network, compared with `rrl_tf.interpret`."""

import json
import pathlib
import re

import keras
import numpy as np
import pytest
from static_pages import ACTIONS, in_page, page_with_modules

from rrl_tf.envs import DoorKeyStart, doorkey_task, enumerate_starts, make_doorkey
from rrl_tf.interpret import ablate, attention_rollout, occlusion, trace
from rrl_tf.interpret.attribution import hide, read_entity
from rrl_tf.interpret.places import outputs
from rrl_tf.models import RecurrentQNetwork, RelationalQNetwork

pytestmark = pytest.mark.tf_only
LARGE = DoorKeyStart(size=16, wall=7, door=9, key=(3, 12), agent=(2, 4), direction=1)
PLAYED = {
    "doorkey-5x5": (RelationalQNetwork, enumerate_starts(5)[7], 20),  # to the end
    "doorkey-6x6": (RecurrentQNetwork, enumerate_starts(6)[80], 10),
    "doorkey-8x8": (RecurrentQNetwork, enumerate_starts(8)[4000], 4),
    "doorkey-16x16": (RecurrentQNetwork, LARGE, 4),  # with the readout "max", the others "cell"
}
AHEAD, AGENT = 3 * 7 + 5, 3 * 7 + 6


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return page_with_modules(tmp_path_factory.mktemp("static"), [*PLAYED])


def play(model, start, limit):
    """Return the actions of a greedy episode, and the inputs of all its steps."""
    task = doorkey_task((start.size,))
    env = make_doorkey(start.size, observation="compass")
    view, _ = env.reset(options={"start": start})
    recurrent = isinstance(model, RecurrentQNetwork)
    state, steps, done = model.initial_state(1) if recurrent else {}, [], False
    actions = []
    while not done and len(actions) < limit:
        observation = task.preprocessor(view[None])
        steps.append({"observation": observation, **state} if recurrent else observation)
        found = trace(model, steps[-1])
        action = found["output"].reshape(-1).argmax()
        view, reward, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
        if recurrent:
            memory = found["memory/after"].reshape(1, -1)
            state = model.next_state(memory, np.int32([action]), np.float32([reward]), [False])
        actions.append(ACTIONS[action])
    return actions, keras.tree.map_structure(lambda *each: np.concatenate(each), *steps)


def changed(model, inputs):
    """Return (off, hidden) -> Q values `(B, A)` with parts off and entities hidden."""
    parts = ablate(model, inputs, kinds=["head", "round"])
    result = {((name.replace("_", " "),), ()): q for name, q in zip(parts.names, parts.after)}
    found = trace(model, inputs)
    removed = np.zeros((len(found["output"]), 49), bool)
    removed[:, [AHEAD, AGENT]] = True
    hidden = hide(model, found, removed)
    result[(), (AHEAD, AGENT)] = outputs(model, inputs, hidden)
    # Several changes at once: without a head, a round, two cells and the memory
    edits = dict(hidden)
    edits["round_1/attention"] = lambda scores: (
        hidden["round_1/attention"](scores) * np.float32([1, 0])[:, None, None]
    )
    off = ["round 1, head 2", "round 2"]
    if "memory/before" in found:
        forgotten = {"memory/before": 0 * found["memory/before"]}
        result[("memory",), ()] = outputs(model, inputs, forgotten)
        edits |= forgotten
        off.append("memory")
    edits["round_2/after"] = trace(model, inputs, edits)["round_1/after"]
    result[tuple(off), (AHEAD, AGENT)] = outputs(model, inputs, edits)
    return result


@pytest.mark.parametrize("name", PLAYED)
def test_changes_on_the_page_equal_those_of_python(name, page, tmp_path):
    kind, start, limit = PLAYED[name]
    model = kind.from_preset(name)
    actions, inputs = play(model, start, limit)
    expected = changed(model, inputs)
    found = trace(model, inputs)
    rounds = [found[f"round_{i}/attention"] for i in (1, 2)]
    drops = occlusion(model, inputs)
    paths = attention_rollout(rounds, read_entity(model, inputs))
    said = np.concatenate([*expected.values(), drops, paths], axis=1)

    changes = [{"off": off, "hidden": hidden} for off, hidden in expected]
    asked = {"name": name, "start": vars(start), "limit": limit, "changes": changes}
    done, out = in_page("change.mjs", page, asked, tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["actions"] == actions and len(actions) > 3
    single = {name for off, _ in expected for name in off if len(off) == 1}
    assert {*answer["parts"]} == single
    here = np.fromfile(out, "float32").reshape(said.shape)
    np.testing.assert_allclose(here, said, rtol=0, atol=1e-5)
    # Every change has an effect in some step; otherwise the comparison would prove nothing.
    effects = [np.abs(q - found["output"].reshape(q.shape)).max() for q in expected.values()]
    assert min(effects) > 1e-3 and drops.max() > 1e-3


def test_the_page_quotes_the_measured_correlations():
    root = pathlib.Path(__file__).parents[3]
    table = (root / "docs/experiments/causal.md").read_text()
    table = table.partition("causal/attention -->")[2].partition("<!-- end")[0]
    rows = re.findall(r"^\|(?!.*Box-World).*round_\d, head \d \|.*$", table, re.M)
    values = sorted(re.findall(r"\| (-?\d\.\d+)", "".join(rows)), key=float)
    page = (root / "serving/playground/static/index.html").read_text()
    assert f"is only {values[0]} to {values[-1]} (docs" in re.sub(r"\s+", " ", page)
