"""Define Box-World: environment, levels, task, and the environment as TensorFlow operations."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "env": "BoxWorld",
    "graph": "BoxWorldGraph BoxWorldState",
    "levels": "BoxWorldLevels BoxWorldStart held_out_pairs",
    "task": "box_world_cells box_world_task",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
