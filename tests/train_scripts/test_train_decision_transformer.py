"""The scripts from collecting to serving with toy numbers, and what they refuse."""

import dataclasses
import json

import numpy as np
import pytest

from rrl_tf.data.sources import load_episodes
from rrl_tf.export import load_policy
from serving.sessions import WindowSession
from train_scripts import collect_dataset
from train_scripts import train_decision_transformer as script

pytestmark = [pytest.mark.tf_only, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def recorded(folder):
    config = collect_dataset.Config(
        environment="CartPole-v1",
        policies=("random",),
        episodes=8,
        dataset="tests/cartpole/random-v0",
        folder=str(folder),
    )
    return collect_dataset.main(config)


def tiny(recorded, tmp_path, **changes):
    toy = {
        "data": f"minari:{recorded}",
        "runs": str(tmp_path),
        "name": "toy",
        "preparation": "standardise",
        "width": 16,
        "context_length": 4,
        "steps": 4,
        "log_every": 2,
        "evaluate_every": 2,
        "checkpoint_every": 2,
        "evaluation_episodes": 3,
        "progress_episodes": 2,
        "held_out": 0.3,
        "targets": (5.0, 20.0),
        "schedule": "constant",
    }
    return dataclasses.replace(script.DOORKEY, **{**toy, **changes})


def test_collected_play_is_what_was_played(recorded, folder, capsys):
    data = load_episodes(f"minari:{recorded}")
    assert len(data.episodes) == 8 and data.environment == "CartPole-v1"
    assert all(episode.terminated for episode in data.episodes)
    np.testing.assert_array_equal(data.returns(), [len(episode) for episode in data.episodes])


def test_doorkey_is_recorded_with_its_environment(folder):
    config = collect_dataset.Config(
        policies=("random",), episodes=2, dataset="tests/doorkey-v0", folder=str(folder)
    )
    data = load_episodes(f"minari:{collect_dataset.main(config)}")
    env = data.make_env()
    observation, _ = env.reset(seed=0)
    assert observation.shape == data.episodes[0].observations.shape[1:] == (7, 7, 4)
    assert env.action_space == data.action_space
    env.close()


def test_from_data_to_a_served_policy_and_on(recorded, tmp_path, capsys):
    folder, _ = script.main(tiny(recorded, tmp_path))
    summary = json.loads((folder.path / "evaluation.json").read_text())
    assert summary["step"] == 4
    assert summary["last"].keys() == {"5", "20"} and summary["best"].keys() == {"20"}
    assert (folder.figures / "targets.png").exists()
    served = load_policy(folder.export / "1")
    action = WindowSession(served, target_return=20.0).act(np.zeros(4, "float32"))
    assert action in (0, 1)
    served.close()

    script.main(tiny(recorded, tmp_path))
    assert "is trained already" in capsys.readouterr().out


def test_an_interrupted_run_ends_with_the_same_weights(recorded, tmp_path):
    whole = tiny(recorded, tmp_path, name="whole", evaluate_every=0)
    _, expected = script.main(whole)
    parts = dataclasses.replace(whole, name="parts")
    script.main(dataclasses.replace(parts, steps=2))
    folder, model = script.main(parts)
    assert json.loads((folder.path / "evaluation.json").read_text())["step"] == 4
    assert sorted(path.name for path in folder.export.iterdir()) == ["1", "2"]
    for a, b in zip(model.get_weights(), expected.get_weights()):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_baselines(recorded, tmp_path):
    config = tiny(
        recorded, tmp_path, model="behavior_cloning", context_length=1, best_share=0.4, steps=2
    )
    folder, _ = script.main(config)
    summary = json.loads((folder.path / "evaluation.json").read_text())
    assert len(summary["last"]) == 1  # it does not listen to what is asked for


def test_learning_rates():
    constant = script.learning_rate(script.MIN_DT)
    assert float(constant(0)) == pytest.approx(1e-8, rel=1e-3)
    assert float(constant(15_000)) == pytest.approx(1e-4)
    cosine = script.learning_rate(script.FAST)
    assert float(cosine(script.FAST.warmup_steps)) == pytest.approx(script.FAST.learning_rate)
    assert float(cosine(script.FAST.steps)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 5}, "steps must be a multiple of log_every"),
        ({"progress_episodes": 9}, "progress_episodes must not be more"),
        ({"data": "nowhere"}, "a source is minari:ID"),
        ({"held_out": 0.99}, "needs more of them; received 8"),
    ],
)
def test_mistakes(recorded, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        script.main(tiny(recorded, tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environment": "NoSuch-v0"}, "cannot make the environment"),
        ({"policies": ("nobody",)}, "unknown policy"),
        ({"environment": "DoorKey-6x6", "policies": ("agent",)}, "the agent is for DoorKey-5x5"),
    ],
)
def test_mistakes_in_collecting(folder, changes, message):
    config = collect_dataset.Config(dataset="tests/none-v0", folder=str(folder))
    with pytest.raises(ValueError, match=message):
        collect_dataset.main(dataclasses.replace(config, **changes))
