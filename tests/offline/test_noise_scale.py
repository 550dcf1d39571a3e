"""The share of the noise that is played is the one that did best, in the graph as well."""

import json
import types

import gymnasium
import numpy as np
import pytest

from rrl_tf.models import BehaviorCloning
from rrl_tf.offline.evaluation import TargetReturns
from rrl_tf.offline.noise_scale import choose_noise, take_up_noise
from rrl_tf.offline.scaling import Scaling
from rrl_tf.offline.trajectory_policy import TrajectoryPolicy

pytestmark = pytest.mark.tf_only


class Pays(gymnasium.Env):
    """One step, which pays the less the further its action is from `wanted`."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, wanted):
        self.wanted = wanted

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, "float32"), {}

    def step(self, action):
        return np.zeros(2, "float32"), -abs(float(action[0]) - self.wanted), True, False, {}


def policy(played_noise=0.0):
    """Its action is 1 without noise, and 0.84 with all of it."""
    model = BehaviorCloning(2, 1, (4,), distribution="censored_normal", noise_scale=played_noise)
    model.build()
    model.networks[0].layers[-1].bias.assign([1.0])
    scaling = Scaling(np.zeros(2, "float32"), np.ones(2, "float32"), 1.0, -np.ones(1), np.ones(1))
    return TrajectoryPolicy(model, scaling)


@pytest.mark.parametrize("wanted, share", [(1.0, 0.0), (0.84, 1.0)])
def test_the_share_that_did_best_is_played(wanted, share):
    play = TargetReturns(policy(), [Pays(wanted)] * 2, [0.0])
    play.means(0.0)  # which traces the policy as it is
    tried = choose_noise(play, (0.0, 0.5, 1.0), episodes=2)
    assert float(max(tried, key=tried.get)) == share
    assert play.policy.model.noise_scale == share
    assert play.means(0.0)["return"] == pytest.approx(0.0, abs=0.01)
    again = BehaviorCloning.from_config(play.policy.model.get_config())
    assert again.action_distribution.noise_scale == share


def test_a_finished_run_has_the_share_that_it_chose(tmp_path):
    run = types.SimpleNamespace(folder=types.SimpleNamespace(path=tmp_path))
    model = policy(played_noise=0.3).model
    (tmp_path / "evaluation.json").write_text("{}")
    take_up_noise(run, model)
    assert model.noise_scale == 0.3
    # As it was given: the names of what was tried have six digits.
    tried = {"played_noise": {"0": -2.0, "0.123457": -1.0}, "chosen_noise": 0.12345678}
    (tmp_path / "evaluation.json").write_text(json.dumps(tried))
    take_up_noise(run, model)
    assert model.noise_scale == 0.12345678 == model.action_distribution.noise_scale
    (tmp_path / "evaluation.json").write_text('{"played_noise": {"0": -2.0, "0.5": -1.0}}')
    take_up_noise(run, model)  # of a run from before the choice was told
    assert model.noise_scale == 0.5
