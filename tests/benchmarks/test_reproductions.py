"""Measurements, data and options of single reproductions."""

import dataclasses
import json

import numpy as np
import pytest
import tyro
from code_blocks import ROOT
from minigrid.core.constants import OBJECT_TO_IDX

from benchmarks.reproduction import Results
from benchmarks.reproductions import (
    doorkey,
    faithfulness,
    memory,
    memory_ablations,
    minigrid,
    mnist,
    nth_farthest,
    offline,
    offline_ablations,
    sort_of_clevr,
    stitching,
)
from rrl_tf.data.mnist import Split
from rrl_tf.data.sort_of_clevr import kinds_of
from rrl_tf.data.sort_of_clevr import sample_sort_of_clevr as make_pictures
from rrl_tf.envs import memory_task
from rrl_tf.envs.minigrid_view import object_cells
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RelationalQNetwork
from train_scripts import collect_dataset, train_decision_transformer, train_recurrent

pytestmark = pytest.mark.tf_only


def test_silenced_queries_make_attention_uniform():
    network = RelationalQNetwork.from_preset("fast", unseen_feature=0, readout_cell=(3, 6))
    network.build((None, 7, 7, 20))
    rng = np.random.default_rng(0)
    for weight in network.weights:
        weight.assign(rng.normal(size=weight.shape))
    view = np.zeros((1, 7, 7, 20), "float32")
    view[:, :3, :, 0] = 1  # not visible
    view[..., 1:] = rng.normal(size=(1, 7, 7, 19))
    for block in network.relations.rounds:
        doorkey.silence_queries(block.attention)
    _, scores = network(view, return_attention_scores=True)
    for name in ("round_1", "round_2"):
        np.testing.assert_allclose(np.asarray(scores[name])[..., 21:], 1 / 28, atol=1e-5)
        assert np.asarray(scores[name])[..., :21].max() == 0


def changed_fields(default, options):
    """Return the names of the fields that options change in a configuration."""
    config = tyro.cli(type(default), default=default, args=list(options))
    before = dataclasses.asdict(default)
    return {name for name, value in dataclasses.asdict(config).items() if value != before[name]}


def named_fields(options):
    """Return the field names in options."""
    names = (option.split("=")[0].lstrip("-").removeprefix("no-") for option in options)
    return {name.replace("-", "_") for name in names}


def test_summary_of_memory_tasks_names_trained_agents():
    assert memory.SUMMARY.keys() == memory.TASKS.keys()
    assert {f"{task}-{agent}" for task, agent in memory.SUMMARY.items()} <= {*memory.TRAININGS}


class GoUp:
    """Policy that walks ahead and turns left at a wall, so it reaches the upper object."""

    turn = 0

    def initial_state(self, episodes):
        return {}

    def __call__(self, observation, state):
        is_wall = observation[:, 3, 5, 0] == OBJECT_TO_IDX["wall"]
        return np.where(is_wall, self.turn, 2), None

    def next_state(self, memory, action, reward, over):
        return {}


class WalkAhead(GoUp):
    """Policy that never turns, so it reaches no object."""

    turn = 2


def test_longer_hallways_are_played_from_starts_of_each_size():
    found = memory.play_lengths(GoUp(), lengths=(17, 19), starts=12)
    for row in found:
        task = memory_task((row["size"],), random_length=row["size"] == 17)
        starts = [each["options"]["start"] for each in task.evaluation_resets(at_most=12)]
        ends = {start.hallway_end for start in starts}
        assert len(ends) > 1 if row["size"] == 17 else ends == {16}
        if row["epsilon"] == 0:
            assert row["success"] == np.mean([start.shown == start.upper for start in starts])
            assert row["unfinished"] == 0
    for row in memory.play_lengths(WalkAhead(), lengths=(19,), starts=2)[:1]:
        assert (row["success"], row["unfinished"]) == (0, 1)


def test_length_table_averages_seeds_of_the_agents_that_were_played(tmp_path):
    results = Results(tmp_path)
    for seed, success in enumerate((0.5, 1.0)):
        rows = [
            {"size": size, "epsilon": epsilon, "success": success, "unfinished": 0.25}
            for size in memory.LENGTHS
            for epsilon in (0.0, 0.05)
        ]
        name = f"memory-s17-random-window-dense-seed{seed}"
        results.keep(name, {"lengths": rows}, [], ())
    results.keep("memory-s17-random-none-dense-seed0", {}, [], ())
    rows = memory.length_table(Results(tmp_path))
    assert [row["size"] for row in rows] == [17, 33, 65, 129]
    assert rows[-1]["success, greedy"] == "75.0 % (50.0 to 100.0)" and rows[-1]["seeds"] == 2


@pytest.mark.parametrize("name", minigrid.TASKS)
def test_minigrid_trainings_differ_in_environment_and_length_alone(name):
    preset = train_recurrent.PRESETS["minigrid"]
    options = minigrid.TRAININGS[name].options
    lengths = {"steps", "learning_rate_updates", "learning_rate_hold", "evaluate_every"}
    assert changed_fields(preset, options) <= {"env", "curriculum", *lengths}
    config = tyro.cli(type(preset), default=preset, args=list(options))
    assert config.learning_rate_updates == config.steps * config.updates_per_step
    task = train_recurrent.make_task(config)  # the levels have equal spaces
    *easier, last = [level.name for level in task.levels]
    assert tuple(easier) == (config.curriculum or ()) and last in ("", config.env)


def test_minigrid_runs_are_measured_and_shown(tmp_path, monkeypatch):
    class Finished(memory.Training):
        def run(self, runs, name, seed, threads):
            log = "step,time/cpu_minutes,eval/success\n800,30,0.5\n"
            (runs / name).mkdir(parents=True)
            (runs / name / "metrics.csv").write_text(log)
            (runs / name / "evaluation.json").write_text('{"step": 800, "eval/success": 0.5}')
            config = {"environment": "gymnasium", "env": "MiniGrid-GoToDoor-5x5-v0"}
            (runs / name / "config.json").write_text(json.dumps(config))
            task = train_recurrent.make_task(train_recurrent.Config(**config))
            network = train_recurrent.make_network(train_recurrent.Config(**config), task)
            network.build({"observation": (None, *task.preprocessor.shape)})
            (runs / name / "checkpoints" / "800").mkdir(parents=True)
            network.save(runs / name / "checkpoints" / "800" / "model.keras")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(minigrid, "EPISODES", 2)
    run = Finished("GoToDoor-5x5", "train_recurrent", "minigrid")
    page = dataclasses.replace(minigrid.REPRODUCTION, trainings={"GoToDoor-5x5": run})
    page.main(page.config_class(seeds=(0,)))
    rows = {row["environment"]: row for row in minigrid.table(page.results)}
    assert rows["GoToDoor-5x5"]["greedy success"] in ("0.0 %", "50.0 %", "100.0 %")
    assert rows["GoToDoor-5x5"]["CPU hours"] == "0.50" and rows["GoToDoor-5x5"]["steps"] == "800"
    assert rows["Unlock"]["greedy success"] == "" and rows["KeyCorridorS4R3"]["target"] == "95 %"


def test_long_runs_of_nth_farthest_show_when_the_whole_task_began(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    # Of eight vectors, the farthest is guessed with 1/7; 0.65 of the way to 1 is 0.70.
    config = {"num_vectors": 8, "dimension": 16, "stages": [[8, 16, 1, 0]], "stage_passed": 0.65}
    (run / "config.json").write_text(json.dumps(config))
    floors = {"norms only": 0.31}
    evaluation = {"step": 80_000, "eval/accuracy": 0.9, "parameters": 9, "training_minutes": 2}
    (run / "evaluation.json").write_text(json.dumps(evaluation | {"floors": floors}))
    rows = [(10_000, 0.69, 0.2), (20_000, 0.71, 0.3), (40_000, 0.5, 0.5), (60_000, 0.8, 0.8)]
    text = "step,train/accuracy,eval/accuracy,time/epoch_cpu\n"
    (run / "metrics.csv").write_text(text + "".join(f"{a},{b},{c},30\n" for a, b, c in rows))
    measured = nth_farthest.measure(run)
    assert measured["first_above_norms"] == 40_000 and measured["whole_task_from"] == 20_000
    assert measured["cpu_minutes"] == 2
    results = Results(tmp_path)
    results.keep("paper-seed3", evaluation | {"floors": floors} | measured, [], [])
    assert nth_farthest.seeds(results) == [
        {
            "model": "Relational Memory Core",
            "seed": 3,
            "whole task from update": "20,000",
            "accuracy after 20,000": "30.0 %",
            "accuracy after 40,000": "50.0 %",
            "accuracy after 60,000": "80.0 %",
            "after 80,000": "90.0 %",
            "CPU minutes": "2",
        }
    ]
    assert nth_farthest.table(results)[0]["model"] == "Relational Memory Core"


def test_memory_ablations_differ_in_the_named_fields_alone():
    preset = train_recurrent.PRESETS["memory-s17"]
    whole = tyro.cli(type(preset), default=preset, args=list(memory_ablations.TASK))
    assert len(whole.sizes) == memory_ablations.LAST_LEVEL
    assert whole.learning_rate_updates == whole.steps * whole.updates_per_step
    for variant, training in memory_ablations.TRAININGS.items():
        options = training.options[len(memory_ablations.TASK) :]
        assert changed_fields(whole, options) == named_fields(options), variant


def test_offline_ablations_differ_in_the_named_fields_alone():
    for variant, (_, preset, options) in offline_ablations.VARIANTS.items():
        default = train_decision_transformer.PRESETS[preset]
        assert changed_fields(default, options) == named_fields(options), variant
    with pytest.raises(InvalidInput, match="data must name recorded episodes"):
        offline_ablations.Config()


def test_offline_runs_are_named_by_preset_and_data():
    config = offline.Config(data=("minari:runs/rrl/walker2d/medium-v0",), presets=("bc", "dense"))
    config = dataclasses.replace(config, targets=(10.0,), updates=500)
    trainings = offline.trainings(config)
    assert list(trainings) == ["bc-walker2d-medium-v0", "dense-walker2d-medium-v0"]
    options = trainings["bc-walker2d-medium-v0"].options
    assert options == (f"--data={config.data[0]}", "--targets", "10.0", "--steps=500")
    assert list(offline.trainings(offline.Config())) == ["doorkey", "doorkey-bc"]


def test_faithfulness_shows_that_box_worlds_values_rise():
    """Regression: the axis was the decrease of Q, which is negative where Q increases."""
    figure = faithfulness.curves(Results(ROOT / "docs" / "results" / "faithfulness"))
    panels = {(axes.get_title("left"), axes.get_ylabel()): axes for axes in figure.axes}
    assert len(panels) == 6 and all(len(axes.lines) == 5 for axes in figure.axes)
    box_world = panels["Box-World", "change of Q"].lines[0].get_ydata()
    doorkey = panels["DoorKey-5x5", "change of Q"].lines[0].get_ydata()
    assert box_world[0] == pytest.approx(0.670, abs=1e-3)
    assert doorkey[0] == pytest.approx(-0.237, abs=1e-3)


def test_perturbed_images_start_with_the_unchanged_digits():
    images = np.zeros((4, 28, 28), np.uint8)
    images[:, 12:16, 10:18] = np.random.default_rng(0).integers(1, 256, (4, 4, 8))
    inputs = dict(mnist.perturbed_one_by_one(Split(images, np.arange(4))))
    for axis, strengths in mnist.STRENGTHS.items():
        np.testing.assert_allclose(inputs[axis, 0][..., 0], images / 255, atol=1e-6)
        assert min(np.abs(inputs[axis, s] - inputs[axis, 0]).sum() for s in strengths[1:]) > 0
    rotation, shift, _ = mnist.STRENGTHS
    quarter = inputs[rotation, 90][..., 0]
    np.testing.assert_allclose(quarter[0], np.rot90(images[0], -1) / 255, atol=1e-6)
    np.testing.assert_allclose(quarter[1], np.rot90(images[1], 1) / 255, atol=1e-6)
    for i, (right, down) in enumerate(((2, 2), (-2, 2), (2, -2), (-2, -2))):
        expected = np.roll(images[i], (down, right), (0, 1)) / 255
        np.testing.assert_allclose(inputs[shift, 2][i, ..., 0], expected, atol=1e-6)


def test_blind_accuracy_is_that_of_the_most_frequent_answers():
    pictures = make_pictures(5000, seed=3)
    kinds = kinds_of(pictures.questions)
    best = [
        np.bincount(pictures.answers[kinds == kind]).max() / (kinds == kind).sum()
        for kind in range(6)
    ]
    assert np.mean(best[:3]) == pytest.approx(sort_of_clevr.BLIND["non-relational"], abs=0.02)
    assert np.mean(best[3:]) == pytest.approx(sort_of_clevr.BLIND["relational"], abs=0.02)


@pytest.mark.parametrize("layout", ["crossing", "fork"])
def test_no_recorded_episode_of_a_maze_goes_the_whole_way(layout):
    data, returns = stitching.maze_pieces(layout, 40)
    assert len(data.episodes) == 40 and len(returns) == 20
    from_a = [episode for episode in data.episodes if episode.observations[0, 1] == 1]
    assert len(from_a) == 20 and max(episode.total for episode in from_a) == max(returns) < 1.0
    assert sum(episode.total == 1.0 for episode in data.episodes) > 10
    assert all(env.reset(seed=i)[0][1] == 1 for i, env in enumerate([data.make_env()] * 5))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_pieces_of_doorkey_end_or_start_with_the_key(monkeypatch, tmp_path):
    recording = collect_dataset.Config(
        policies=("random",), episodes=12, folder=str(tmp_path / "datasets")
    )
    monkeypatch.setitem(stitching.script.RECORDED, "doorkey", recording)
    data, returns = stitching.doorkey_pieces()
    carries = [
        [
            cells.get("key") == cells["agent"]
            for cells in (object_cells(view, channels=4) for view in episode.observations)
        ]
        for episode in data.episodes
    ]
    firsts, rests = carries[: len(returns)], carries[len(returns) :]
    assert firsts and all(not any(each[:-1]) and each[-1] for each in firsts)
    assert all(each[0] for each in rests) and not np.any(returns)


@pytest.mark.slow  # it trains
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("few_pictures")
def test_training_on_pieces_is_stored_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(stitching, "EPISODES", 20)
    monkeypatch.chdir(tmp_path)
    page = dataclasses.replace(
        stitching.REPRODUCTION,
        tables={},
        trainings={"crossing-dense": stitching.TRAININGS["crossing-dense"]},
    )
    monkeypatch.setitem(stitching.MAZE, "steps", 300)
    page.main(page.config_class(seeds=(0,)))
    [found] = page.results.of("crossing-dense")
    assert found["recorded"] == {"mean": pytest.approx(0.2), "best": pytest.approx(0.2)}
    assert found["step"] == 300 and "1" in found["last"]
