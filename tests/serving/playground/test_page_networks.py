"""The networks that the page computes, compared with Python."""

import itertools
import types

import numpy as np
import pytest
from static_pages import (
    ACTIONS,
    BLOCK,
    ONE_HOT,
    classifier_preset,
    compare,
    in_page,
    page_with_modules,
    play_in_page,
    q_network_preset,
    shake,
    transformer_preset,
)

from rrl_tf import load_policy
from rrl_tf.envs import DoorKeyStart, enumerate_starts, make_doorkey
from rrl_tf.models import RelationalQNetwork
from rrl_tf.pretrained import pretrained_name
from serving.sessions import WindowSession

pytestmark = pytest.mark.tf_only
LARGE = DoorKeyStart(size=16, wall=7, door=9, key=(3, 12), agent=(2, 4), direction=1)
PLAYED = {
    "doorkey-5x5": (enumerate_starts(5), 250),  # to the end
    "doorkey-6x6": (enumerate_starts(6)[::80], 40),
    "doorkey-8x8": (enumerate_starts(8)[::4000], 25),
    "doorkey-16x16": ((LARGE,), 25),  # with the readout "max", the others with "cell"
}
TRANSFORMER, CLASSIFIER = "dt-doorkey", "mnist-relational"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("static")
    return page_with_modules(folder, [*PLAYED, TRANSFORMER, CLASSIFIER])


def numbers(answer):
    """Return the outputs of a policy in the order of `play.mjs`: values, then attention."""
    values = answer["q_values"] if "q_values" in answer else answer["probabilities"]
    attention = [answer[name] for name in sorted(answer) if name.startswith("attention_")]
    return np.concatenate([each.reshape(len(values), -1) for each in (values, *attention)], axis=1)


class Rememberer:
    """Acts with a Q network, with or without a memory."""

    def __init__(self, policy):
        self._policy, self._state = policy, {}
        if "initial_memory" in policy.signatures:
            self._state = policy.predict({"batch_size": 1}, "initial_memory")

    def act(self, observation, reward):
        inputs = {"observation": observation[None], **self._state}
        if self._state:
            inputs["reward"] = np.array([reward], "float32")
        answer = self._policy.predict(inputs, "act_with_attention")
        if self._state:
            self._state = {"memory": answer["next_memory"]}
        return answer["action"][0]


class Windows(WindowSession):
    """A session that always requests attention."""

    def act(self, observation, reward):
        return super().act(observation, reward, return_attention_scores=True)[0]


def play(name, starts, limit, target=None):
    """Play episodes in Python; return actions and ends, and all outputs of the policy."""
    policy, env = load_policy(name), make_doorkey(starts[0].size, observation="compass")
    played, said = [], []

    def predict(inputs, signature):
        answer = policy.predict(inputs, signature)
        if signature == "act_with_attention":
            said.extend(numbers(answer))
        return answer

    asked = types.SimpleNamespace(signatures=policy.signatures, predict=predict)
    for start in starts:
        observation, _ = env.reset(options={"start": start})
        takes_windows = "states" in policy.signatures["act"]["inputs"]
        session = Windows(asked, target) if takes_windows else Rememberer(asked)
        actions, reward, end = [], 0.0, ""
        while not end and len(actions) < limit:
            action = session.act(observation, reward)
            actions.append(ACTIONS[action])
            observation, reward, terminated, truncated, _ = env.step(action)
            end = "goal" if terminated else "time" if truncated else ""
        played.append({"actions": actions, "end": end})
    return played, np.array(said)


@pytest.mark.parametrize("name", PLAYED)
def test_q_values_of_the_page_equal_those_of_python(name, page, tmp_path):
    starts, limit = PLAYED[name]
    played, said = play(name, starts, limit)
    compare(*play_in_page(page, name, starts, limit, tmp_path), played, said)
    if name == "doorkey-5x5":
        assert len(played) == 48 and {each["end"] for each in played} == {"goal"}
    assert np.ptp(said[:, :5], axis=0).min() > 0.1  # no value is constant


# The default target is the best return of its data.
@pytest.mark.parametrize(("target", "count"), [(None, 48), (0.9, 6), (0.3, 1)])
def test_probabilities_of_the_page_equal_those_of_python(target, count, page, tmp_path):
    starts, limit = enumerate_starts(5)[:: 48 // count], 60
    played, said = play(TRANSFORMER, starts, limit, target)
    compare(*play_in_page(page, TRANSFORMER, starts, limit, tmp_path, target=target), played, said)
    reached = {each["end"] for each in played}
    assert len(played) == count and reached == {"" if target == 0.3 else "goal"}
    assert np.ptp(said[:, :5], axis=0).min() > 0.01  # no value is constant


@pytest.mark.parametrize("other", [{"max_timestep": 4}, {"positions": "window"}])
def test_transformers_of_other_sizes_equal_those_of_python(other, tmp_path):
    """Several heads, whole returns, long episodes, and positions in the window."""
    preset = transformer_preset(tmp_path, **other)
    page, starts = page_with_modules(tmp_path, [preset]), enumerate_starts(5)[::16]
    played, said = play(preset, starts, 12)
    compare(*play_in_page(page, preset.name, starts, 12, tmp_path), played, said)
    assert {len(each["actions"]) for each in played} == {12}
    assert np.ptp(said, axis=0)[:5].max() > 0.001


def test_q_networks_with_norms_equal_those_of_python(tmp_path):
    block = {**BLOCK, "norm": "entity", "qkv_norm": "entity"}
    network = RelationalQNetwork.from_preset("fast", ONE_HOT, block=block, num_rounds=1)
    network.build((None, *ONE_HOT.shape))
    shake(network)
    preset = q_network_preset(tmp_path, network)
    page, starts = page_with_modules(tmp_path, [preset]), enumerate_starts(5)[::12]
    played, said = play(preset, starts, 3)
    compare(*play_in_page(page, preset.name, starts, 3, tmp_path), played, said)
    assert np.ptp(said, axis=0)[:5].max() > 0.01


def pictures(count):
    """Return random strokes of a pen two pixels wide, noise, and images of one grey level."""
    rng = np.random.default_rng(0)
    images = np.zeros((count, 28, 28), "uint8")
    for image in images:
        ends = rng.uniform(5, 23, (rng.integers(2, 5), 2))
        for begin, end in itertools.pairwise(ends):
            for x, y in np.linspace(begin, end, 40).round().astype(int):
                image[y : y + 2, x : x + 2] = rng.integers(150, 256)
    noise = rng.integers(0, 256, (4, 28, 28), "uint8")
    grey = [np.full((28, 28), value, "uint8") for value in (0, 128, 255)]
    return np.concatenate([images, noise, grey])


def compare_classifiers(page, preset, images, tmp_path):
    """Compare the page's outputs with Python's, and return the latter."""
    answer = load_policy(preset).predict({"image": images}, "classify_with_attention")
    asked = {"name": pretrained_name(preset), "images": images.reshape(len(images), -1).tolist()}
    done, out = in_page("classify.mjs", page, asked, tmp_path)
    compare(done, out, answer["class"].tolist(), numbers(answer))
    return answer


def test_classes_of_the_page_equal_those_of_python(page, tmp_path):
    answer = compare_classifiers(page, CLASSIFIER, pictures(60), tmp_path)
    assert len({*answer["class"]}) > 6
    assert {name for name in answer if "attention" in name} == {
        f"attention_round_{i}" for i in (1, 2)
    }
    assert answer["attention_round_1"].shape[1:] == (4, 49, 49)


def test_classifiers_of_other_sizes_equal_those_of_python(tmp_path):
    preset = classifier_preset(tmp_path)
    page = page_with_modules(tmp_path, [preset])
    answer = compare_classifiers(page, preset, pictures(10), tmp_path)
    assert np.ptp(answer["probabilities"], axis=0).max() > 0.01
