"""The script with toy settings, from data to a served policy, and its errors."""

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest
from made_up_episodes import write_minari

from rrl_tf.errors import InvalidInput
from rrl_tf.export import load_policy
from rrl_tf.offline import (
    DecisionTransformerAgent,
    Windows,
    advantages,
    load_episodes,
    train_decision_transformer,
)
from rrl_tf.offline.decision_transformer import compile_network
from rrl_tf.offline.networks import TRANSFORMER_FIELDS, make_network, make_scaling
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
        env="CartPole-v1",
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
TOY_CLONING = {n: value for n, value in TOY.items() if n not in TRANSFORMER_FIELDS}
QUICK = {"model": "behavior_cloning", "evaluate_every": 0, "targets": (5.0,)}
"""Options for tests that do not depend on the network."""


def tiny(recorded, tmp_path, **changes):
    """Return a toy configuration for recorded episodes."""
    places = {"data": f"minari:{recorded}", "runs": str(tmp_path)}
    toy = TOY_CLONING if "model" in changes else TOY
    return dataclasses.replace(script.DOORKEY, **{**places, **toy, **changes})


def summary_of(run):
    return json.loads((run.folder.path / "evaluation.json").read_text())


def test_run_exports_a_policy_that_can_be_served(recorded, tmp_path):
    run = script.main(tiny(recorded, tmp_path))
    summary = summary_of(run)
    assert summary["step"] == 4
    assert summary["last"].keys() == {"5", "20"} and summary["best"].keys() == {"20"}
    assert (run.folder.figures / "targets.png").exists()
    served = load_policy(run.folder.export / "1")
    action = WindowSession(served, target_return=20.0).act(np.zeros(4, "float32"))
    assert action in (0, 1)
    served.close()


def test_run_equals_fit_with_the_same_windows(recorded, tmp_path):
    """Logging, checkpoints and evaluation must not change the weights."""
    choices = {"model": "behavior_cloning", "sampling": "returns", "start_fraction": 0.2}
    config = tiny(recorded, tmp_path, warmup_steps=3, **choices)
    run = script.main(config)
    data = load_episodes(config.data)
    scaling = make_scaling(config, data)
    keras.utils.set_random_seed(config.seed)
    network = make_network(config, data, scaling)
    compile_network(network, config)
    windows = Windows(config.split(data)[0], 1, "returns", 0.2)
    batches = windows.dataset(config.batch_size, scaling, config.seed)
    network.fit(batches, steps_per_epoch=4, shuffle=False, verbose=0)
    for ours, plain in zip(run.model.get_weights(), network.get_weights()):
        np.testing.assert_allclose(ours, plain, atol=1e-6)


def assert_close(found, expected):
    """Compare nested dicts whose numbers may differ by rounding, as sums may on some CPUs."""
    assert found == keras.tree.map_structure(
        lambda x: pytest.approx(x, rel=1e-4) if isinstance(x, float) else x, expected
    )


def test_agent_equals_the_script(recorded, tmp_path):
    options = {"log_every": 2, "warmup_steps": 2, "targets": (5.0, 20.0), "seed": 3}
    options |= {"evaluation_episodes": 2, "logger": ("csv",), "context_length": 4, "num_blocks": 1}
    source, folders = f"minari:{recorded}", {name: str(tmp_path / name) for name in ("a", "b")}
    config = dataclasses.replace(script.FAST, data=source, runs=folders["a"], steps=4, **options)
    run = script.main(config)
    agent = DecisionTransformerAgent(source, runs=folders["b"], **options).learn(4)
    assert agent.config.path.name == config.path.name
    for ours, scripts in zip(agent.network.get_weights(), run.model.get_weights(), strict=True):
        np.testing.assert_allclose(ours, scripts, atol=1e-6)
    assert_close(agent.evaluate([5.0, 20.0], episodes=2), summary_of(run)["last"])
    assert_close(summary_of(agent.run), summary_of(run))
    details = []
    for folder in (agent.run.folder.export, run.folder.export, tmp_path / "mine"):
        version = agent.export(folder) if folder.name == "mine" else folder / "1"
        details.append(json.loads((version / "assets.extra" / "policy.json").read_text()))
    assert_close(details[0], details[1])
    assert_close(details[0], details[2])


@pytest.mark.parametrize("positions", ["episode", "window"])
def test_positions_select_the_position_embedding(recorded, tmp_path, positions):
    config = tiny(recorded, tmp_path, positions=positions)
    data = load_episodes(config.data)
    network = make_network(config, data, make_scaling(config, data))
    network.build()
    assert network.positions == positions
    size = {"episode": 1024, "window": config.context_length}[positions]
    assert network.embedding.timestep.input_dim == size


def test_resumed_run_has_the_weights_of_an_uninterrupted_run(recorded, tmp_path):
    whole = tiny(recorded, tmp_path, name="whole", **QUICK)
    expected = script.main(whole).model
    parts = dataclasses.replace(whole, name="parts")
    script.main(dataclasses.replace(parts, steps=2))
    run = script.main(parts)
    assert summary_of(run)["step"] == 4
    for a, b in zip(run.model.get_weights(), expected.get_weights()):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_behavior_cloning_trains_on_the_best_episodes(recorded, tmp_path):
    config = tiny(recorded, tmp_path, model="behavior_cloning", best_fraction=0.4, steps=2)
    summary = summary_of(script.main(config))
    assert len(summary["last"]) == 1  # it has no target returns


def test_dense_policy_plays_the_best_return_by_default(recorded_torques, tmp_path, recwarn):
    """The policy reads the return of the whole episode and models clipped torques."""
    choices = {"return_conditioned": True, "condition": "return"}
    choices |= {"start_steps": 3, "start_fraction": 0.5}
    choices |= {"distribution": "censored_normal", "return_power": 2.0, "sampling": "returns"}
    config = tiny(recorded_torques, tmp_path, model="behavior_cloning", **choices)
    config = dataclasses.replace(config, targets=(-1500.0, -900.0))
    run = script.main(config)
    assert not [each for each in recwarn if "bounds" in str(each.message)]
    assert summary_of(run)["last"].keys() == {"-1500", "-900"}
    served = load_policy(run.folder.export / "1")
    session, data = WindowSession(served), load_episodes(config.data)
    best = config.split(data)[0].returns().max()
    explicit = WindowSession(served, target_return=best)
    for reward in (0.0, -5.0):  # not subtracted from the target
        observation = np.ones(3, "float32")
        np.testing.assert_array_equal(
            session.act(observation, reward), explicit.act(observation, reward)
        )
    served.close()


def test_advantages_are_learned_and_a_noise_scale_is_chosen(recorded_torques, tmp_path, capsys):
    choices = {"return_conditioned": True, "condition": "return", "sampling": "returns"}
    choices |= {"distribution": "censored_normal", "noise_scale": 0.25}
    plain = {"evaluate_every": 0, "targets": (-900.0,), "model": "behavior_cloning", **choices}
    one = script.main(tiny(recorded_torques, tmp_path, name="plain", **plain))
    assert "noise_scales" not in summary_of(one)
    more = {"advantage_power": 2.0, "noise_scales": (0.0, 1.0)}
    config = tiny(recorded_torques, tmp_path, name="more", **plain, **more)
    run = script.main(config)
    tried = summary_of(run)["noise_scales"]
    assert tried.keys() == {"0", "1"}
    chosen = float(max(tried, key=tried.get))
    assert run.model.noise_scale == summary_of(run)["chosen_noise"] == chosen
    details = json.loads((run.folder.export / "1" / "assets.extra" / "policy.json").read_text())
    assert details["noise_scale"] == chosen
    for text in (capsys.readouterr().out, (run.folder.path / "report.html").read_text()):
        assert f"noise scale {chosen:g}; returns of all scales: 0: -" in text
    assert script.main(config).model.noise_scale == chosen  # also after the run
    pairs = zip(one.model.get_weights(), run.model.get_weights())
    assert any(not np.allclose(ours, other) for ours, other in pairs)


@pytest.mark.slow  # it trains
def test_preset_dense_learns_discrete_actions(recorded, tmp_path):
    toy = {**TOY_CLONING, "data": f"minari:{recorded}", "runs": str(tmp_path), "evaluate_every": 0}
    config = dataclasses.replace(script.DENSE, **toy)
    run = script.main(config)
    assert run.model.discrete and run.model.action_distribution is None
    assert "noise_scales" not in summary_of(run)
    played_on = script.main(dataclasses.replace(config, fine_tune=20))
    assert played_on.folder.path.name == "toy-fine-tuned"


@pytest.mark.filterwarnings("ignore:.*at their bounds")
def test_noise_scales_need_a_distribution(recorded_torques, tmp_path):
    config = tiny(recorded_torques, tmp_path, noise_scales=(0.0, 1.0), **QUICK)
    with pytest.raises(InvalidInput, match="`noise_scales` must be empty for a network without"):
        script.main(config)
    assert not list(tmp_path.iterdir())
    for scale in (-1.0, 2.0, float("nan")):
        with pytest.raises(InvalidInput, match="`noise_scales` must be from 0 to 1; received"):
            dataclasses.replace(config, noise_scales=(0.0, scale))


def test_squared_error_warns_of_actions_at_their_bounds(recorded_torques, tmp_path):
    with pytest.warns(UserWarning, match="of a dimension are at their bounds"):
        script.main(tiny(recorded_torques, tmp_path, steps=2, **QUICK))


def test_presets_have_their_learning_rates():
    constant = script.MIN_DT.optimizer_options(script.MIN_DT.steps)["learning_rate"]
    assert float(constant(0)) == pytest.approx(1e-8, rel=1e-3)
    assert float(constant(15_000)) == pytest.approx(1e-4)
    cosine = script.FAST.optimizer_options(script.FAST.steps)["learning_rate"]
    assert float(cosine(script.FAST.warmup_steps)) == pytest.approx(script.FAST.learning_rate)
    assert float(cosine(script.FAST.steps)) == pytest.approx(0, abs=1e-9)


def test_default_name_has_preset_data_and_seed():
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
        ({"batch_size": 0}, "`batch_size` must be greater than 0"),
        ({"best_fraction": 0.0}, "`best_fraction` must be greater than 0"),
        ({"held_out": 1.5}, "`held_out` must be from 0 to 1"),
        ({"targets": (float("nan"),)}, "`targets` must be finite"),
        ({"return_scale": float("nan")}, "`return_scale` must be greater than 0; received nan"),
        ({"dropout": float("nan")}, "`dropout` must be from 0 to 1; received nan"),
        ({"dropout": 1.0}, r"dropout. must be in \[0, 1\); received 1"),
        ({"noise_scale": -1.0}, "`noise_scale` must be from 0 to 1; received -1.0"),
        ({"exploration": -1.0}, "`exploration` must be at least 0 and finite; received -1.0"),
        (
            {"fine_tune": 5, "evaluation_episodes": 0},
            "`fine_tune` must be 0 without evaluation_episodes",
        ),
        ({"exploration": 0.2}, "`exploration` must be None without fine_tune; received 0.2"),
        (
            {"weight_decay": float("nan")},
            "`weight_decay` must be at least 0 and finite; received nan",
        ),
        ({"schedule": "cosine"}, "`warmup_steps` must be less than the 4 steps"),
        ({"data": "nowhere"}, r"`source` \(option --data\) must be minari:ID"),
        ({"held_out": 0.99}, "must have more episodes .* received 8"),
        ({"network": "nope"}, "nope"),
        ({"preprocessor": "one_hot"}, "codes"),
        ({"positions": "place"}, r"positions. must be one of .*received 'place'"),
        ({"sampling": "rows"}, "`sampling` must be one of"),
        ({"condition": "reward"}, "`condition` must be one of .*received 'reward'"),
        (
            {"members": 3, **QUICK},
            "`batch_size` must be a multiple of `members`; received 64 and 3",
        ),
        ({"width": 512, "positions": "window", **QUICK}, "`width`, `positions` must be unchanged"),
        ({"noise_scale": 0.5}, "`noise_scale` must be 1 for .*; received 0.5"),
        (
            {"members": 2, "model": "decision_transformer"},
            "`members` must be 1 for decision_transformer",
        ),
        ({"width": 0, **QUICK}, "`width` must be greater than 0; received 0"),
        ({"context_length": 0, **QUICK}, "`context_length` must be greater than 0; received 0"),
        ({"fine_tune": 5, **QUICK}, "`fine_tune` must be 0 without .* a model that is"),
        ({"advantage_trace": 1.5}, "`advantage_trace` must be from 0 to 1; received 1.5"),
        ({"advantage_rounds": 0}, "`advantage_rounds` must be greater than 0; received 0"),
        ({"start_steps": 0}, "`start_steps` must be greater than 0; received 0"),
        ({"return_power": -1.0}, "`return_power` must be at least 0 and finite; received -1.0"),
    ],
)
def test_invalid_values_leave_no_folder(recorded, tmp_path, changes, message):
    with pytest.raises(InvalidInput, match=message):
        script.main(tiny(recorded, tmp_path, **changes))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "preset fast needs `data`, such as minari:FOLDER; received"),
        ("doorkey", "data doorkey needs preprocessor one_hot; received standardise"),
    ],
)
def test_invalid_data_is_not_recorded(tmp_path, monkeypatch, data, message):
    monkeypatch.setattr(collect_dataset, "main", lambda config: pytest.fail("recorded"))
    config = dataclasses.replace(script.PRESETS["fast"], data=data, runs=str(tmp_path))
    with pytest.raises(InvalidInput, match=message):
        script.main(config)
    assert not list(tmp_path.iterdir())


def test_advantages_that_give_no_weights_leave_no_folder(recorded, tmp_path, monkeypatch):
    monkeypatch.setattr(
        advantages, "advantages", lambda data, *_, **more: -1.0 - np.arange(data.steps)
    )
    with pytest.raises(InvalidInput, match=r"with an advantage_power of 1e\+300: `factors`"):
        script.main(tiny(recorded, tmp_path, advantage_power=1e300, **QUICK))
    assert not list(tmp_path.iterdir())


def test_observations_that_cannot_be_exported_leave_no_folder(recorded, tmp_path):
    config = tiny(recorded, tmp_path, **QUICK)
    data = load_episodes(config.data)
    boolean = [dataclasses.replace(e, observations=e.observations > 0) for e in data.episodes]
    data = dataclasses.replace(data, episodes=tuple(boolean))
    scaling = make_scaling(config, data)
    network = make_network(config, data, scaling)
    with pytest.raises(InvalidInput, match="`observation_dtype` must be numeric"):
        train_decision_transformer(data, network, scaling, config)
    assert not list(tmp_path.iterdir())


def test_another_recording_under_the_name_of_doorkey_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    collect_dataset.main(
        collect_dataset.Config(
            env="CartPole-v1",
            policies=("random",),
            episodes=2,
            dataset=collect_dataset.Config().dataset_id,
        )
    )
    config = dataclasses.replace(script.DOORKEY, runs=str(tmp_path / "trained"))
    with pytest.raises(InvalidInput, match=r"received 2 episodes .* in CartPole-v1"):
        script.main(config)
    assert not (tmp_path / "trained").exists()


def test_run_resumes_with_its_own_episodes_and_schedule_only(recorded, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(recorded, data)
    cosine = {"schedule": "cosine", "warmup_steps": 1}
    config = tiny(data, tmp_path / "runs", steps=2, **cosine, **QUICK)
    script.main(config)
    with pytest.raises(InvalidInput, match="steps was 2 and is now 4"):
        script.main(dataclasses.replace(config, steps=4))
    shutil.rmtree(data)
    again = collect_dataset.Config("CartPole-v1", ("random",), episodes=8, seed=1)
    again = dataclasses.replace(again, folder=str(tmp_path / "others"))
    collect_dataset.main(again).rename(data)
    with pytest.raises(InvalidInput, match="dataset was"):
        script.main(config)


def write_numbers(folder, rewards=1.0):
    """Write a data set without an environment; every fourth step has a reward."""
    rng = np.random.default_rng(0)
    episodes = [
        {
            "observations": rng.normal(size=(11, 3)).astype("float32"),
            "actions": rng.uniform(-0.5, 0.5, size=(10, 2)).astype("float32"),
            "rewards": (rewards * (np.arange(first, first + 10) % 4 == 0)).astype("float32"),
            "terminated": True,
        }
        for first in range(0, 60, 10)
    ]
    return write_minari(folder, episodes)


DENSE = {
    "model": "behavior_cloning",
    "distribution": "censored_normal",
    "return_conditioned": True,
    "condition": "return",
    "targets": (5.0,),
    "evaluate_every": 0,
}


@pytest.mark.parametrize(
    ("preset", "rewards", "given", "scale"),
    [("fast", 0.02, None, 0.06), ("dense", 900.0, None, 1000.0), ("fast", 0.02, 5.0, 5.0)],
)
def test_return_scale_is_the_largest_return_up_to_1000(tmp_path, preset, rewards, given, scale):
    source = write_numbers(tmp_path / "data", rewards)
    config = dataclasses.replace(script.PRESETS[preset], data=source, return_scale=given)
    scaling = make_scaling(config, load_episodes(source))
    np.testing.assert_allclose(scaling.return_scale, scale, rtol=1e-6)


def test_the_default_return_scale_is_that_of_the_condition(tmp_path):
    data = load_episodes(write_numbers(tmp_path / "data"))
    rewards = np.pad(np.array([-100, 100, 0.001], "float32"), (0, 7))
    episodes = tuple(dataclasses.replace(each, rewards=rewards) for each in data.episodes)
    data = dataclasses.replace(data, episodes=episodes)
    total = abs(float(rewards.sum(dtype="float64")))
    for preset, scale in (("fast", 100.001), ("dense", total)):
        scaling = make_scaling(script.PRESETS[preset], data)
        assert scaling.return_scale == pytest.approx(scale, rel=1e-5)


def test_fine_tuning_without_an_environment_leaves_no_folder(tmp_path):
    data = write_numbers(tmp_path / "data")
    with pytest.raises(InvalidInput, match="fine_tune needs data with an environment; received mi"):
        script.main(tiny("", tmp_path / "runs", **DENSE, fine_tune=5, data=data))
    assert not (tmp_path / "runs").exists()


def test_noise_scales_without_an_environment_warn(tmp_path):
    data = write_numbers(tmp_path / "data")
    with pytest.warns(UserWarning, match="no effect without an environment; the noise scale .* 1"):
        run = script.main(tiny("", tmp_path, **DENSE, noise_scales=(0.0, 1.0), data=data))
    assert "chosen_noise" not in summary_of(run)
    assert (run.folder.export / "1").exists()
