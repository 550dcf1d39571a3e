"""The classes `rrl_tf.DQN` and `rrl_tf.RecurrentDQN`."""

import keras
import numpy as np
import pytest

import rrl_tf
from rrl_tf.agents import DQNConfig, make_q_network, train_double_dqn
from rrl_tf.envs import gymnasium_task
from rrl_tf.errors import InvalidInput
from serving.sessions import MemorySession

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]

TOY = {
    "num_envs": 2,
    "batch_size": 4,
    "learning_starts": 20,
    "updates_per_step": 0.25,
    "evaluate_every": 48,
    "evaluation_episodes": 2,
    "max_steps": 12,
}


def train(runs):
    options = {"runs": str(runs), "jit_compile": False, **TOY}
    return rrl_tf.DQN("CartPole-v1", seed=5, **options).learn(48)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, few_pictures):
    return train(tmp_path_factory.mktemp("trained"))


def weights(agent):
    return agent.agent.policy.get_weights()


def test_learn_equals_the_training_function(trained, tmp_path):
    settings = {"runs": str(tmp_path), "name": "by-hand", "seed": 5, **TOY}
    settings |= {"discount": 0.99, "n_step": 3}
    config = DQNConfig(env="CartPole-v1", steps=48, jit_compile=False, **settings)
    task = gymnasium_task("CartPole-v1", max_steps=12)
    keras.utils.set_random_seed(5)
    _, agent = train_double_dqn(task, make_q_network(config, task), config)
    for ours, expected in zip(weights(trained), agent.policy.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_second_learn_continues_and_a_new_agent_finds_the_checkpoint(tmp_path):
    trained = train(tmp_path)
    trained.learn(24)
    assert trained.run.step == 72
    options = {"runs": str(tmp_path), "jit_compile": False, **TOY}
    again = rrl_tf.DQN("CartPole-v1", seed=5, **options).learn(72)
    for ours, expected in zip(weights(again), weights(trained), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_saved_and_exported_policies_act_like_the_agent(trained, tmp_path):
    observations = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    actions, state = trained.predict(observations)
    assert state is None
    trained.save(tmp_path / "network.keras")
    loaded = rrl_tf.DQN.load(tmp_path / "network.keras", "CartPole-v1", jit_compile=False)
    np.testing.assert_array_equal(loaded.predict(observations)[0], actions)
    policy = rrl_tf.load_policy(trained.export(tmp_path / "export"))
    np.testing.assert_array_equal(policy.act(observations), actions)
    assert trained.predict(observations[0])[0] == actions[0]


def test_curriculum_begins_with_the_easier_environment(tmp_path):
    easier = {"curriculum": ("CartPole-v1",), "success_return": 1.0}  # every episode succeeds
    options = {"runs": str(tmp_path), "jit_compile": False, **TOY, **easier}
    agent = rrl_tf.DQN("CartPole-v0", **options).learn(48)
    log = (tmp_path / "CartPole-v0-seed0" / "metrics.csv").read_text().splitlines()
    rows = [dict(zip(log[0].split(","), row.split(","))) for row in log[1:]]
    levels = [float(row["eval/level"]) for row in rows if row["eval/level"]]
    assert levels[0] == 1 and agent.task.levels[-1].name == "CartPole-v0"
    assert any(row["zero_shot/level"] == "2" for row in rows)
    assert agent.evaluate(episodes=2)["eval/level"] == 2


def test_evaluation_plays_the_given_number_of_episodes(trained):
    found = trained.evaluate(episodes=3)
    assert 1 <= found["eval/return"] <= 12
    assert found["eval/episode_length"] == found["eval/return"]


def test_recurrent_agent_remembers_like_a_session(tmp_path):
    options = {"runs": str(tmp_path), "network": "lstm-dense", **TOY}
    agent = rrl_tf.RecurrentDQN("CartPole-v1", **options)
    env = agent.make_env()
    observation, _ = env.reset(seed=0)
    session = MemorySession(rrl_tf.load_policy(agent.export(tmp_path / "export")))
    state, reward = None, 0.0
    for _ in range(5):
        expected = session.act(observation, reward)
        action, state = agent.predict(observation, state, reward)
        assert action == expected
        observation, reward, *_ = env.step(action)
    assert agent._policy._values.experimental_get_tracing_count() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0.9}, r"options must be fields of DQNConfig; received \['gamma'\]"),
        ({"network": "fast"}, "takes grids"),
        ({"seed": -1}, "`seed` must be"),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(InvalidInput, match=message):
        rrl_tf.DQN("CartPole-v1", **options)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(3), r"float32 of shape \(4,\); received float64 of shape \(3,\)"),
        ([[0, 0, 0, np.nan]], "finite float32 .* with nan from observation 0 of the batch"),
        ({"position": 0.0}, "received object of shape"),
    ],
)
def test_observation_outside_of_the_space_is_rejected(observation, message):
    agent = rrl_tf.DQN("CartPole-v1", jit_compile=False)
    with pytest.raises(InvalidInput, match=f"`observation` must be .*{message}"):
        agent.predict(observation)


def test_file_of_another_network_is_rejected(tmp_path):
    small = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    small.save(tmp_path / "small.keras")
    (tmp_path / "damaged.keras").write_text("no zip file")
    for name in ("small", "damaged", "missing"):
        with pytest.raises(InvalidInput, match=f"`path` must be a .keras file .*{name}.keras"):
            rrl_tf.DQN.load(tmp_path / f"{name}.keras", "CartPole-v1", jit_compile=False)
