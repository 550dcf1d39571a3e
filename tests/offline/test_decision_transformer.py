"""What is refused before a run on recorded episodes, and a finished one that is asked again."""

import dataclasses
import json

import gymnasium
import keras
import numpy as np
import pytest
from counting_episodes import offline

from rrl_tf.errors import InvalidInput
from rrl_tf.models import BehaviorCloning, DecisionTransformer
from rrl_tf.offline import Scaling
from rrl_tf.offline import decision_transformer as training
from rrl_tf.offline.decision_transformer import (
    DecisionTransformerConfig,
    train_decision_transformer,
)
from rrl_tf.training.devices import Replicas

pytestmark = [
    pytest.mark.tf_only,
    pytest.mark.filterwarnings("ignore:.*sit at their bounds"),
    pytest.mark.usefixtures("few_pictures"),
]

LENGTHS = (3, 9, 5, 12, 4, 7)


class Pays(gymnasium.Env):
    """Three steps, each of which pays the first number of its action."""

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


def playable(**options):
    data = dataclasses.replace(offline(LENGTHS), make_env=Pays)
    keras.utils.set_random_seed(0)
    return data, BehaviorCloning(2, 2, (8,), return_conditioned=True, **options), Scaling.of(data)


def test_members_are_trained_on_one_device(tmp_path):
    """On two they were given other rows than on one."""
    data, network, scaling = playable(members=2)
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
@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("wrong", ["state_size", "action_size", "discrete"])
def test_a_network_for_other_data_is_refused_before_anything_is_written(
    tmp_path, make, discrete, wrong
):
    """Once, logits were learned of continuous actions, and nobody was told."""
    data = offline(LENGTHS, discrete)
    sizes = {"state_size": 2, "action_size": data.action_size, "discrete": discrete}
    sizes[wrong] = not discrete if wrong == "discrete" else sizes[wrong] + 1
    with pytest.raises(InvalidInput, match=f"need a network with .*received .*{wrong}"):
        train_decision_transformer(data, make(**sizes), Scaling.of(data), config(tmp_path))
    assert not list(tmp_path.iterdir())


def test_progress_may_take_more_episodes_where_none_are_played(tmp_path):
    config(tmp_path, progress_episodes=3, evaluate_every=0)
    for more in ({}, {"evaluate_every": 0, "played_noises": (0.0, 1.0)}):
        with pytest.raises(InvalidInput, match=r"progress_episodes must not be more .*3 and 2"):
            config(tmp_path, progress_episodes=3, **more)


def summary_of(run):
    return json.loads((run.folder.path / "evaluation.json").read_text())


def test_the_model_that_is_kept_plays_the_share_that_was_chosen(tmp_path):
    """Once, that of before the training, which may play badly."""
    data, network, scaling = playable(distribution="censored_normal", noise_scale=0.5)
    settings = config(tmp_path, played_noises=(0.0, 1.0))
    run = train_decision_transformer(data, network, scaling, settings)
    kept = keras.models.load_model(run.folder.model_file)
    assert kept.noise_scale == summary_of(run)["chosen_noise"] != 0.5


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_finished_run_is_asked_for_other_returns(tmp_path, capsys, schedule):
    """Once, that was another run; nothing is trained, and a noise that was chosen stays."""
    data, network, scaling = playable(distribution="censored_normal")
    settings = config(tmp_path, played_noises=(0.0, 1.0), schedule=schedule)
    run = train_decision_transformer(data, network, scaling, settings)
    before, rows = summary_of(run), run.log.rows
    weights = network.get_weights()

    _, network, _ = playable(distribution="censored_normal", noise_scale=0.5)
    settings = dataclasses.replace(settings, targets=(3.0, 6.0, 9.0), evaluation_episodes=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "choose_noise", lambda *_: pytest.fail("searched again"))
        patch.setattr(training, "_weigh", lambda *_: pytest.fail("weighed again"))
        run = train_decision_transformer(data, network, scaling, settings)
    found = summary_of(run)
    assert found["last"].keys() == {"3", "6", "9"} and found["step"] == 4
    for name in ("played_noise", "chosen_noise", "action_error"):
        assert found[name] == before[name]
    assert network.noise_scale == found["chosen_noise"]
    assert [row["step"] for row in run.log.rows] == [row["step"] for row in rows]
    for a, b in zip(network.get_weights(), weights):
        np.testing.assert_array_equal(a, b)
    details = run.folder.export / "2" / "assets.extra" / "policy.json"
    assert json.loads(details.read_text())["scores"].keys() == {"3", "6", "9"}
    assert "is trained already" not in capsys.readouterr().out
    train_decision_transformer(data, network, scaling, settings)
    assert "is trained already" in capsys.readouterr().out


def test_a_finished_run_that_plays_nothing_loses_nothing(tmp_path):
    """Once, neither the returns were left nor the noise, and another policy was exported."""
    data, network, scaling = playable(distribution="censored_normal")
    settings = config(tmp_path, played_noises=(0.0, 1.0))
    before = summary_of(train_decision_transformer(data, network, scaling, settings))
    _, network, _ = playable(distribution="censored_normal", noise_scale=0.5)
    settings = dataclasses.replace(settings, evaluation_episodes=0)
    run = train_decision_transformer(data, network, scaling, settings)
    assert summary_of(run) == before and network.noise_scale == before["chosen_noise"]
    details = run.folder.export / "2" / "assets.extra" / "policy.json"
    told = json.loads(details.read_text())
    assert told["played_noise"] == before["chosen_noise"] and told["scores"] == before["last"]


def test_an_unfinished_run_goes_on_with_other_targets(tmp_path):
    data, network, scaling = playable()
    train_decision_transformer(data, network, scaling, config(tmp_path, steps=2))
    _, network, _ = playable()
    run = train_decision_transformer(data, network, scaling, config(tmp_path, targets=(7.0,)))
    assert summary_of(run)["step"] == 4 and summary_of(run)["last"].keys() == {"7"}
    assert json.loads((run.folder.path / "config.json").read_text())["targets"] == [7.0]


def test_a_cosine_that_is_to_go_on_is_told_what_can(tmp_path):
    data, network, scaling = playable()
    cosine = config(tmp_path, schedule="cosine", steps=2)
    train_decision_transformer(data, network, scaling, cosine)
    with pytest.raises(InvalidInput, match=r"steps is 2 there.*--schedule constant\) can be"):
        train_decision_transformer(data, network, scaling, dataclasses.replace(cosine, steps=4))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("No module named 'reach'"), "must be there to play in, .*'reach'"),
        (OSError("MuJoCo is missing"), r"there by pip install 'gymnasium\[mujoco\]' to play in"),
    ],
)
def test_data_are_learned_from_without_their_environment(tmp_path, error, told):
    def fails():
        raise error

    data, network, scaling = playable()
    data = dataclasses.replace(data, make_env=fails)
    with pytest.raises(InvalidInput, match=told):
        train_decision_transformer(data, network, scaling, config(tmp_path))
    nothing = config(tmp_path, evaluation_episodes=0)
    run = train_decision_transformer(data, network, scaling, nothing)
    assert "last" not in summary_of(run) and (run.folder.export / "1").exists()

    data, network, _ = playable()
    run = train_decision_transformer(data, network, scaling, config(tmp_path))
    assert summary_of(run)["last"].keys() == {"5", "20"}


def test_the_best_weights_are_asked_for_what_they_were_chosen_for(tmp_path):
    """Once, for the largest return of the day, with weights that another one had chosen."""
    data, network, scaling = playable()
    settings = config(tmp_path)
    found = summary_of(train_decision_transformer(data, network, scaling, settings))
    assert found["best"].keys() == {"20"}
    _, network, _ = playable()
    settings = dataclasses.replace(settings, targets=(5.0,))
    found = summary_of(train_decision_transformer(data, network, scaling, settings))
    assert found["last"].keys() == {"5"} and found["best"].keys() == {"20"}


class PaysThirds(Pays):
    """Returns that six digits do not hold: 2/3 in the mean, whatever is done."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 2 / 9, *rest


def test_the_best_weights_of_a_stopped_run_are_those_of_a_whole_one(tmp_path):
    """Once, what was reached was read from six digits, and the same return was less than it."""
    kept = []
    for name, parts in (("whole", [6]), ("parts", [2, 6])):
        for steps in parts:
            data, network, scaling = playable()
            data = dataclasses.replace(data, make_env=PaysThirds)
            settings = config(tmp_path / name, steps=steps)
            run = train_decision_transformer(data, network, scaling, settings)
        kept.append(dict(np.load(run.folder.path / "best.npz")))
    assert kept[0].keys() == kept[1].keys()
    for array, value in kept[0].items():
        np.testing.assert_array_equal(kept[1][array], value, err_msg=array)
    np.testing.assert_array_equal(kept[0]["arr_0"], network.get_weights()[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data, scaling: {"data": ends_otherwise(data)}, "ends is "),
        (
            lambda data, scaling: {"scaling": dataclasses.replace(scaling, return_scale=7.0)},
            r"scaling\.returns is '[0-9]+' there and '7' here",
        ),
    ],
)
def test_data_that_end_otherwise_and_another_scaling_are_another_run(tmp_path, change, message):
    """Once, such a run was gone on with, or said to be trained already."""
    data, network, scaling = playable()
    train_decision_transformer(data, network, scaling, config(tmp_path))
    file = tmp_path / "runs" / "run" / "config.json"
    _, network, _ = playable()
    others = {"data": data, "network": network, "scaling": scaling, **change(data, scaling)}
    with pytest.raises(InvalidInput, match=message):
        train_decision_transformer(**others, config=config(tmp_path))
    older = json.loads(file.read_text())
    file.write_text(json.dumps({k: v for k, v in older.items() if k not in ("ends", "scaling")}))
    train_decision_transformer(**others, config=config(tmp_path))


def ends_otherwise(data):
    episodes = [dataclasses.replace(e, terminated=not e.terminated) for e in data.episodes]
    return dataclasses.replace(data, episodes=tuple(episodes))
