"""Environments and tasks: what there is to learn, what observations mean, many with one seed."""

import importlib

from rrl_tf.envs import preprocessing
from rrl_tf.envs.atari_task import atari_task
from rrl_tf.envs.box_world import BoxWorld
from rrl_tf.envs.box_world_levels import BoxWorldLevels, BoxWorldStart, held_out_pairs
from rrl_tf.envs.box_world_task import box_world_cells, box_world_task
from rrl_tf.envs.comparison import ComparisonStart, enumerate_comparison_starts, make_comparison
from rrl_tf.envs.comparison_task import comparison_task
from rrl_tf.envs.crossing import Crossing
from rrl_tf.envs.doorkey import (
    DoorKey,
    DoorKeyStart,
    enumerate_starts,
    make_doorkey,
    split_layouts,
)
from rrl_tf.envs.doorkey_task import doorkey_task
from rrl_tf.envs.gymnasium_task import gymnasium_task
from rrl_tf.envs.key_corridor import make_key_corridor
from rrl_tf.envs.key_corridor_task import key_corridor_task
from rrl_tf.envs.memory import MemoryStart, enumerate_memory_starts, make_memory
from rrl_tf.envs.memory_task import memory_task
from rrl_tf.envs.minigrid_view import ACTION_NAMES, AGENT_CELL, TASK_ACTIONS, object_cells
from rrl_tf.envs.preprocessing import Preprocessor
from rrl_tf.envs.task import Level, Task
from rrl_tf.envs.vector import SeededVectorEnv

__all__ = [
    "ACTION_NAMES",
    "AGENT_CELL",
    "TASK_ACTIONS",
    "BoxWorld",
    "BoxWorldGraph",
    "BoxWorldLevels",
    "BoxWorldStart",
    "BoxWorldState",
    "ComparisonStart",
    "Crossing",
    "DoorKey",
    "DoorKeyGraph",
    "DoorKeyStart",
    "DoorKeyState",
    "DoorKeyVectorEnv",
    "Level",
    "MemoryStart",
    "Preprocessor",
    "SeededVectorEnv",
    "Task",
    "atari_task",
    "box_world_cells",
    "box_world_task",
    "comparison_task",
    "doorkey_task",
    "enumerate_comparison_starts",
    "enumerate_memory_starts",
    "enumerate_starts",
    "gymnasium_task",
    "held_out_pairs",
    "key_corridor_task",
    "make_comparison",
    "make_doorkey",
    "make_key_corridor",
    "make_memory",
    "memory_task",
    "object_cells",
    "preprocessing",
    "split_layouts",
]

# What is made of TensorFlow's operations; the rest is NumPy.
_WITH_TENSORFLOW = {
    "BoxWorldGraph": "box_world_graph",
    "BoxWorldState": "box_world_graph",
    "DoorKeyGraph": "doorkey_graph",
    "DoorKeyState": "doorkey_rules",
    "DoorKeyVectorEnv": "doorkey_vector",
}


def __getattr__(name):
    if name in _WITH_TENSORFLOW:
        return getattr(importlib.import_module(f"rrl_tf.envs.{_WITH_TENSORFLOW[name]}"), name)
    raise AttributeError(f"module 'rrl_tf.envs' has no attribute {name!r}")
