"""`DecisionTransformerAgent`: training in several calls, playing, saving and errors."""

import dataclasses
import functools
import pathlib

import gymnasium
import keras
import numpy as np
import pytest

import rrl_tf
from rrl_tf.errors import InvalidInput
from rrl_tf.offline import DecisionTransformerAgent, OfflineData, RecordedEnv, TrajectoryPolicy
from rrl_tf.offline.evaluation import set_noise_scale
from rrl_tf.offline.trajectory_policy import play_episodes
from serving.sessions import WindowSession

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]

OPTIONS = {"width": 16, "num_blocks": 1, "context_length": 3, "warmup_steps": 1}
OPTIONS |= {"schedule": "constant", "evaluation_episodes": 0, "log_every": 2, "logger": ("csv",)}


def recorded_data(name, episodes=4):
    """Record episodes of at most 6 steps with random actions."""
    make_env = functools.partial(gymnasium.make, name, max_episode_steps=6)
    env, played = RecordedEnv(make_env()), []
    env.action_space.seed(0)
    for seed in range(episodes):
        env.reset(seed=seed)
        while not any(env.step(env.action_space.sample())[2:4]):
            pass
        played.append(env.episode())
    return OfflineData("mine", tuple(played), env.action_space, name, make_env)


@pytest.fixture(scope="module")
def data():
    return recorded_data("CartPole-v1")


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def assert_equal_weights(network, other):
    for ours, theirs in zip(network.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_further_calls_of_learn_continue_the_run(data, in_folder):
    whole = DecisionTransformerAgent(data, name="whole", **OPTIONS).learn(4)
    parts = DecisionTransformerAgent(data, name="parts", **OPTIONS)
    parts.learn(2).learn(2)
    assert parts.run.step == 4 and [row["step"] for row in parts.run.log.rows] == [2, 4]
    assert_equal_weights(parts.network, whole.network)


def test_a_finished_cosine_schedule_cannot_be_continued(data, in_folder):
    agent = DecisionTransformerAgent(data, **{**OPTIONS, "schedule": "cosine"}).learn(2)
    weights = agent.network.get_weights()
    with pytest.raises(InvalidInput, match=r"must end at step 2, .* received 2 steps after step 2"):
        agent.learn(2)
    np.testing.assert_equal(agent.network.get_weights(), weights)
    assert agent.config.steps == 2


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_predict_plays_like_a_trajectory_policy_and_the_export(name, in_folder):
    agent = rrl_tf.DecisionTransformerAgent(recorded_data(name), **OPTIONS)
    policy = TrajectoryPolicy(agent.network, agent.scaling)
    expected = play_episodes(policy, [agent.data.make_env()], 4.0, [0])
    session = WindowSession(rrl_tf.load_policy(agent.export("mine")), target_return=4.0)
    env, state, reward, done, total = agent.data.make_env(), None, 0.0, False, 0.0
    observation, _ = env.reset(seed=0)
    while not done:
        action, state = agent.predict(observation, state, reward, target_return=4.0)
        np.testing.assert_allclose(action, session.act(observation, reward), atol=1e-5)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, done = total + reward, terminated or truncated
    assert total == pytest.approx(expected["return"][0])


def test_episodes_have_separate_states(data):
    agent = DecisionTransformerAgent(data, **OPTIONS)
    first, second = data.episodes[0].observations[:2]
    _, alone = agent.predict(first, target_return=5.0)
    _, state = agent.predict(first, target_return=5.0)
    agent.predict(second, target_return=1.0)  # another episode
    for each in (alone, state):
        agent.predict(second, each, reward=1.0)
    for ours, expected in zip(state._steps.window().values(), alone._steps.window().values()):
        np.testing.assert_array_equal(ours, expected)
    assert state._steps.window()["returns_to_go"][0, -2:, 0].tolist() == [5.0, 4.0]
    _, state = agent.predict(first)
    best = agent.scaling.target_return
    assert state._steps.window()["returns_to_go"][0, -1, 0] == best


def test_loaded_agent_has_the_saved_weights(data, in_folder):
    agent = DecisionTransformerAgent(data, **OPTIONS, seed=1)
    agent.save("agent.keras")
    loaded = DecisionTransformerAgent.load("agent.keras", data, **OPTIONS)
    assert_equal_weights(loaded.network, agent.network)
    assert loaded._policy.model is loaded.network
    other = recorded_data("Pendulum-v1")
    with pytest.raises(InvalidInput, match="of a network with the same layers"):
        DecisionTransformerAgent.load("agent.keras", other, **OPTIONS)
    with pytest.raises(InvalidInput, match=r"must be those of the saved agent; .* of num_heads"):
        DecisionTransformerAgent.load("agent.keras", data, **OPTIONS, num_heads=2)


def test_a_file_of_another_kind_is_one_error(data, in_folder, monkeypatch):
    agent = DecisionTransformerAgent(data, **OPTIONS)
    agent.network.save_weights("only.weights.h5")
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save("other.keras")
    pathlib.Path("broken.keras").write_bytes(b"PK")
    # An object that the file describes is never created.
    monkeypatch.setattr(keras.saving, "load_model", lambda *_, **__: pytest.fail("created"))
    for name in ("only.weights.h5", "other.keras", "broken.keras", "none.keras"):
        with pytest.raises(InvalidInput, match=r"must be a \.keras file of a network"):
            DecisionTransformerAgent.load(name, data, **OPTIONS)


def test_loaded_agent_has_the_chosen_noise_scale(in_folder):
    data, options = recorded_data("Pendulum-v1"), {**OPTIONS, "distribution": "censored_normal"}
    agent = DecisionTransformerAgent(data, **options)
    set_noise_scale(agent.network, 0.0)  # as `learn` does with `noise_scales`
    agent.save("agent.keras")
    loaded = DecisionTransformerAgent.load("agent.keras", data, **options)
    assert loaded.network.noise_scale == loaded.network.action_distribution.noise_scale == 0.0
    assert loaded._policy.model is loaded.network


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "`width` must be greater than 0; received 0"),
        ({"widht": 8}, r"fields of OfflineAgentConfig; received \['widht'\]"),
        (
            {"model": "behavior_cloning"},
            "`width`, `num_blocks`, `context_length` must be unchanged",
        ),
    ],
)
def test_invalid_options_leave_no_folder(data, in_folder, tmp_path, options, message):
    with pytest.raises(InvalidInput, match=message):
        DecisionTransformerAgent(data, **{**OPTIONS, **options})
    assert not list(tmp_path.iterdir())


def test_behavior_cloning_reads_one_step(data):
    options = {"model": "behavior_cloning", "evaluation_episodes": 0}
    for length in (1, 10):  # 10 is the preset's
        agent = DecisionTransformerAgent(data, context_length=length, **options)
        assert agent.network.context_length == 1


class Closing(gymnasium.Wrapper):
    closed = 0

    def close(self):
        Closing.closed += 1
        super().close()


def test_evaluate_closes_its_environments(data):
    with_env = dataclasses.replace(data, make_env=lambda: Closing(data.make_env()))
    agent = DecisionTransformerAgent(with_env, **OPTIONS)
    assert agent.evaluate([1.0], episodes=2)["1"]["length"] > 0
    assert Closing.closed == 2


def test_evaluation_needs_an_environment(data):
    agent = DecisionTransformerAgent(dataclasses.replace(data, make_env=None), **OPTIONS)
    with pytest.raises(InvalidInput, match="`evaluate` needs data with an environment; received"):
        agent.evaluate([1.0])
