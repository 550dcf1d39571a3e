"""Registered environments, which model cards create by name."""

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from rrl_tf.envs import box_world_task, comparison_task, doorkey_task, memory_task
from rrl_tf.errors import InvalidInput

TASKS = {
    "DoorKey-8x8": lambda: doorkey_task((8,)),
    "MemoryS15": lambda: memory_task((15,)),
    "MemoryS17Random": lambda: memory_task((17,), random_length=True),
    "ComparisonS14": lambda: comparison_task((14,)),
    "BoxWorld-8x8": lambda: box_world_task(8, train_part="all", pool=1),
    "BoxWorld-12x12": lambda: box_world_task(
        12, levels=[((1, 2, 3, 4), (0, 1, 2, 3, 4))], train_part="all", pool=1
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_tasks_are_registered_by_name(name):
    task = TASKS[name]()
    assert task.name == name
    ours, registered = task.make_env(), gymnasium.make(f"rrl_tf/{name}-v0")
    for seed in range(5):
        (seen, _), (found, _) = ours.reset(seed=seed), registered.reset(seed=seed)
        np.testing.assert_array_equal(found, seen)
    for action in (0, 1, 2, 0, 1, 2):
        for one, other in zip(ours.step(action)[:4], registered.step(action)[:4]):
            np.testing.assert_array_equal(other, one)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strat": None}, r"the only option of reset is 'start'; received \['strat'\]"),
        (["start"], r"options of reset must be a dict; received \['start'\]"),
        ({"start": 5}, "5"),
    ],
)
def test_invalid_reset_options_raise_and_change_nothing(name, options, message):
    """Regression: misspelt options were ignored."""
    env, same = TASKS[name]().make_env(), TASKS[name]().make_env()
    env.reset(seed=3)
    same.reset(seed=3)
    with pytest.raises(InvalidInput, match=message):
        env.reset(seed=4, options=options)
    for action in (0, 1, 2):
        np.testing.assert_array_equal(env.step(action)[0], same.step(action)[0])
    np.testing.assert_array_equal(env.reset(options={})[0], same.reset()[0])


LIGHT = """
import sys
import gymnasium
import rrl_tf.envs
for name in ("DoorKey-6x6", "MemoryS17", "KeyCorridorS3R3", "BoxWorld-8x8"):
    gymnasium.make(f"rrl_tf/{name}-v0").reset(seed=0)
assert not {"tensorflow", "keras"} & sys.modules.keys(), "loaded"
"""


def test_environments_need_no_tensorflow():
    subprocess.run([sys.executable, "-c", LIGHT], check=True, env={**os.environ, "PYTHONPATH": "."})
