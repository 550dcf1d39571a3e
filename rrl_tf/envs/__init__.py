"""Environments: MiniGrid DoorKey, what its observations mean, and many of them with one seed."""

from rrl_tf.envs.doorkey import (
    DoorKey,
    DoorKeyStart,
    enumerate_starts,
    make_doorkey,
    split_layouts,
)
from rrl_tf.envs.observations import (
    ACTION_NAMES,
    AGENT_CELL,
    PREPARATIONS,
    TASK_ACTIONS,
    object_cells,
    prepare_constant,
    prepare_frame_maximum,
    prepare_one_hot,
    validate_observation,
)
from rrl_tf.envs.vector import SeededVectorEnv

__all__ = [
    "ACTION_NAMES",
    "AGENT_CELL",
    "PREPARATIONS",
    "TASK_ACTIONS",
    "DoorKey",
    "DoorKeyStart",
    "SeededVectorEnv",
    "enumerate_starts",
    "make_doorkey",
    "object_cells",
    "prepare_constant",
    "prepare_frame_maximum",
    "prepare_one_hot",
    "split_layouts",
    "validate_observation",
]
