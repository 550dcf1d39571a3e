"""Online fine-tuning: episode buffer, exploration, resume and evaluation."""

import contextlib
import dataclasses
import gc
import json
import weakref

import gymnasium
import keras
import numpy as np
import pytest
from counting_episodes import ENDS, with_open_envs
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.models import BehaviorCloning
from rrl_tf.offline import (
    DecisionTransformerConfig,
    Episode,
    FineTuningConfig,
    OfflineData,
    RecordedEnv,
    Scaling,
    TrajectoryPolicy,
    fine_tune,
    fine_tuning,
)
from rrl_tf.offline.decision_transformer import make_windows
from rrl_tf.offline.evaluation import ReturnEvaluator, make_envs
from rrl_tf.offline.fine_tuning import EpisodeBuffer
from rrl_tf.training import MetricsLog

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]


def episode(length, reward=1.0, seed=0):
    rng = np.random.default_rng(seed)
    observations = rng.normal(size=(length + 1, 4)).astype("float32")
    return Episode(observations, rng.integers(2, size=length), np.full(length, reward), True, False)


LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.lists(LENGTHS, max_size=3), st.integers(1, 30))
def test_the_buffer_keeps_the_newest_episodes(recorded, rounds, max_steps):
    """The buffer sorts the recorded episodes by return, as if the best ones were the newest."""
    buffer = EpisodeBuffer((episode(n) for n in recorded), max_steps)
    ages = sorted(recorded)
    for lengths in rounds:
        buffer.add(episode(n) for n in lengths)
        ages += lengths
    expected = [ages[-1]]
    for n in reversed(ages[:-1]):
        if sum(expected) + n > max_steps:
            break
        expected.insert(0, n)
    assert [len(each) for each in buffer.episodes] == expected
    assert buffer.best == max(expected)


@settings(max_examples=30, deadline=None)
@given(LENGTHS)
def test_the_buffer_restores_its_state(lengths):
    buffer = EpisodeBuffer((episode(n, seed=i) for i, n in enumerate(lengths)), 1000)
    other = EpisodeBuffer([episode(3)], 1000)
    other.set_state(buffer.get_state())
    assert len(other.episodes) == len(buffer.episodes)
    for a, b in zip(other.episodes, buffer.episodes):
        for name in ("observations", "actions", "rewards"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert (a.terminated, a.truncated) == (b.terminated, b.truncated)


def cartpole(episodes=6):
    """Return CartPole episodes of random actions."""
    env, played = RecordedEnv(gymnasium.make("CartPole-v1")), []
    for seed in range(episodes):
        env.reset(seed=seed)
        env.action_space.seed(seed)
        over = False
        while not over:
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            over = terminated or truncated
        played.append(env.episode())
    make = lambda: gymnasium.make("CartPole-v1")  # noqa: E731
    return OfflineData("random", tuple(played), env.action_space, "CartPole-v1", make)


def dense(data, **options):
    keras.utils.set_random_seed(0)
    network = BehaviorCloning(4, data.action_size, (16,), discrete=True, **options)
    network.build()
    return network


def test_exploration_1_samples_discrete_actions_from_the_softmax():
    data = cartpole()
    network = dense(data, return_conditioned=True)
    scaling = Scaling.of(data)
    states = np.zeros((4000, 4), "float32")
    policy = TrajectoryPolicy(network, scaling, exploration=1.0)
    policy.begin(np.full(4000, 10.0), seed=[1, 2])
    drawn = policy.act(states)
    logits = network(
        scaling.window(
            {
                "states": states[:1, None],
                "actions": np.zeros((1, 1, 2)),
                "returns_to_go": np.full((1, 1, 1), 10.0),
                "timesteps": np.zeros((1, 1), int),
                "mask": np.ones((1, 1)),
            }
        )
    )["action"]
    probability = float(keras.ops.softmax(logits)[0, 0, 1])
    assert drawn.mean() == pytest.approx(
        probability, abs=4 * np.sqrt(probability * (1 - probability) / 4000)
    )
    policy.begin(np.full(4000, 10.0), seed=[1, 2])
    np.testing.assert_array_equal(policy.act(states), drawn)
    greedy = TrajectoryPolicy(network, scaling)
    greedy.begin(np.full(4000, 10.0))
    assert (greedy.act(states) == int(probability > 0.5)).all()


TRAINING = DecisionTransformerConfig(
    batch_size=32, evaluation_episodes=3, progress_episodes=2, held_out=0.2, sampling="returns"
)


def config(tmp_path, **changes):
    numbers = {"steps": 120, "episodes": 2, "evaluate_every": 40, "name": "tuned"}
    return FineTuningConfig(runs=str(tmp_path), **(numbers | changes))


def test_resume_is_bit_exact(tmp_path):
    data = cartpole()
    scaling = Scaling.of(data)
    training = dataclasses.replace(TRAINING, targets=(3.0, 12.0))

    def run(**changes):
        network = dense(data, return_conditioned=True)
        fine_tune(data, network, scaling, training, config(tmp_path, **changes))
        return network

    whole = run()
    summary = json.loads((tmp_path / "tuned" / "evaluation.json").read_text())
    assert summary["step"] >= 120
    assert "12" in summary["last"]  # a target of `training`
    assert max(map(float, summary["last"])) >= data.returns().max()
    assert list((tmp_path / "tuned" / "export" / "1").iterdir())
    run(name="parts", steps=50)
    parts = run(name="parts")
    for a, b in zip(parts.get_weights(), whole.get_weights()):
        np.testing.assert_array_equal(a, b)
    assert any(
        (a != b).any()
        for a, b in zip(whole.get_weights(), dense(data, return_conditioned=True).get_weights())
    )


@pytest.mark.slow
def test_fine_tuning_learns_cart_pole(tmp_path):
    data = cartpole(60)
    network = dense(data, return_conditioned=True)
    training = dataclasses.replace(TRAINING, return_power=2.0, evaluation_episodes=10)
    numbers = {"steps": 4000, "updates_per_step": 0.2, "learning_rate": 3e-3, "evaluate_every": 0}
    fine_tune(data, network, Scaling.of(data), training, config(tmp_path, **numbers))
    summary = json.loads((tmp_path / "tuned" / "evaluation.json").read_text())
    best = max(row["return"] for row in summary["last"].values())
    assert best > 3 * data.returns().mean()


def test_windows_of_earlier_rounds_are_freed(tmp_path, monkeypatch):
    """TensorFlow never frees the generator of a dataset, so it must not hold the windows."""
    made = []

    def recorded(*arguments):
        windows = make_windows(*arguments)
        made.append(weakref.ref(windows))
        return windows

    monkeypatch.setattr(fine_tuning, "make_windows", recorded)
    data = cartpole()
    network = dense(data, return_conditioned=True)
    fine_tune(data, network, Scaling.of(data), TRAINING, config(tmp_path, episodes=1))
    gc.collect()
    assert len(made) > 3 and sum(each() is not None for each in made) <= 1


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_fine_tuning_closes_its_environments(tmp_path, end):
    data, opened = with_open_envs(cartpole())
    network = dense(data, return_conditioned=True)

    def callback(step, metrics):
        assert len(opened) == 3 + 2  # of the evaluation and of the rounds
        return end()

    with contextlib.suppress(ZeroDivisionError, KeyboardInterrupt):
        fine_tune(data, network, Scaling.of(data), TRAINING, config(tmp_path), [callback])
    assert not opened


def summary_of(tmp_path, name="tuned"):
    return json.loads((tmp_path / name / "evaluation.json").read_text())


def test_the_summary_has_the_returns_before_fine_tuning(tmp_path, capsys):
    """A resumed run keeps the returns that were measured before its first step."""
    data = cartpole()
    scaling = Scaling.of(data)
    training = dataclasses.replace(TRAINING, targets=(3.0, 12.0))
    network = dense(data, return_conditioned=True)
    policy = TrajectoryPolicy(network, scaling)
    with make_envs(data, 3) as envs:
        expected = ReturnEvaluator(policy, envs, [12.0]).table([12.0])
    numbers = {"learning_rate": 0.1, "evaluate_every": 20}
    fine_tune(data, network, scaling, training, config(tmp_path, steps=20, **numbers))
    network = dense(data, return_conditioned=True)
    fine_tune(data, network, scaling, training, config(tmp_path, steps=60, **numbers))
    found = summary_of(tmp_path)
    assert found["before_fine_tuning"] == expected
    # The best weights are evaluated with the target that selected them.
    assert found["last"].keys() > {"12"} and found["best"].keys() == {"12"}
    assert "  before the fine-tuning, target 12: " in capsys.readouterr().out
    assert "target return, before the fine-tuning" in (tmp_path / "tuned/report.html").read_text()


def test_a_run_resumes_with_the_first_or_the_last_weights(tmp_path):
    data = cartpole()
    scaling, network = Scaling.of(data), dense(data, return_conditioned=True)
    fine_tune(data, network, scaling, TRAINING, config(tmp_path, steps=20))
    trained = network.get_weights()
    fine_tune(data, network, scaling, TRAINING, config(tmp_path))
    again = dense(data, return_conditioned=True)
    fine_tune(data, again, scaling, TRAINING, config(tmp_path))
    for a, b in zip(network.get_weights(), again.get_weights()):
        np.testing.assert_array_equal(a, b)
    network.set_weights(trained)  # weights of a step between the first and the last
    with pytest.raises(InvalidInput, match="must have its weights from before the fine-tuning"):
        fine_tune(data, network, scaling, TRAINING, config(tmp_path))
    for a, b in zip(network.get_weights(), trained):
        np.testing.assert_array_equal(a, b)


def test_other_numbers_or_other_data_are_another_run(tmp_path):
    data = cartpole()
    scaling, network = Scaling.of(data), dense(data, return_conditioned=True)
    fine_tune(data, network, scaling, TRAINING, config(tmp_path, steps=20))
    assert json.loads((tmp_path / "tuned" / "config.json").read_text())["episodes"] == 2
    with pytest.raises(InvalidInput, match="episodes was 2 and is now 3"):
        fine_tune(data, network, scaling, TRAINING, config(tmp_path, steps=20, episodes=3))
    others = cartpole(7)
    with pytest.raises(InvalidInput, match=r"dataset was '.*' and is now '.*'"):
        fine_tune(others, network, scaling, TRAINING, config(tmp_path, steps=20))
    other = dataclasses.replace(TRAINING, batch_size=16)
    with pytest.raises(InvalidInput, match=r"training\.batch_size was 32 and is now 16"):
        fine_tune(data, network, scaling, other, config(tmp_path, steps=20))


def test_a_finished_run_is_evaluated_again_for_other_targets(tmp_path):
    """A target that equals the best return after rounding is evaluated only once."""
    data = cartpole()
    rewards = [e.rewards * 1.00012345 for e in data.episodes]
    episodes = [dataclasses.replace(e, rewards=r) for e, r in zip(data.episodes, rewards)]
    data = dataclasses.replace(data, episodes=tuple(episodes))
    scaling, network = Scaling.of(data), dense(data, return_conditioned=True)
    best = data.returns().max()
    rounded = float(f"{best:.3g}")
    training = dataclasses.replace(TRAINING, held_out=0.0)
    fine_tune(data, network, scaling, training, config(tmp_path, steps=1, episodes=1))
    assert best != rounded and summary_of(tmp_path)["last"].keys() == {f"{rounded:g}"}
    weights, rows = network.get_weights(), MetricsLog(tmp_path / "tuned", loggers=()).rows
    training = dataclasses.replace(training, targets=(12.0,), evaluation_episodes=4)
    fine_tune(data, network, scaling, training, config(tmp_path, steps=1, episodes=1))
    summary = summary_of(tmp_path)
    assert summary["last"].keys() == {"12", f"{best:g}"}
    assert summary["before_fine_tuning"].keys() == {"12"}
    [*earlier, last], again = rows, MetricsLog(tmp_path / "tuned", loggers=()).rows
    assert again[:-1] == earlier and last.items() < again[-1].items()  # returns of new targets
    for a, b in zip(network.get_weights(), weights):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "`steps` must be greater than 0; received 0"),
        ({"buffer_steps": -1}, "`buffer_steps` must be greater than 0; received -1"),
        ({"exploration": -0.1}, "`exploration` must be at least 0 and finite; received -0.1"),
    ],
)
def test_invalid_config_are_errors(tmp_path, changes, message):
    with pytest.raises(InvalidInput, match=message):
        config(tmp_path, **changes)


def test_errors_before_the_run_leave_no_folder(tmp_path):
    data = cartpole()
    scaling = Scaling.of(data)
    with pytest.raises(InvalidInput, match="must be a DecisionTransformer or a return_conditioned"):
        fine_tune(data, dense(data), scaling, TRAINING, config(tmp_path))
    with pytest.raises(InvalidInput, match=r"must have .*; received .'state_size': 5, "):
        network = BehaviorCloning(5, 2, (16,), discrete=True, return_conditioned=True)
        fine_tune(data, network, scaling, TRAINING, config(tmp_path))
    alone = dataclasses.replace(data, make_env=None)
    with pytest.raises(InvalidInput, match=r"must have data with an env.*; received random"):
        network = dense(data, return_conditioned=True)
        fine_tune(alone, network, scaling, TRAINING, config(tmp_path))
    with pytest.raises(InvalidInput, match=r"evaluation_episodes; received random and .*=0"):
        unevaluated = dataclasses.replace(TRAINING, evaluation_episodes=0)
        fine_tune(data, network, scaling, unevaluated, config(tmp_path))
    assert not list(tmp_path.iterdir())
