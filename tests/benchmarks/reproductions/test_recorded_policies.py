"""What recorded policies play: which there are, and how an action is chosen in each way."""

import numpy as np
import pytest

from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only


@pytest.fixture
def benchmark():
    from benchmarks.reproductions import recorded_policies

    return recorded_policies


def test_every_policy_of_a_recipe_is_played_at_its_noise(benchmark):
    found = benchmark.recorded()
    assert found["Walker2d-v5", "tqc", 0.4] == ["medium", "medium-replay", "medium-expert"]
    assert found["Walker2d-v5", "cs285_expert", 0.1] == ["medium-expert", "expert"]
    assert found["Hopper-v5", "hopper_10k", 0.4] == ["medium-replay"]
    assert found["HalfCheetah-v5", "halfcheetah_100k", 0.4] == ["medium", "medium-replay"]
    assert {name for name, *_ in found} == {"Walker2d-v5", "Hopper-v5", "HalfCheetah-v5"}


def test_the_mean_under_the_noise_is_that_of_many_clipped_draws(benchmark):
    def act(observation):
        return observation

    means = np.array([[0.0, 0.9, -1.4]])
    played = {way: benchmark.Recorded(act, 0.3, choose) for way, choose in benchmark.WAYS.items()}
    for policy in played.values():
        policy.begin(None, [0])
    np.testing.assert_allclose(played["without noise"].act(means, None), [[0.0, 0.9, -1.0]])
    draws = played["with it"].act(np.repeat(means, 20_000, axis=0), None)
    assert np.abs(draws).max() == 1.0 and draws[:, 0].std() == pytest.approx(0.3, rel=0.05)
    mean = played["mean under it"].act(means, None)
    np.testing.assert_allclose(mean, [draws.mean(axis=0)], atol=0.01)


def test_a_row_says_what_was_played(benchmark, tmp_path, monkeypatch):
    """Pendulum in Walker2d's place, which needs MuJoCo."""
    np.savez(tmp_path / "still.npz", W0=np.zeros((3, 1)), b0=np.zeros(1))
    recorded = {("Pendulum-v1", "still", 0.2): ["medium"]}
    monkeypatch.setattr(benchmark, "recorded", lambda: recorded)
    config = benchmark.Config(policy_folder=str(tmp_path), episodes=2)
    [row] = benchmark.main(config).rows
    assert row["policy (environment)"] == "still (Pendulum-v1)" and row["noise"] == "0.2"
    alone, noisy = row["without noise"], row["with it"]
    assert alone == row["mean under it"]  # of no torque, which is not near a bound
    assert noisy != alone and float(noisy.split()[0].replace(",", "")) < 0


def test_a_policy_that_is_missing_is_told_before_any_is_played(benchmark, tmp_path, monkeypatch):
    np.savez(tmp_path / "still.npz", W0=np.zeros((3, 1)), b0=np.zeros(1))
    recorded = {("Pendulum-v1", name, 0.2): ["medium"] for name in ("still", "absent")}
    monkeypatch.setattr(benchmark, "recorded", lambda: recorded)
    monkeypatch.setattr(benchmark, "play_episodes", lambda *played: pytest.fail("was played"))
    with pytest.raises(InvalidInput, match=r"absent\.npz must be a file"):
        benchmark.main(benchmark.Config(policy_folder=str(tmp_path), episodes=1))
