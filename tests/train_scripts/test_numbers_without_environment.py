"""The Decision Transformer's script on files of numbers, without an environment."""

import dataclasses
import json

import h5py
import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.offline import load_episodes
from train_scripts import train_decision_transformer as script

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]


def write_numbers(path, rewards=1.0, observed="float32"):
    """A file of D4RL without an environment; every fourth action went better than the others."""
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file["observations"] = rng.normal(size=(60, 3)).astype(observed)
        file["actions"] = rng.uniform(-0.5, 0.5, size=(60, 2)).astype("float32")
        file["rewards"] = (rewards * (np.arange(60) % 4 == 0)).astype("float32")
        file["terminals"] = np.arange(60) % 10 == 9
    return f"hdf5:{path}"


DENSE = {
    "name": "toy",
    "preprocessor": "standardise",
    "model": "behavior_cloning",
    "distribution": "censored_normal",
    "return_conditioned": True,
    "condition": "return",
    "steps": 4,
    "log_every": 2,
    "checkpoint_every": 2,
    "evaluate_every": 0,
    "evaluation_episodes": 2,
    "progress_episodes": 1,
    "held_out": 0.2,
    "targets": (5.0,),
    "schedule": "constant",
}


def dense(tmp_path, data, **changes):
    places = {"data": data, "runs": str(tmp_path / "runs")}
    return dataclasses.replace(script.DOORKEY, **{**DENSE, **changes, **places})


@pytest.mark.parametrize(
    ("preset", "rewards", "given", "scale"),
    [("fast", 0.02, None, 0.06), ("dense", 900.0, None, 1000.0), ("fast", 0.02, 5.0, 5.0)],
)
def test_returns_are_divided_by_their_largest_up_to_a_thousand(
    tmp_path, preset, rewards, given, scale
):
    """A network that is told hundredths of a thousandth can't tell one return from another."""
    source = write_numbers(tmp_path / "numbers.hdf5", rewards)
    config = dataclasses.replace(script.PRESETS[preset], data=source, return_scale=given)
    scaling = script.make_scaling(config, load_episodes(source))
    np.testing.assert_allclose(scaling.return_scale, scale, rtol=1e-6)


@pytest.mark.parametrize(
    ("rewards", "changes", "message"),
    [
        (3e38, {}, r"numbers\.hdf5: returns of 9e\+38, .*; received return_scale=1000.0"),
        (1.0, {"fine_tune": 5}, "fine_tune needs data with an environment; received hdf5:"),
    ],
)
def test_data_that_cannot_be_learned_from_leave_nothing_behind(tmp_path, rewards, changes, message):
    data = write_numbers(tmp_path / "numbers.hdf5", rewards)
    with pytest.raises(InvalidInput, match=message) as raised:
        script.main(dense(tmp_path, data, **changes))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "runs").exists()


def test_without_an_environment_no_noise_is_tried_and_that_is_said(tmp_path):
    """What was seen as booleans is exported as numbers; once, that failed after the training."""
    data = write_numbers(tmp_path / "numbers.hdf5", observed=bool)
    with pytest.warns(UserWarning, match="not tried, as the data have no environment; 1 of the"):
        run = script.main(dense(tmp_path, data, played_noises=(0.0, 1.0)))
    assert "chosen_noise" not in json.loads((run.folder.path / "evaluation.json").read_text())
    assert (run.folder.export / "1").exists()
