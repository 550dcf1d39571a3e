"""Define MiniGrid's DoorKey: environment, task, and the environment as TensorFlow operations."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "env": "DoorKey DoorKeyStart doorkey_spec enumerate_starts make_doorkey",
    "graph": "DoorKeyGraph DoorKeyState",
    "task": "doorkey_task",
    "vector": "DoorKeyVectorEnv",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
