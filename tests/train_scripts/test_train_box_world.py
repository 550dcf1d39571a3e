"""The script for Box-World, from the first step to what is told of levels of other kinds."""

import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]


def toy_config(tmp_path, **changes):
    from train_scripts.train_box_world import Config

    numbers = {
        "steps": 160,
        "boxes": 2,
        "distractors": 1,
        "pool": 200,
        "max_steps": 12,  # short evaluations, short films
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
    return dataclasses.replace(Config(), **{**numbers, **changes})


KINDS = ("new levels", "held-out pairs", "one box longer")
WHOLE = [name for kind in KINDS for name in (kind, f"{kind}, ε = 0.05")]
"""All that is told of `toy_config`."""


@pytest.mark.parametrize(
    ("network", "loop"),
    [
        ("fast", "graph"),
        pytest.param("fast", "python", marks=pytest.mark.slow),
        pytest.param("zambaldi", "graph", marks=pytest.mark.slow),
        pytest.param("convolutional", "graph", marks=pytest.mark.slow),
    ],
)
def test_a_run_from_the_beginning_to_the_end(tmp_path, network, loop):
    from rrl_tf.export import load_policy
    from train_scripts.train_box_world import main, make_task

    config = toy_config(tmp_path, network=network, loop=loop)
    run, agent = main(config)
    assert run.folder.path == tmp_path / f"box-world-{network}-seed0"
    told = json.loads((run.folder.path / "evaluation.json").read_text())["generalization"]
    assert list(told) == WHOLE
    page = (run.folder.path / "report.html").read_text()
    assert all(f"<td>generalization, {name}</td>" in page for name in WHOLE)
    assert all(0 <= share <= 1 for share in told.values())
    pictures = {"episode.gif"} | ({"attention.png"} if network == "fast" else set())
    drawn = {path.name for path in run.folder.figures.iterdir()}
    assert pictures <= drawn
    task = make_task(config)
    seen = np.stack([task.make_env().reset(seed=seed)[0] for seed in range(4)])
    policy = load_policy(run.folder.export / "1")
    np.testing.assert_array_equal(policy.act(seen), agent.greedy(seen))
    assert policy.details["action_names"] == ["up", "down", "left", "right"]


@pytest.mark.slow
def test_stopped_and_continued_is_as_if_never_stopped(tmp_path):
    from train_scripts.train_box_world import main

    _, whole = main(toy_config(tmp_path / "whole"))
    main(toy_config(tmp_path / "parts", steps=80))
    _, continued = main(toy_config(tmp_path / "parts"))
    for a, b in zip(whole.network.get_weights(), continued.network.get_weights()):
        np.testing.assert_array_equal(a, b)


def test_networks_are_of_about_as_many_parameters(tmp_path):
    from train_scripts.train_box_world import make_network, make_task

    counts = []
    for name in ("fast", "convolutional"):
        config = toy_config(tmp_path, network=name)
        task = make_task(config)
        network = make_network(config, task)
        network.build((None, *task.preprocessor.shape))
        counts.append(network.count_params())
    assert 0.95 < counts[0] / counts[1] < 1.1


def test_training_never_shows_what_is_held_out(tmp_path):
    from rrl_tf.envs import held_out_pairs
    from rrl_tf.envs.box_world.levels import BoxWorldStart
    from train_scripts.train_box_world import make_task

    task = make_task(toy_config(tmp_path))
    for level in range(len(task.levels)):
        env = task.make_env(level)
        for seed in range(100):
            env.reset(seed=seed)
            assert not env.unwrapped.start.pairs & held_out_pairs()
        # What is trained in by default, from a pool of levels of its own.
        rooms = task.levels[level].make_graph().initial_state(300, (0, 0)).cells
        starts = [BoxWorldStart(8, bytes(room), (0, 0)) for room in np.array(rooms, np.uint8)]
        assert all(start.pairs for start in starts if len(start.boxes) > 1)
        assert not any(start.pairs & held_out_pairs() for start in starts)


def test_one_box_has_no_pairs_to_hold_out(tmp_path):
    from train_scripts.train_box_world import (
        PRESETS,
        generalization,
        make_network,
        make_task,
        make_tasks,
    )

    numbers = dataclasses.asdict(toy_config(tmp_path))
    for kept in ("preset", "boxes", "distractors"):
        numbers.pop(kept)
    config = dataclasses.replace(PRESETS["one-box"], **{**numbers, "loop": "python"})

    class Still:
        def greedy_player(self):
            return lambda observation: np.zeros(len(observation), int)

    assert make_network(config, make_task(config)).name.startswith("relational")
    config = dataclasses.replace(config, evaluation_episodes=1, max_steps=1)
    told = generalization(Still(), config, make_tasks(config))
    assert [name for name in told if "ε" not in name] == ["new levels", "one box longer"]
    assert told["new levels"] == 0


def test_an_unknown_network_is_told_before_anything_is_written(tmp_path):
    from rrl_tf.errors import InvalidInput
    from train_scripts.train_box_world import main

    with pytest.raises(InvalidInput, match=r"`network` must be one of .'fast', .*'nope'"):
        main(toy_config(tmp_path / "runs", network="nope"))
    assert not (tmp_path / "runs").exists()


def test_every_network_that_is_listed_can_be_made_and_no_other(tmp_path):
    """Trained presets were listed, and then refused for another reason."""
    from rrl_tf.errors import InvalidInput
    from rrl_tf.models import RelationalQNetwork
    from train_scripts.train_box_world import NETWORKS, make_network, make_task

    task = make_task(toy_config(tmp_path))
    for name in NETWORKS:
        make_network(toy_config(tmp_path, network=name), task).build(
            (None, *task.preprocessor.shape)
        )
    for name in set(RelationalQNetwork.presets) - set(NETWORKS):
        with pytest.raises(InvalidInput, match=f"`network` must be one of .* received '{name}'"):
            make_network(toy_config(tmp_path, network=name), task)


def test_the_page_says_how_many_parameters_the_networks_have():
    from train_scripts.train_box_world import PRESETS, make_network, make_task

    page = (pathlib.Path(__file__).parents[2] / "docs" / "box_world.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+) \|$", page, re.MULTILINE))
    assert told.keys() == {"fast", "convolutional", "zambaldi"}
    task = make_task(PRESETS["box-world"])
    for name, count in told.items():
        network = make_network(dataclasses.replace(PRESETS["box-world"], network=name), task)
        network.build((None, *task.preprocessor.shape))
        assert f"{network.count_params():,}" == count


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"boxes": 0}, "boxes.*positive.*0"), ({"distractors": -1}, "distractors.*at least 0.*-1")],
)
def test_impossible_numbers_are_told_by_the_name_of_the_option(tmp_path, changes, message):
    from rrl_tf.errors import InvalidInput
    from train_scripts.train_box_world import make_task

    with pytest.raises(InvalidInput, match=message):
        make_task(toy_config(tmp_path, **changes))


def test_what_has_no_room_is_left_out_and_said_so(tmp_path, capsys):
    from train_scripts.train_box_world import generalization, make_tasks

    class Still:
        def greedy_player(self):
            return lambda observation: np.zeros(len(observation), int)

    config = toy_config(tmp_path, size=6, boxes=1, distractors=0, loop="python", max_steps=1)
    told = generalization(Still(), config, make_tasks(config))
    assert list(told) == ["new levels", "new levels, ε = 0.05"]
    assert (
        "one box longer: left out, as boxes have no room, or hardly any" in capsys.readouterr().out
    )
