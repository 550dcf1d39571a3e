"""Define environments and tasks; importing this package registers them with Gymnasium."""

import gymnasium

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "atari": "atari_task",
    "box_world": (
        "BoxWorld BoxWorldGraph BoxWorldLevels BoxWorldStart BoxWorldState box_world_cells "
        "box_world_task held_out_pairs"
    ),
    "comparison": "ComparisonStart comparison_task enumerate_comparison_starts make_comparison",
    "crossing": "Crossing",
    "doorkey": (
        "DoorKey DoorKeyGraph DoorKeyStart DoorKeyState DoorKeyVectorEnv doorkey_task "
        "enumerate_starts make_doorkey"
    ),
    "gymnasium_env": "gymnasium_task",
    "key_corridor": "key_corridor_task make_key_corridor",
    "memory": "MemoryStart enumerate_memory_starts make_memory memory_task",
    "minigrid_env": "MissionObservation",
    "minigrid_view": "ACTION_NAMES AGENT_CELL TASK_ACTIONS most_in_sight object_cells",
    "preprocessing": "Preprocessor",
    "starts": "split_layouts",
    "task": "Level Task",
    "vector": "SeededVectorEnv",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)


def _register(name, entry_point, check=False, **kwargs):
    gymnasium.register(
        f"rrl_tf/{name}-v0",
        f"rrl_tf.envs.{entry_point}",
        kwargs=kwargs,
        disable_env_checker=not check,
    )


for _size in (5, 6, 8, 16):
    _register(f"DoorKey-{_size}x{_size}", "doorkey:make_doorkey", size=_size, observation="compass")
for _size in (7, 9, 11, 13, 15, 17):
    _register(f"MemoryS{_size}", "memory:make_memory", size=_size)
    _register(f"MemoryS{_size}Random", "memory:make_memory", size=_size, random_length=True)
for _size in range(6, 15):
    _register(f"ComparisonS{_size}", "comparison:make_comparison", size=_size)
for _size, _rows in ((3, 1), (3, 2), (3, 3), (4, 3), (5, 3), (6, 3)):  # as in MiniGrid
    _register(
        f"KeyCorridorS{_size}R{_rows}",
        "key_corridor:make_key_corridor",
        rows=_rows,
        room_size=_size,
    )
_register("BoxWorld", "box_world:BoxWorld", check=True)
# The levels that the pretrained policy trained on, and those of the paper.
for _size, _boxes, _distractors in ((8, 3, 2), (12, 4, 4)):
    _register(
        f"BoxWorld-{_size}x{_size}",
        "box_world:BoxWorld",
        check=True,
        size=_size,
        goal_length=tuple(range(1, _boxes + 1)),
        num_distractors=tuple(range(_distractors + 1)),
    )
