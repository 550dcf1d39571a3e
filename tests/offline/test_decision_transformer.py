"""Training on recorded episodes: errors, resume and repeated evaluation."""

import contextlib
import dataclasses
import json

import gymnasium
import keras
import numpy as np
import pytest
from counting_episodes import ENDS, offline, with_open_envs

from rrl_tf.errors import InvalidInput
from rrl_tf.models import BehaviorCloning, DecisionTransformer
from rrl_tf.offline import (
    DecisionTransformerConfig,
    Scaling,
    decision_transformer,
    train_decision_transformer,
)
from rrl_tf.training import MetricsLog
from rrl_tf.training.devices import Replicas

pytestmark = [
    pytest.mark.tf_only,
    pytest.mark.filterwarnings("ignore:.*at their bounds"),
    pytest.mark.filterwarnings("ignore:the returns of the policy do not follow"),
    pytest.mark.usefixtures("few_pictures"),
]

LENGTHS = (3, 9, 5, 12, 4, 7)


class ActionReward(gymnasium.Env):
    """An environment of three steps; the reward is the first number of the action."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-2, 4, (2,))

    def reset(self, *, seed=None, options=None):
        self.left = 3
        return np.full(2, seed % 7, "float32"), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(2, "float32"), float(action[0]), self.left == 0, False, {}


def config(tmp_path, **changes):
    numbers = {"steps": 4, "log_every": 2, "checkpoint_every": 2, "evaluate_every": 2}
    numbers |= {"evaluation_episodes": 2, "progress_episodes": 1, "batch_size": 8}
    numbers |= {"schedule": "constant", "warmup_steps": 0, "held_out": 0.3, "targets": (5.0, 20.0)}
    return DecisionTransformerConfig(runs=str(tmp_path / "runs"), name="run", **numbers | changes)


def toy(**options):
    """Return data with an environment, a network and the scaling."""
    data = dataclasses.replace(offline(LENGTHS), make_env=ActionReward)
    keras.utils.set_random_seed(0)
    return data, BehaviorCloning(2, 2, (8,), return_conditioned=True, **options), Scaling.of(data)


def noisy(**options):
    return toy(distribution="censored_normal", **options)


def summary_of(run):
    return json.loads((run.folder.path / "evaluation.json").read_text())


def details_of(run, version):
    file = run.folder.export / version / "assets.extra" / "policy.json"
    return json.loads(file.read_text())


def test_members_need_one_device(tmp_path):
    data, network, scaling = toy(members=2)
    replicas = Replicas()
    replicas.count = 2
    with pytest.raises(InvalidInput, match="on one device; received 2 members and 2 devices"):
        train_decision_transformer(data, network, scaling, config(tmp_path), replicas)
    assert not list(tmp_path.iterdir())


def transformer(state_size, action_size, discrete):
    sizes = {"width": 16, "num_blocks": 1, "context_length": 6}
    return DecisionTransformer.from_preset(
        "fast", state_size=state_size, action_size=action_size, discrete=discrete, **sizes
    )


@pytest.mark.parametrize("make", [transformer, BehaviorCloning])
@pytest.mark.parametrize("wrong", ["state_size", "action_size", "discrete"])
def test_a_network_for_other_data_is_an_error(tmp_path, make, wrong):
    data = offline(LENGTHS)
    sizes = {"state_size": 2, "action_size": data.action_size, "discrete": False}
    sizes[wrong] = True if wrong == "discrete" else sizes[wrong] + 1
    with pytest.raises(InvalidInput, match=f"must have .*received .*{wrong}"):
        train_decision_transformer(data, make(**sizes), Scaling.of(data), config(tmp_path))
    assert not list(tmp_path.iterdir())


def test_the_saved_model_has_the_chosen_noise_scale(tmp_path):
    data, network, scaling = noisy(noise_scale=0.5)
    settings = config(tmp_path, noise_scales=(0.0, 1.0))
    run = train_decision_transformer(data, network, scaling, settings)
    saved = keras.models.load_model(run.folder.model_file)
    assert saved.noise_scale == summary_of(run)["chosen_noise"] != 0.5


def test_a_policy_that_does_not_follow_its_targets_warns(tmp_path, capsys):
    data, network, scaling = toy()
    settings = config(tmp_path, targets=(100.0, 200.0, 300.0))  # unreachable
    with pytest.warns(
        UserWarning, match="do not follow its target returns.*, or use the preset `fast`$"
    ):
        run = train_decision_transformer(data, network, scaling, settings)
    found = summary_of(run)
    assert found["target_following"]["followed"] is False
    assert "returns do not follow their targets: rank correlation" in capsys.readouterr().out
    [*_, row] = MetricsLog(run.folder.path, loggers=()).rows
    assert row["step"] == 4 and "train/loss" in row
    for target, each in found["last"].items():
        assert row[f"eval/return_target_{target}"] == pytest.approx(each["return"], rel=1e-5)
    correlation = found["target_following"]["rank_correlation"]
    assert row["eval/target_rank_correlation"] == correlation
    report = (run.folder.path / "report.html").read_text()
    assert "record policies of different skill, or train longer" in report
    assert "<tr><th>target return, last weights</th><th>return</th>" in report
    shown = f"{found['last']['200']['return']:.6g}"
    assert f"<tr><td>200</td><td>{shown}</td>" in report
    assert "last weights, target" not in report

    settings = dataclasses.replace(settings, evaluation_episodes=0)  # keeps the earlier results
    run = train_decision_transformer(data, network, scaling, settings)
    assert summary_of(run)["target_following"] == found["target_following"]


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_finished_run_is_evaluated_again_for_other_targets(tmp_path, capsys, schedule):
    data, network, scaling = noisy()
    settings = config(tmp_path, noise_scales=(0.0, 1.0), schedule=schedule, advantage_power=1.0)
    run = train_decision_transformer(data, network, scaling, settings)
    before, rows = summary_of(run), run.log.rows
    weights = network.get_weights()

    _, network, _ = noisy(noise_scale=0.5)
    settings = dataclasses.replace(settings, targets=(3.0, 6.0, 9.0), evaluation_episodes=3)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("choose_noise_scale", "reweight_by_advantage"):
            patch.setattr(decision_transformer, name, lambda *_: pytest.fail("trained again"))
        run = train_decision_transformer(data, network, scaling, settings)
    found = summary_of(run)
    assert found["last"].keys() == {"3", "6", "9"} and found["step"] == 4
    for name in ("noise_scales", "chosen_noise", "action_error"):
        assert found[name] == before[name]
    assert network.noise_scale == found["chosen_noise"]
    assert [row["step"] for row in run.log.rows] == [row["step"] for row in rows]
    for a, b in zip(network.get_weights(), weights):
        np.testing.assert_array_equal(a, b)
    assert details_of(run, "2")["scores"].keys() == {"3", "6", "9"}
    written = (run.folder.path / "evaluation.json").stat().st_mtime_ns
    train_decision_transformer(data, network, scaling, settings)
    assert (run.folder.path / "evaluation.json").stat().st_mtime_ns == written


def test_evaluation_without_episodes_keeps_earlier_results(tmp_path):
    data, network, scaling = noisy()
    settings = config(tmp_path, noise_scales=(0.0, 1.0))
    before = summary_of(train_decision_transformer(data, network, scaling, settings))
    _, network, _ = noisy(noise_scale=0.5)
    settings = dataclasses.replace(settings, evaluation_episodes=0)
    run = train_decision_transformer(data, network, scaling, settings)
    assert summary_of(run) == before and network.noise_scale == before["chosen_noise"]
    details = details_of(run, "2")
    assert details["noise_scale"] == before["chosen_noise"]
    assert details["scores"] == before["last"]


def test_an_unfinished_run_continues_with_other_targets(tmp_path):
    data, network, scaling = noisy()
    settings = config(tmp_path, noise_scales=(0.0, 1.0), steps=2)
    train_decision_transformer(data, network, scaling, settings)
    _, network, _ = noisy()
    settings = dataclasses.replace(settings, steps=4, targets=(7.0,))
    run = train_decision_transformer(data, network, scaling, settings)
    assert summary_of(run)["step"] == 4 and summary_of(run)["last"].keys() == {"7"}
    assert json.loads((run.folder.path / "config.json").read_text())["targets"] == [7.0]


def test_a_cosine_schedule_cannot_continue_with_more_steps(tmp_path):
    data, network, scaling = toy()
    cosine = config(tmp_path, schedule="cosine", steps=2)
    train_decision_transformer(data, network, scaling, cosine)
    with pytest.raises(InvalidInput, match="steps was 2 and is now 4"):
        train_decision_transformer(data, network, scaling, dataclasses.replace(cosine, steps=4))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module named 'reach'"), "cannot make .*'reach'.* Use evaluation_"),
        (
            OSError("MuJoCo is missing"),
            r"Use pip install 'gymnasium\[mujoco\]', or evaluation_",
        ),
    ],
)
def test_training_needs_no_environment(tmp_path, error, message):
    def fails():
        raise error

    data, network, scaling = toy()
    data = dataclasses.replace(data, make_env=fails)
    with pytest.raises(InvalidInput, match=message):
        train_decision_transformer(data, network, scaling, config(tmp_path))
    nothing = config(tmp_path, evaluation_episodes=0)
    run = train_decision_transformer(data, network, scaling, nothing)
    assert "last" not in summary_of(run) and (run.folder.export / "1").exists()

    data, network, _ = toy()
    run = train_decision_transformer(data, network, scaling, config(tmp_path))
    assert summary_of(run)["last"].keys() == {"5", "20"}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_training_closes_its_environments(tmp_path, end):
    data, network, scaling = toy()
    data, opened = with_open_envs(data)

    def on_epoch_end(*_):
        assert len(opened) == 2
        end()

    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)]
    with contextlib.suppress(ZeroDivisionError, KeyboardInterrupt):
        train_decision_transformer(data, network, scaling, config(tmp_path), callbacks=callbacks)
    assert not opened


def test_the_best_weights_play_the_target_that_selected_them(tmp_path):
    data, network, scaling = toy()
    settings = config(tmp_path)
    found = summary_of(train_decision_transformer(data, network, scaling, settings))
    assert found["best"].keys() == {"20"}
    _, network, _ = toy()
    settings = dataclasses.replace(settings, targets=(5.0,))
    found = summary_of(train_decision_transformer(data, network, scaling, settings))
    assert found["last"].keys() == {"5"} and found["best"].keys() == {"20"}


class Thirds(ActionReward):
    """The return is 2/3, which does not survive rounding to six digits."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 2 / 9, *rest


def test_a_resumed_run_keeps_the_best_weights_of_an_uninterrupted_run(tmp_path):
    kept = []
    for name, parts in (("whole", [6]), ("parts", [2, 6])):
        for steps in parts:
            data, network, scaling = toy()
            data = dataclasses.replace(data, make_env=Thirds)
            settings = config(tmp_path / name, steps=steps)
            run = train_decision_transformer(data, network, scaling, settings)
        kept.append(dict(np.load(run.folder.path / "best.npz")))
    assert kept[0].keys() == kept[1].keys()
    for array, value in kept[0].items():
        np.testing.assert_array_equal(kept[1][array], value, err_msg=array)
    np.testing.assert_array_equal(kept[0]["arr_0"], network.get_weights()[0])


def other_ends(data):
    episodes = [dataclasses.replace(e, terminated=not e.terminated) for e in data.episodes]
    return dataclasses.replace(data, episodes=tuple(episodes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data, scaling: {"data": other_ends(data)}, "dataset was "),
        (
            lambda data, scaling: {"scaling": dataclasses.replace(scaling, return_scale=7.0)},
            r"scaling\.return_scale was '[0-9]+' and is now '7'",
        ),
    ],
)
def test_other_data_or_another_scaling_is_another_run(tmp_path, change, message):
    data, network, scaling = toy()
    train_decision_transformer(data, network, scaling, config(tmp_path))
    _, network, _ = toy()
    others = {"data": data, "network": network, "scaling": scaling, **change(data, scaling)}
    with pytest.raises(InvalidInput, match=message):
        train_decision_transformer(**others, config=config(tmp_path))
