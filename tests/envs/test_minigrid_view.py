"""Cells of objects in a view, and names of actions."""

import numpy as np
import pytest
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX

from rrl_tf import envs
from rrl_tf.envs import enumerate_starts, make_doorkey, object_cells
from rrl_tf.envs.minigrid_view import unseen_cells


@pytest.mark.parametrize(("kind", "channels"), [("view", 3), ("compass", 4)])
@pytest.mark.parametrize("frames", [1, 3])
def test_object_cells_equal_minigrids(kind, channels, frames):
    env = make_doorkey(6, observation=kind, frames=frames, max_steps=10_000)
    world = env.unwrapped
    rng = np.random.default_rng(1)
    seen = set()
    for start in enumerate_starts(6)[::20]:
        observation, _ = env.reset(options={"start": start})
        for _ in range(30):
            expected = {"agent": (3, 6)}
            for (x, y), label in (
                (start.key, "key"),
                ((start.wall, start.door), "door"),
                ((4, 4), "goal"),
            ):
                if label == "key" and world.carrying:
                    expected["key"] = (3, 6)
                elif tuple(world.agent_pos) != (x, y) and world.agent_sees(x, y):
                    expected[label] = tuple(int(v) for v in world.relative_coords(x, y))
            assert object_cells(observation, channels) == expected
            assert list(object_cells(observation, channels)) == list(expected)
            seen |= expected.items()
            observation, _, terminated, *_ = env.step(int(rng.choice([0, 1, 2, 2, 3, 4])))
            if terminated:
                break
    assert len(seen) > 30


def test_entities_are_numbered_x_first():
    env = make_doorkey(5)
    observation, _ = env.reset(options={"start": enumerate_starts(5)[1]})
    entities = observation.reshape(49, 3)
    for x, y in object_cells(observation).values():
        np.testing.assert_array_equal(entities[x * 7 + y], observation[x, y])


def test_action_names_equal_minigrids():
    assert [envs.ACTION_NAMES[a] for a in envs.TASK_ACTIONS] == [
        "left",
        "right",
        "forward",
        "pickup",
        "toggle",
    ]
    assert all(Actions[name] == code for code, name in enumerate(envs.ACTION_NAMES))
    assert envs.TASK_ACTIONS == (0, 1, 2, 3, 5)


def test_unseen_cells_equal_minigrids():
    env = make_doorkey(6, observation="compass", frames=2)
    for start in enumerate_starts(6)[::40]:
        observation, _ = env.reset(options={"start": start})
        _, visible = env.unwrapped.gen_obs_grid()
        np.testing.assert_array_equal(unseen_cells(observation, 4), ~visible)


def test_objects_of_one_kind_are_labelled_by_colour():
    view = np.zeros((7, 7, 4), np.uint8)
    view[1, 2, :2] = 4, 4  # a yellow door
    view[5, 2, :2] = 4, 2  # a blue door
    view[6, 6, :2] = 6, 0
    view[0, 0, :2] = view[0, 1, :2] = 9, 0  # two cells of lava of the same colour
    assert object_cells(view, 4) == {
        "agent": (3, 6),
        "yellow door": (1, 2),
        "blue door": (5, 2),
        "ball": (6, 6),
        "lava": (0, 0),
    }


def test_objects_with_equal_labels_are_numbered():
    """Regression: only one of two blue doors had a label."""
    view = np.zeros((7, 7, 4), np.uint8)
    view[1, 2, :2] = view[5, 2, :2] = view[6, 0, :2] = 4, 2  # blue doors
    view[4, 4, :2] = 4, 0
    view[0, 0, 0] = view[0, 1, 0] = 8  # two goals: only the first has a label
    assert object_cells(view, 4) == {
        "agent": (3, 6),
        "blue door": (1, 2),
        "red door": (4, 4),
        "blue door 2": (5, 2),
        "blue door 3": (6, 0),
        "goal": (0, 0),
    }


@pytest.mark.parametrize("coloured", [False, True])
def test_labels_name_colours_that_matter_later(coloured):
    view = np.zeros((7, 7, 3), "uint8")
    view[2, 5, :2] = OBJECT_TO_IDX["ball"], COLOR_TO_IDX["red"]
    names = list(object_cells(view, coloured=coloured))
    assert names == ["agent", "red ball" if coloured else "ball"]


def test_objects_keep_their_labels_over_time():
    """Regression: two balls of different colours had the same label in Comparison."""
    view = np.zeros((7, 7, 4), "uint8")
    view[2, 5, 0] = OBJECT_TO_IDX["key"]
    for task in (envs.comparison_task((6,)), envs.key_corridor_task((1,))):
        assert list(task.entities(view)) == ["agent", "red key"]
