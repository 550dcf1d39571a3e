"""What is recorded, trained and compared offline: tables of small runs, and of what is missing."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks import runs
from benchmarks.reproductions import d4rl, fine_tuning, offline, offline_ablations, stitching
from rrl_tf.envs.minigrid_view import object_cells
from rrl_tf.errors import InvalidInput
from rrl_tf.offline import Scaling
from rrl_tf.offline.advantages import advantages
from train_scripts import collect_dataset

pytestmark = [
    pytest.mark.tf_only,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.usefixtures("few_pictures"),
]


@pytest.fixture
def published(monkeypatch, tmp_path):
    """Results go to a folder of the test, and the docs stay as they are."""
    monkeypatch.setattr(runs, "fill", lambda: None)
    for module in (offline, fine_tuning, d4rl, stitching):
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def test_data_that_cannot_be_had_are_named_and_published_scores_stand(published, capsys, tmp_path):
    published.mkdir()
    d4rl.main(d4rl.Config(source=f"hdf5:{tmp_path}/walker2d-{{}}.hdf5"))
    said = capsys.readouterr().out
    for name in d4rl.SETS:
        assert f"missing: hdf5:{tmp_path}/walker2d-{name}.hdf5" in said
    written = (published / "table.md").read_text()
    assert "| Decision Transformer, CORL | 67.6 | 59.9 | 107.1 |" in written
    assert "ours" not in written


def test_a_row_of_d4rl_is_its_score_where_it_did_best(published):
    published.mkdir()
    for seed, scores in enumerate(((70.0, 80.0), (60.0, 90.0))):
        last = {
            target: {"return": 40 * score, "d4rl_score": score}
            for target, score in zip(("1000", "4000"), scores)
        }
        content = {"data": "d4rl_mujoco_walker2d/v2-medium", "preset": "fast", "last": last}
        content["data_return"] = {"mean": 2800.0, "max": 4200.0}
        runs.write_json(published / f"fast-x-seed{seed}.json", content)
    assert "| ours, fast, 2 seeds | 85.0 (80.0 to 90.0) |" in d4rl.table(published)


def test_recordings_of_one_name_are_not_mixed(published):
    published.mkdir()
    for seed, (mean, target) in enumerate(((207.0, "5370"), (208.0, "5440"), (207.0, "5370"))):
        content = {
            "data": "local walker2d/medium-replay-v0",
            "environment": "Walker2d-v5",
            "data_return": {"mean": mean, "max": float(target)},
            "preset": "bc-10",
            "step": 10,
            "action_error": {"quarter_1": 0.1},
            "last": {target: {"return": 100.0 * (1 + seed)}},
        }
        runs.write_json(published / f"bc-10-x-seed{seed}.json", content)
    first, second = offline.table(published).splitlines()[2:]
    assert "| 207, 5,370 | bc-10 | 10 | 2 |" in first and "| 200 (100 to 300) |" in first
    assert "| 208, 5,440 | bc-10 | 10 | 1 |" in second and "| 200 |" in second


def test_a_row_is_of_the_highest_return_that_all_seeds_were_asked_for_and_tells_a_better(published):
    published.mkdir()
    asked = ({"0": 700.0, "200": 600.0, "400": 500.0}, {"0": 500.0, "400": 300.0})
    for seed, returns in enumerate(asked):
        content = {
            "data": "local hopper/medium-v0",
            "environment": "Hopper-v5",
            "data_return": {"mean": 100.0, "max": 400.0},
            "preset": "fast",
            "step": 10,
            "action_error": {"quarter_1": 0.1},
            "last": {target: {"return": reached} for target, reached in returns.items()},
        }
        runs.write_json(published / f"fast-x-seed{seed}.json", content)
    [row] = offline.table(published).splitlines()[2:]
    assert "| 400 | 400 (300 to 500) |  | 0: 600 (500 to 700) | 0.1 |" in row
    figure = offline.returns_figure(published, "hopper")
    marks = {tuple(line.get_xdata()) for line in figure.axes[0].lines if len(line.get_xdata()) == 2}
    assert (0.0, 400.0) in marks


@pytest.mark.parametrize(("updates", "said"), [(None, []), (500, ["--steps=500"])])
def test_a_run_may_be_trained_for_fewer_updates(published, monkeypatch, updates, said):
    asked, kept = [], []
    monkeypatch.setattr(runs, "train", lambda config, *arguments: asked.append(arguments))
    monkeypatch.setattr(runs, "keep", lambda run, results, **more: kept.append(results))
    offline.train(offline.Config(updates=updates), "pendulum", "min-dt", 3)
    [(_, *seed_of_preset, data, more)] = [(*each[:4], each[4:]) for each in asked]
    assert (*seed_of_preset, data) == ("min-dt", 3, "--data=pendulum") and [*more] == said
    assert kept == [published]  # once, a test's own run was kept among the docs' results


@pytest.mark.parametrize("benchmark", [offline, d4rl, fine_tuning])
def test_all_that_train_offline_take_targets_and_updates(published, monkeypatch, benchmark):
    """Once, what was told of D4RL's data failed as soon as they could be had."""
    asked = []
    monkeypatch.setattr(runs, "train", lambda config, *arguments: asked.append(arguments))
    monkeypatch.setattr(runs, "keep", lambda run, results, **more: None)
    monkeypatch.setattr(runs, "evaluation", lambda path: {"last": {}})
    config = benchmark.Config(targets=(10.0,), updates=500)
    benchmark.train(config, "pendulum", "min-dt", 3)
    [said] = asked
    expected = ("min-dt", 3, "--data=pendulum", "--targets", "10.0", "--steps=500")
    assert said[1:7] == expected


@pytest.mark.parametrize(
    ("benchmark", "options", "message"),
    [
        (offline, {"jobs": 0}, "jobs must be greater than 0; received 0"),
        (offline, {"updates": 0}, "updates must be greater than 0; received 0"),
        (fine_tuning, {"steps": 0}, "steps must be greater than 0; received 0"),
        (stitching, {"episodes": 0}, "episodes must be greater than 0; received 0"),
        (d4rl, {"source": "x{0"}, r"source must hold \{\}; received 'x\{0'"),
        (offline_ablations, {}, "data must name recorded episodes"),
    ],
)
def test_a_mistake_is_told_before_anything_is_trained(benchmark, options, message):
    with pytest.raises(InvalidInput, match=message):
        benchmark.Config(**options)


def test_what_fine_tuning_gains_stands_beside_what_was_there_before(published):
    published.mkdir()
    for seed, (before, after) in enumerate(((100.0, 130.0), (200.0, 220.0))):
        content = {
            "data": "local walker2d/medium-v0",
            "environment": "Walker2d-v5",
            "data_return": {"mean": 90.0, "max": 300.0},
            "preset": "fast",
            "step": 50_000,
            "before": {"50": {"return": 1.0}, "300": {"return": before}},
            "last": {"299.81": {"return": after}, "310": {"return": after + 5}},
        }
        (published / f"fast-x-seed{seed}-fine-tuned.json").write_text(json.dumps(content))
    row = fine_tuning.table(published).splitlines()[-1]
    assert "| 300 | 150 (100 to 200) | 50,000 | 175 (130 to 220) | 20 % (10 to 30) |" in row


@pytest.mark.parametrize("layout", ["crossing", "fork"])
def test_no_recorded_episode_of_a_maze_goes_the_whole_way(layout):
    data = stitching.maze_pieces(layout, 40)
    assert len(data.episodes) == 40 and len(data.from_start) == 20
    from_a = [episode for episode in data.episodes if episode.observations[0, 1] == 1]
    assert len(from_a) == 20
    assert max(episode.total for episode in from_a) < 1.0
    assert sum(episode.total == 1.0 for episode in data.episodes) > 10
    assert all(env.reset(seed=i)[0][1] == 1 for i, env in enumerate([data.make_env()] * 5))


@pytest.mark.slow  # it trains
def test_values_of_other_episodes_tell_what_a_first_step_is_worth():
    """Exit 3 paid those more that began at A; only who begins at B knows what else is near."""
    data = stitching.maze_pieces("fork", 200)
    firsts = np.cumsum([0] + [len(episode) for episode in data.episodes])[:-1]
    to_3 = np.array([episode.total == 0.4 for episode in data.episodes])
    to_2 = np.array([episode.total == 0.2 for episode in data.episodes])
    slow = stitching.AGENTS["advantages"][1]
    preferred = {}
    for trace in (slow["advantage_trace"], 1.0):
        rounds = slow["advantage_rounds"]
        found = advantages(data, Scaling.of(data), trace=trace, rounds=rounds)[firsts]
        preferred[trace] = 2 if found[to_2].mean() > found[to_3].mean() else 3
    assert preferred == {0.5: 2, 1.0: 3}


def test_pieces_of_doorkey_end_or_begin_with_the_key(monkeypatch, tmp_path):
    recording = collect_dataset.Config(
        policies=("random",), episodes=12, folder=str(tmp_path / "datasets")
    )
    monkeypatch.setitem(stitching.script.RECORDED, "doorkey", dataclasses.asdict(recording))
    data = stitching.doorkey_pieces()
    carries = [
        [
            cells.get("key") == cells["agent"]
            for cells in (object_cells(view, channels=4) for view in episode.observations)
        ]
        for episode in data.episodes
    ]
    firsts = carries[: len(data.from_start)]
    assert firsts and all(not any(each[:-1]) and each[-1] for each in firsts)
    assert all(each[0] for each in carries[len(firsts) :])
    assert not np.any(data.from_start)


def test_one_agent_is_trained_on_pieces(published, tmp_path, monkeypatch):
    monkeypatch.setitem(stitching.MAZE, "steps", 300)
    config = stitching.Config(
        tasks=("crossing",), agents=("dense",), seeds=(0,), episodes=20, runs=str(tmp_path / "runs")
    )
    stitching.main(dataclasses.replace(config))
    [line] = (published / "table.md").read_text().splitlines()[2:]
    assert line.startswith("| crossing | 0.20, 0.20 | dense, told the return | 1 | 1 |")
