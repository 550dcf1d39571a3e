"""POPGym environments: task, training and served policy."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces.utils import flatten

from rrl_tf.errors import InvalidInput

popgym = pytest.importorskip("popgym.envs")
pytestmark = [
    pytest.mark.tf_only,
    pytest.mark.usefixtures("few_pictures"),
    # Gymnasium's checker warns about CountRecall and MultiarmedBandit.
    pytest.mark.filterwarnings("ignore:.*The infos returned by"),
]
NAMES = [spec["id"] for spec in popgym.ALL.values()]
CONTINUOUS = [name for name in NAMES if "Pendulum" in name]
DISCRETE = [name for name in NAMES if name not in CONTINUOUS]
SPREAD = {
    "popgym-AutoencodeEasy-v0": "lstm-dense",  # a Tuple
    "popgym-ConcentrationEasy-v0": "none-dense",  # a MultiDiscrete
    "popgym-MineSweeperMedium-v0": "lstm-dense",  # a Discrete; actions of two numbers
    "popgym-PositionOnlyCartPoleHard-v0": "none-dense",  # a Box
}
"""One environment for each kind of observation space, with its network."""


def test_there_are_36_environments_with_discrete_actions():
    assert (len(DISCRETE), len(CONTINUOUS)) == (36, 6)


@pytest.mark.parametrize("name", DISCRETE)
def test_network_observes_what_gymnasium_flattens(name):
    from rrl_tf.envs import gymnasium_task

    task = gymnasium_task(f"popgym:{name}")
    env, raw = task.make_env(), gymnasium.make(name).unwrapped
    packed, expected = env.reset(seed=3)[0], raw.reset(seed=3)[0]
    for number in (task.num_actions - 1, 1):
        action = np.array(task.env_actions[number]) if task.env_actions else number
        packed, *outcome = env.step(number)
        expected, *expected_outcome = raw.step(action)
        assert outcome[:3] == expected_outcome[:3]
        encoded = task.preprocessor(packed[None])
        parts = encoded.values() if isinstance(encoded, dict) else [encoded]
        flat = np.concatenate([np.ravel(part) for part in parts])
        np.testing.assert_array_equal(flat, flatten(raw.observation_space, expected))


def trained(name, runs, network="lstm-dense", **options):
    from train_scripts import train_recurrent

    config = train_recurrent.Config(
        environment="gymnasium",
        env=f"popgym:{name}",
        runs=str(runs),
        network=network,
        steps=24,
        num_envs=2,
        batch_size=2,
        learning_starts=16,
        updates_per_step=0.25,
        burn_in=1,
        unroll_length=2,
        n_step=1,
        sequence_period=2,
        evaluate_every=24,
        evaluation_episodes=2,
        max_steps=6,
        **options,
    )
    return train_recurrent.main(config)[0].folder


def actions_of(client, name):
    """Play the policy of a client in the original POPGym environment; return its actions."""
    from serving.sessions import MemorySession

    env, session = gymnasium.make(name).unwrapped, MemorySession(client)
    observation, reward = env.reset(seed=0)[0], 0.0
    actions = []
    for _ in range(4):
        action = session.act(observation, reward=reward)
        action = np.asarray(action).astype(env.action_space.dtype)
        assert env.action_space.contains(action)
        actions.append(action.tolist())
        observation, reward, *_ = env.step(action)
    return actions


@pytest.mark.parametrize("name", SPREAD)
def test_environment_is_trained_and_served(tmp_path, name):
    from rrl_tf.export import load_policy
    from serving.client import connect
    from serving.local import free_ports
    from serving.server import Flags, running

    folder = trained(name, tmp_path, SPREAD[name])
    expected = actions_of(load_policy(folder.export), name)
    (port,) = free_ports(1)
    flags = Flags(model_base_path=str(folder.export), model_name="p", port=0, rest_api_port=port)
    with running(flags), connect(f"http://localhost:{port}", "p", timeout=60) as client:
        assert actions_of(client, name) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", DISCRETE)
def test_every_environment_is_trained_and_its_policy_acts(tmp_path, name):
    from rrl_tf.export import load_policy

    folder = trained(name, tmp_path)
    assert len(actions_of(load_policy(folder.export), name)) == 4
    assert "eval/return" in (folder.path / "evaluation.json").read_text()


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_actions_are_refused_before_there_is_a_run(tmp_path, name):
    with pytest.raises(InvalidInput, match=r"must be Discrete, or a MultiDiscrete .*received Box"):
        trained(name, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
