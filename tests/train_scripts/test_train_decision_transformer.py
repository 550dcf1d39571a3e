"""The script from data to a served policy with toy numbers, and what it refuses."""

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.export import load_policy
from rrl_tf.offline import Windows, advantages, load_episodes
from rrl_tf.offline.decision_transformer import compile_network, train_decision_transformer
from serving.sessions import WindowSession
from train_scripts import collect_dataset
from train_scripts import train_decision_transformer as script

pytestmark = [
    pytest.mark.tf_only,
    pytest.mark.usefixtures("few_pictures"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    config = collect_dataset.Config(
        environment="CartPole-v1",
        policies=("random",),
        episodes=8,
        folder=str(tmp_path_factory.mktemp("datasets")),
    )
    return collect_dataset.main(config)


@pytest.fixture(scope="module")
def recorded_torques(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("datasets"))
    return collect_dataset.main(
        collect_dataset.Config(recipe="pendulum", episodes=2, folder=folder)
    )


TOY = {
    "name": "toy",
    "preprocessor": "standardise",
    "width": 16,
    "num_blocks": 1,
    "context_length": 4,
    "steps": 4,
    "log_every": 2,
    "evaluate_every": 2,
    "checkpoint_every": 2,
    "evaluation_episodes": 2,
    "progress_episodes": 1,
    "held_out": 0.3,
    "targets": (5.0, 20.0),
    "schedule": "constant",
}
IMITATES = {name: value for name, value in TOY.items() if name not in script.OF_TRANSFORMERS}
QUICK = {"model": "behavior_cloning", "evaluate_every": 0, "targets": (5.0,)}
"""Where any network will do."""


def tiny(recorded, tmp_path, **changes):
    places = {"data": f"minari:{recorded}", "runs": str(tmp_path)}
    toy = IMITATES if "model" in changes else TOY
    return dataclasses.replace(script.DOORKEY, **{**places, **toy, **changes})


def summary_of(run):
    return json.loads((run.folder.path / "evaluation.json").read_text())


def test_from_data_to_a_served_policy_and_on(recorded, tmp_path, capsys):
    run = script.main(tiny(recorded, tmp_path))
    summary = summary_of(run)
    assert summary["step"] == 4
    assert summary["last"].keys() == {"5", "20"} and summary["best"].keys() == {"20"}
    assert (run.folder.figures / "targets.png").exists()
    served = load_policy(run.folder.export / "1")
    action = WindowSession(served, target_return=20.0).act(np.zeros(4, "float32"))
    assert action in (0, 1)
    served.close()

    script.main(tiny(recorded, tmp_path))
    assert "is trained already" in capsys.readouterr().out


def test_a_run_is_what_fit_does_with_the_same_windows(recorded, tmp_path):
    """Log, checkpoints, playing and keeping the best change no weight."""
    choices = {"model": "behavior_cloning", "sampling": "returns", "starts": 0.2}
    config = tiny(recorded, tmp_path, warmup_steps=3, **choices)
    run = script.main(config)
    data = load_episodes(config.data)
    scaling = script.make_scaling(config, data)
    keras.utils.set_random_seed(config.seed)
    network = script.make_imitator(config, data, scaling)
    compile_network(network, config)
    windows = Windows(config.split(data)[0], 1, "returns", 0.2)
    batches = windows.dataset(config.batch_size, scaling, config.seed)
    network.fit(batches, steps_per_epoch=4, shuffle=False, verbose=0)
    for ours, plain in zip(run.model.get_weights(), network.get_weights()):
        np.testing.assert_allclose(ours, plain, atol=1e-6)


@pytest.mark.parametrize("positions", ["episode", "window"])
def test_a_transformer_has_the_positions_it_is_asked_for(recorded, tmp_path, positions):
    config = tiny(recorded, tmp_path, positions=positions)
    data = load_episodes(config.data)
    network = script.make_transformer(config, data, script.make_scaling(config, data))
    network.build()
    assert network.positions == positions
    size = {"episode": 1024, "window": config.context_length}[positions]
    assert network.embedding.timestep.input_dim == size


def test_an_interrupted_run_ends_with_the_same_weights(recorded, tmp_path):
    whole = tiny(recorded, tmp_path, name="whole", **QUICK)
    expected = script.main(whole).model
    parts = dataclasses.replace(whole, name="parts")
    script.main(dataclasses.replace(parts, steps=2))
    run = script.main(parts)
    assert summary_of(run)["step"] == 4
    for a, b in zip(run.model.get_weights(), expected.get_weights()):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_a_constant_step_size_needs_no_warm_up(recorded, tmp_path):
    """Once, this was a division by zero."""
    run = script.main(tiny(recorded, tmp_path, warmup_steps=0, steps=2, **QUICK))
    assert float(run.model.optimizer.learning_rate) == pytest.approx(1e-3)


def test_baselines(recorded, tmp_path):
    config = tiny(recorded, tmp_path, model="behavior_cloning", best_share=0.4, steps=2)
    summary = summary_of(script.main(config))
    assert len(summary["last"]) == 1  # it does not listen to what is asked for


def test_a_dense_policy_needs_nobody_to_ask(recorded_torques, tmp_path, recwarn):
    """Told whole returns, with a likelihood for torques that were clipped."""
    choices = {"return_conditioned": True, "condition": "return", "start_steps": 3, "starts": 0.5}
    choices |= {"distribution": "censored_normal", "return_power": 2.0, "sampling": "returns"}
    config = tiny(recorded_torques, tmp_path, model="behavior_cloning", **choices)
    config = dataclasses.replace(config, targets=(-1500.0, -900.0))
    run = script.main(config)
    assert not [each for each in recwarn if "bounds" in str(each.message)]
    assert summary_of(run)["last"].keys() == {"-1500", "-900"}
    served = load_policy(run.folder.export / "1")
    session, data = WindowSession(served), load_episodes(config.data)
    best = config.split(data)[0].returns().max()
    asked = WindowSession(served, target_return=best)
    for reward in (0.0, -5.0):  # which is not subtracted
        observation = np.ones(3, "float32")
        np.testing.assert_array_equal(
            session.act(observation, reward), asked.act(observation, reward)
        )
    served.close()


def test_advantages_count_and_the_noise_is_chosen_in_the_end(recorded_torques, tmp_path, capsys):
    choices = {"return_conditioned": True, "condition": "return", "sampling": "returns"}
    choices |= {"distribution": "censored_normal", "played_noise": 0.25}
    plain = {"evaluate_every": 0, "targets": (-900.0,), "model": "behavior_cloning", **choices}
    one = script.main(tiny(recorded_torques, tmp_path, name="plain", **plain))
    assert "played_noise" not in summary_of(one)
    more = {"advantage_power": 2.0, "played_noises": (0.0, 1.0)}
    config = tiny(recorded_torques, tmp_path, name="more", **plain, **more)
    run = script.main(config)
    tried = summary_of(run)["played_noise"]
    assert tried.keys() == {"0", "1"}
    chosen = float(max(tried, key=tried.get))
    assert run.model.noise_scale == summary_of(run)["chosen_noise"] == chosen
    details = json.loads((run.folder.export / "1" / "assets.extra" / "policy.json").read_text())
    assert details["played_noise"] == chosen
    for said in (capsys.readouterr().out, (run.folder.path / "report.html").read_text()):
        assert f"plays {chosen:g} of the noise; returns of all: 0: -" in said
    assert script.main(config).model.noise_scale == run.model.noise_scale  # of a finished run
    pairs = zip(one.model.get_weights(), run.model.get_weights())
    assert any(not np.allclose(ours, other) for ours, other in pairs)  # they saw other steps


@pytest.mark.slow  # it trains
def test_a_preset_for_clipped_actions_learns_discrete_ones_too(recorded, tmp_path):
    toy = {**IMITATES, "data": f"minari:{recorded}", "runs": str(tmp_path), "evaluate_every": 0}
    config = dataclasses.replace(script.DENSE, **toy)
    run = script.main(config)
    assert run.model.discrete and run.model.action_distribution is None
    assert "played_noise" not in summary_of(run)
    played_on = script.main(dataclasses.replace(config, fine_tune=20))
    assert played_on.folder.path.name == "toy-fine-tuned"


@pytest.mark.filterwarnings("ignore:.*sit at their bounds")
def test_shares_of_a_noise_that_is_not_learned_are_refused(recorded_torques, tmp_path):
    config = tiny(recorded_torques, tmp_path, played_noises=(0.0, 1.0), **QUICK)
    with pytest.raises(InvalidInput, match="played_noises need a distribution"):
        script.main(config)
    assert not list(tmp_path.iterdir())
    for share in (-1.0, 2.0, float("nan")):
        with pytest.raises(InvalidInput, match="played_noises must be from 0 to 1; received"):
            dataclasses.replace(config, played_noises=(0.0, share))


def test_a_point_is_warned_of_actions_at_their_bounds(recorded_torques, tmp_path):
    with pytest.warns(UserWarning, match="of a dimension sit at their bounds"):
        script.main(tiny(recorded_torques, tmp_path, steps=2, **QUICK))


def test_step_sizes_are_those_of_the_originals():
    constant = script.MIN_DT.optimizer_options(script.MIN_DT.steps)["learning_rate"]
    assert float(constant(0)) == pytest.approx(1e-8, rel=1e-3)
    assert float(constant(15_000)) == pytest.approx(1e-4)
    cosine = script.FAST.optimizer_options(script.FAST.steps)["learning_rate"]
    assert float(cosine(script.FAST.warmup_steps)) == pytest.approx(script.FAST.learning_rate)
    assert float(cosine(script.FAST.steps)) == pytest.approx(0, abs=1e-9)


def test_a_run_is_named_after_its_preset_and_data():
    names = {
        "doorkey": "doorkey-seed0",
        "tfds:d4rl_mujoco_walker2d/v2-medium": "doorkey-d4rl_mujoco_walker2d-v2-medium-seed0",
        "minari:runs/datasets/rrl/x/random-v0/": "doorkey-x-random-v0-seed0",
    }
    for data, name in names.items():
        config = dataclasses.replace(script.DOORKEY, data=data)
        assert config.path.name == name and config.path.parent.name == "decision_transformer"
    for preset, data, name in (
        ("dense", "pendulum", "dense-pendulum-seed0"),
        ("dense", "cartpole", "dense-cartpole-seed0"),
        ("pendulum", "pendulum", "pendulum-seed0"),
        ("pendulum", "doorkey", "pendulum-doorkey-seed0"),
    ):
        config = dataclasses.replace(script.PRESETS[preset], data=data)
        assert config.default_name == name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 5}, "steps must be a multiple of log_every"),
        ({"progress_episodes": 3}, "progress_episodes must not be more"),
        ({"batch_size": 10**12}, "batch_size windows must fit in memory .*received 1000000000000"),
        ({"batch_size": 10**30}, "batch_size windows must fit in memory"),
        ({"batch_size": 0}, "batch_size must be greater than 0"),
        ({"best_share": 0.0}, "best_share must be greater than 0"),
        ({"held_out": 1.5}, "held_out must be from 0 to 1"),
        ({"targets": (float("nan"),)}, "targets must be finite"),
        ({"return_scale": 0.0}, "return_scale must be greater than 0; received 0"),
        ({"return_scale": float("nan")}, "return_scale must be greater than 0; received nan"),
        ({"dropout": float("nan")}, "dropout must be from 0 to 1; received nan"),
        ({"dropout": 1.0}, r"dropout. must be in \[0, 1\); received 1"),
        ({"played_noise": -1.0}, "played_noise must be from 0 to 1; received -1.0"),
        ({"exploration": -1.0}, "exploration must be a number from 0 up; received -1.0"),
        ({"fine_tune": 5, "evaluation_episodes": 0}, "fine_tune needs evaluation_episodes"),
        ({"exploration": 0.2}, "exploration needs fine_tune; received 0.2 and 0 steps of it"),
        ({"weight_decay": float("nan")}, "weight_decay must be a number from 0 up; received nan"),
        ({"schedule": "cosine"}, "warmup_steps must be less than the 4 steps"),
        ({"data": "nowhere"}, "a source is minari:ID"),
        ({"held_out": 0.99}, "needs more of them; received 8"),
        ({"network": "nope"}, "nope"),
        ({"context_length": 0}, "context_length"),
        ({"preprocessor": "one_hot"}, "codes"),
        ({"positions": "place"}, r"positions. must be one of .*received 'place'"),
        ({"sampling": "rows"}, "sampling must be one of"),
        ({"condition": "reward"}, "`condition` must be one of .*received 'reward'"),
        ({"members": 3, **QUICK}, "batch_size must be a multiple of members; received 64 and 3"),
        ({"width": 512, "positions": "window", **QUICK}, "width, positions: of a decision_tran"),
        ({"played_noise": 0.5}, "played_noise needs distribution censored_normal; received 0.5"),
        ({"members": 2, "model": "decision_transformer"}, "members must be 1 unless .*received 2"),
        ({"width": 0, **QUICK}, "width must be greater than 0; received 0"),
        ({"context_length": 0, **QUICK}, "context_length must be greater than 0; received 0"),
        ({"fine_tune": 5, **QUICK}, "fine_tune needs a model that is told returns"),
        ({"advantage_trace": 1.5}, "advantage_trace must be from 0 to 1; received 1.5"),
        ({"advantage_rounds": 0}, "advantage_rounds must be greater than 0; received 0"),
        ({"start_steps": 0}, "start_steps must be greater than 0; received 0"),
        ({"return_power": -1.0}, "return_power must be a number from 0 up; received -1.0"),
    ],
)
def test_a_mistake_leaves_nothing_behind(recorded, tmp_path, changes, message):
    with pytest.raises(InvalidInput, match=message):
        script.main(tiny(recorded, tmp_path, **changes))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "preset fast needs data, as minari:FOLDER; received none"),
        ("doorkey", "data doorkey need preprocessor one_hot; received standardise"),
    ],
)
def test_no_agent_is_trained_for_data_that_do_not_suit(tmp_path, monkeypatch, data, message):
    monkeypatch.setattr(collect_dataset, "main", lambda config: pytest.fail("recorded"))
    config = dataclasses.replace(script.PRESETS["fast"], data=data, runs=str(tmp_path))
    with pytest.raises(InvalidInput, match=message):
        script.main(config)
    assert not list(tmp_path.iterdir())


def test_steps_that_cannot_be_weighed_leave_nothing_behind(recorded, tmp_path, monkeypatch):
    """Once, the next command with a smaller power was another configuration than the folder's."""
    monkeypatch.setattr(
        advantages, "advantages", lambda data, *_, **more: -1.0 - np.arange(data.steps)
    )
    with pytest.raises(InvalidInput, match=r"by an advantage_power of 1e\+300: some factors"):
        script.main(tiny(recorded, tmp_path, advantage_power=1e300, **QUICK))
    assert not list(tmp_path.iterdir())


def test_observations_that_cannot_be_exported_are_refused_before_the_training(recorded, tmp_path):
    config = tiny(recorded, tmp_path, **QUICK)
    data = load_episodes(config.data)
    seen = [dataclasses.replace(e, observations=e.observations > 0) for e in data.episodes]
    data = dataclasses.replace(data, episodes=tuple(seen))
    scaling = script.make_scaling(config, data)
    network = script.make_imitator(config, data, scaling)
    with pytest.raises(InvalidInput, match="observation_dtype must be a number's"):
        train_decision_transformer(data, network, scaling, config)
    assert not list(tmp_path.iterdir())


def test_other_play_in_the_place_of_doorkeys_is_refused(tmp_path, monkeypatch):
    """Once, a default training learned CartPole as `doorkey`."""
    monkeypatch.chdir(tmp_path)
    collect_dataset.main(
        collect_dataset.Config(
            environment="CartPole-v1",
            policies=("random",),
            episodes=2,
            dataset=collect_dataset.Config().dataset_id,
        )
    )
    config = dataclasses.replace(script.DOORKEY, runs=str(tmp_path / "trained"))
    with pytest.raises(InvalidInput, match=r"holds 2 episodes .* in CartPole-v1"):
        script.main(config)
    assert not (tmp_path / "trained").exists()


def test_a_run_goes_on_with_its_own_episodes_and_plan_only(recorded, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(recorded, data)
    cosine = {"schedule": "cosine", "warmup_steps": 1}
    config = tiny(data, tmp_path / "runs", steps=2, **cosine, **QUICK)
    script.main(config)
    with pytest.raises(InvalidInput, match="steps is 2 there and 4 here"):
        script.main(dataclasses.replace(config, steps=4))
    shutil.rmtree(data)
    again = collect_dataset.Config("CartPole-v1", ("random",), episodes=8, seed=1)
    again = dataclasses.replace(again, folder=str(tmp_path / "others"))
    collect_dataset.main(again).rename(data)
    with pytest.raises(InvalidInput, match="episodes is"):
        script.main(config)
