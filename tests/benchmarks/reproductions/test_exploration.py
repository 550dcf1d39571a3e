"""The exploration sweep: which states are counted, also by a run that is continued."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.tf_only

TOY = {
    "num_envs": 4,
    "batch_size": 4,
    "max_steps": 10,
    "learning_starts": 20,
    "updates_per_step": 0.1,
    "log_every": 20,
    "evaluate_every": 40,
    "checkpoint_every": 20,
    "evaluation_episodes": 2,
}


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    from benchmarks.reproductions import exploration
    from train_scripts import train_doorkey

    monkeypatch.setattr(exploration, "RESULTS", tmp_path / "results")
    toy = dataclasses.replace(train_doorkey.FAST, **TOY)
    monkeypatch.setitem(train_doorkey.PRESETS, "fast", toy)
    return exploration


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any))
def test_entropy_is_that_of_the_shares(counts):
    from benchmarks.reproductions.exploration import entropy

    shares = [count / sum(counts) for count in counts if count]
    assert entropy(counts) == pytest.approx(-sum(p * np.log(p) for p in shares), abs=1e-12)
    assert entropy([7] * len(counts)) == pytest.approx(np.log(len(counts)))
    assert entropy(np.reshape([0, *counts], (-1, 1))) == pytest.approx(entropy(counts))


def test_the_states_counted_are_those_that_minigrid_is_in(sweep):
    from rrl_tf.envs import enumerate_starts, make_doorkey
    from rrl_tf.envs.doorkey.graph import DoorKeyGraph

    starts = enumerate_starts(5)
    graph = DoorKeyGraph(5)
    counted, state = sweep.CountedStates([graph], len(starts), 5), graph.state_of(starts)
    actions = np.random.default_rng(0).integers(1, 5, size=(6, len(starts)))  # too few for the goal
    for number, action in enumerate(actions.astype("int32")):
        state, *_ = counted.step_and_restart(state, action, (0, number), 0)
    expected, env = np.zeros((5, 5, 4, 2, 3), int), make_doorkey(5)
    for start, way in zip(starts, actions.T):
        env.reset(options={"start": start})
        world = env.unwrapped
        for action in way:
            door = next(each for each in world.grid.grid if each and each.type == "door")
            lock = 2 if door.is_locked else 1 - door.is_open
            place = (*world.agent_pos, world.agent_dir, world.carrying is not None, lock)
            expected[tuple(map(int, place))] += 1
            env.step(int(action))
    np.testing.assert_array_equal(counted.visits.numpy(), expected)
    assert expected[:, :, :, 1].any()


@pytest.mark.slow  # it trains: a minute
def test_a_run_that_is_continued_goes_on_counting(sweep, tmp_path):
    whole = sweep.Config(runs=str(tmp_path / "whole"), steps=80)
    parts = sweep.Config(runs=str(tmp_path / "parts"), steps=40)
    kept = []
    for config in (whole, parts, dataclasses.replace(parts, steps=80)):
        sweep.train(config, "fast", 0.5, 0)
        kept.append(json.loads((sweep.RESULTS / "fast-0.5-seed0.json").read_text()))
    once, before, after = kept
    assert (once["step"], before["step"], after["step"]) == (80, 40, 80)
    assert (after["states"], after["entropy"]) == (once["states"], once["entropy"])
    assert before["entropy"] != after["entropy"] > 0
    assert "| ours | 0.5 | 1 | 80 |" in sweep.table(sweep.RESULTS)
    assert len(sweep.figure(sweep.RESULTS).axes) == 2


def test_a_band_is_over_seeds_that_have_every_epsilon(sweep, tmp_path):
    assert sweep.figure(tmp_path) is None
    for epsilon, seeds in ((0.1, (0, 1)), (0.5, (1, 2))):
        for seed in seeds:
            run = dict.fromkeys((sweep.GREEDY, sweep.NOISY, sweep.TRAINING), seed / 4)
            run |= {"step": 10, "epsilon": epsilon, "first_90": None, "states": 5}
            path = tmp_path / f"fast-{epsilon}-seed{seed}.json"
            path.write_text(json.dumps(run | {"entropy": 2 - epsilon}))
    against_epsilon, against_entropy = sweep.figure(tmp_path).axes
    greedy, _ = against_epsilon.get_lines()
    assert greedy.get_xydata().tolist() == [[0.1, 0.25], [0.5, 0.25]]
    ticks = [text.get_text() for text in against_epsilon.get_xticklabels()]
    assert ticks == ["0.1", "0.5"]
    points = against_entropy.get_lines()[0]
    assert points.get_xdata().tolist() == [1.9, 1.5] and points.get_linestyle() == "None"
    assert sorted(text.get_text() for text in against_entropy.texts) == ["0.1", "0.5"]
    assert "| 2 | 10 | 37.5 % (25.0 to 50.0) |" in sweep.table(tmp_path)
    (tmp_path / "fast-0.5-seed1.json").unlink()
    assert sweep.figure(tmp_path) is None


def test_what_the_table_would_not_show_is_not_trained(sweep, capsys):
    from benchmarks.__main__ import run

    with pytest.raises(SystemExit):
        run("reproductions/exploration", ["--epsilons", "0.3"])
    assert "0.35" in capsys.readouterr().err


def test_a_sweep_that_no_episode_ends_in_says_that_it_is_too_short(sweep, tmp_path):
    config = sweep.Config(steps=20, runs=str(tmp_path / "runs"))
    with pytest.raises(ValueError, match=r"steps must be enough for an episode .*received 20"):
        sweep.train(config, "fast", 0.5, 0)
    assert not (tmp_path / "results").exists()
