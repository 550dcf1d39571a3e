"""Runs of `train_box_world` and its evaluation on other kinds of levels."""

import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]


def toy_config(tmp_path, **changes):
    from train_scripts.train_box_world import BOX_WORLD

    numbers = {
        "steps": 160,
        "boxes": 2,
        "distractors": 1,
        "pool": 200,
        "max_steps": 12,  # short evaluations and films
        "num_envs": 8,
        "batch_size": 8,
        "learning_starts": 60,
        "replay_capacity": 1000,
        "updates_per_step": 0.1,
        "log_every": 80,
        "evaluate_every": 80,
        "checkpoint_every": 80,
        "evaluation_episodes": 3,
        "jit_compile": False,
        "runs": str(tmp_path),
    }
    return dataclasses.replace(BOX_WORLD, **{**numbers, **changes})


KINDS = ("new levels", "held-out pairs", "one box longer")
RESULTS = [name for kind in KINDS for name in (kind, f"{kind}, ε = 0.05")]


class Still:
    """An agent that always takes action 0."""

    def greedy_policy(self):
        return lambda observation: np.zeros(len(observation), int)


@pytest.mark.parametrize(
    ("network", "loop"),
    [
        ("fast", "graph"),
        pytest.param("fast", "python", marks=pytest.mark.slow),
        pytest.param("zambaldi", "graph", marks=pytest.mark.slow),
        pytest.param("convolutional", "graph", marks=pytest.mark.slow),
    ],
)
def test_run_writes_evaluation_figures_and_export(tmp_path, network, loop):
    from rrl_tf.export import load_policy
    from train_scripts.train_box_world import main, make_task

    config = toy_config(tmp_path, network=network, loop=loop)
    run, agent = main(config)
    assert run.folder.path == tmp_path / f"box-world-{network}-seed0"
    told = json.loads((run.folder.path / "evaluation.json").read_text())["generalization"]
    assert list(told) == RESULTS
    page = (run.folder.path / "report.html").read_text()
    assert all(f"<td>generalization.{name}</td>" in page for name in RESULTS)
    assert all(0 <= share <= 1 for share in told.values())
    pictures = {"episode.gif"} | ({"attention.png"} if network == "fast" else set())
    drawn = {path.name for path in run.folder.figures.iterdir()}
    assert pictures <= drawn
    task = make_task(config)
    seen = np.stack([task.make_env().reset(seed=seed)[0] for seed in range(4)])
    policy = load_policy(run.folder.export / "1")
    np.testing.assert_array_equal(policy.act(seen), agent.greedy(seen))
    assert policy.details["action_names"] == ["up", "down", "left", "right"]


@pytest.mark.parametrize("preset", ["box-world", "paper"])
def test_networks_have_similar_parameter_counts(preset):
    from train_scripts.train_box_world import PRESETS, make_network, make_task

    counts = []
    for name in ("fast", "convolutional"):
        config = dataclasses.replace(PRESETS[preset], network=name)
        task = make_task(config)
        network = make_network(config, task)
        network.build((None, *task.preprocessor.shape))
        counts.append(network.count_params())
    assert 0.95 < counts[0] / counts[1] < 1.1


def test_training_never_shows_held_out_pairs(tmp_path):
    from rrl_tf.envs import held_out_pairs
    from rrl_tf.envs.box_world.levels import BoxWorldStart
    from train_scripts.train_box_world import make_task

    task = make_task(toy_config(tmp_path))
    for level in range(len(task.levels)):
        env = task.make_env(level)
        for seed in range(100):
            env.reset(seed=seed)
            assert not env.unwrapped.start.pairs & held_out_pairs()
        rooms = task.levels[level].make_graph().initial_state(300, (0, 0)).cells
        starts = [BoxWorldStart(8, bytes(room), (0, 0)) for room in np.array(rooms, np.uint8)]
        assert all(start.pairs for start in starts if len(start.boxes) > 1)
        assert not any(start.pairs & held_out_pairs() for start in starts)


def test_page_has_the_parameter_counts():
    from train_scripts.train_box_world import PRESETS, make_network, make_task

    page = (pathlib.Path(__file__).parents[2] / "docs" / "tasks" / "box_world.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", page, re.MULTILINE))
    assert told.keys() == {"fast", "convolutional", "zambaldi"}
    task = make_task(PRESETS["box-world"])
    for name, count in told.items():
        network = make_network(dataclasses.replace(PRESETS["box-world"], network=name), task)
        network.build((None, *task.preprocessor.shape))
        assert f"{network.count_params():,}" == count


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"boxes": 0}, "boxes.*positive.*0"),
        ({"distractors": -1}, "distractors.*at least 0.*-1"),
        ({"stages": ((0, 0, 8),)}, "boxes.*positive.*0"),
        ({"stages": ((1, -1, 8),)}, "distractors.*at least 0.*-1"),
        ({"stages": ((1, 0, 9),)}, "`area` must be from 1 to 8; received 9"),
    ],
)
def test_number_out_of_range_is_named(tmp_path, changes, message):
    from rrl_tf.errors import InvalidInput
    from train_scripts.train_box_world import make_task

    with pytest.raises(InvalidInput, match=message):
        make_task(toy_config(tmp_path, **changes))


def test_generalization_tests_the_whole_task_also_after_small_areas(tmp_path, capsys):
    from train_scripts.train_box_world import generalization

    numbers = {"boxes": 2, "distractors": 1, "max_steps": 1, "evaluation_episodes": 1}
    # Regression: three boxes do not fit into an area of 5 x 5, and the kind was skipped.
    results = generalization(Still(), toy_config(tmp_path, stages=((1, 0, 5),), **numbers))
    assert list(results) == RESULTS and "skipped" not in capsys.readouterr().out


def test_stages_come_before_the_whole_task(tmp_path):
    from train_scripts.train_box_world import make_task, max_entities

    config = toy_config(tmp_path, stages=((1, 2, 7), (2, 0, 8)))
    levels = [level.make_env().unwrapped.levels for level in make_task(config).levels]
    assert [each.goal_length for each in levels] == [(1,), (1, 2), (1, 2)]
    assert [each.num_distractors for each in levels] == [(0, 1, 2), (0,), (0, 1)]
    assert [each.area for each in levels] == [7, 8, 8]
    assert max_entities(config) == 2 + 2 * (2 + 1 + 1)  # one box longer than the whole task
    larger = dataclasses.replace(config, stages=((1, 5, 8),))
    assert max_entities(larger) == 2 + 2 * (1 + 5)


def test_every_network_can_be_made(tmp_path):
    import typing

    from train_scripts.train_box_world import Config, make_network, make_task

    task = make_task(toy_config(tmp_path))
    for name in typing.get_args(typing.get_type_hints(Config)["network"]):
        network = make_network(toy_config(tmp_path, network=name), task)
        network.build((None, *task.preprocessor.shape))


@pytest.mark.parametrize(
    ("size", "kinds"), [(8, ["new levels", "one box longer"]), (6, ["new levels"])]
)
def test_generalization_skips_kinds_that_are_not_possible(tmp_path, capsys, size, kinds):
    from train_scripts.train_box_world import generalization

    numbers = {"boxes": 1, "distractors": 0, "max_steps": 1, "evaluation_episodes": 1}
    results = generalization(Still(), toy_config(tmp_path, size=size, **numbers))
    assert list(results) == [name for kind in kinds for name in (kind, f"{kind}, ε = 0.05")]
    assert results["new levels"] == 0
    assert ("one box longer: skipped, " in capsys.readouterr().out) == (size == 6)
