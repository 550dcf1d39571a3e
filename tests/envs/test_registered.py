"""Tasks by Gymnasium's names, as model cards make their environments."""

import gymnasium
import numpy as np
import pytest

from rrl_tf.envs import box_world_task, doorkey_task, memory_task

TASKS = {
    "DoorKey-8x8": lambda: doorkey_task((8,)),
    "MemoryS15": lambda: memory_task((15,)),
    "MemoryS17Random": lambda: memory_task((17,), random_length=True),
    "BoxWorld-8x8": lambda: box_world_task(8, train_part="all", pool=1),
    "BoxWorld-12x12": lambda: box_world_task(
        12, levels=[((1, 2, 3, 4), (0, 1, 2, 3, 4))], train_part="all", pool=1
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_registered_by_its_name(name):
    task = TASKS[name]()
    assert task.name == name
    ours, registered = task.make_env(), gymnasium.make(f"rrl_tf/{name}-v0")
    for seed in range(5):
        (seen, _), (found, _) = ours.reset(seed=seed), registered.reset(seed=seed)
        np.testing.assert_array_equal(found, seen)
    for action in (0, 1, 2, 0, 1, 2):
        for one, other in zip(ours.step(action)[:4], registered.step(action)[:4]):
            np.testing.assert_array_equal(other, one)
