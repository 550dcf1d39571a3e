"""Environments and tasks: what there is to learn, what observations mean, many with one seed."""

from rrl_tf.envs import preparation
from rrl_tf.envs.doorkey import (
    DoorKey,
    DoorKeyStart,
    enumerate_starts,
    make_doorkey,
    split_layouts,
)
from rrl_tf.envs.doorkey_task import doorkey_task
from rrl_tf.envs.gymnasium_task import gymnasium_task
from rrl_tf.envs.minigrid_view import ACTION_NAMES, AGENT_CELL, TASK_ACTIONS, object_cells
from rrl_tf.envs.preparation import Preparation
from rrl_tf.envs.task import Level, Task
from rrl_tf.envs.vector import SeededVectorEnv

__all__ = [
    "ACTION_NAMES",
    "AGENT_CELL",
    "TASK_ACTIONS",
    "DoorKey",
    "DoorKeyStart",
    "Level",
    "Preparation",
    "SeededVectorEnv",
    "Task",
    "doorkey_task",
    "enumerate_starts",
    "gymnasium_task",
    "make_doorkey",
    "object_cells",
    "preparation",
    "split_layouts",
]
