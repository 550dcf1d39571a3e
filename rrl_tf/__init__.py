"""Relational reinforcement learning on Keras 3 and TensorFlow.

`import rrl_tf` loads no framework; the sub-packages do when they are first used:

    layers, models, convert   keras.ops only (TensorFlow, JAX and PyTorch backends)
    envs                      gymnasium and numpy
    data                      data sets and generators, numpy in, numpy or tf.data out
    agents, training, export  the double DQN, its runs, and policies as SavedModels
    pretrained                trained models that are part of the package
    viz                       pictures of attention, films, learning curves

`rrl_tf.load_policy("doorkey-5x5")` is a trained policy that acts on raw observations.
"""

import importlib

__version__ = "0.1.0"

_SUBPACKAGES = (
    "agents",
    "convert",
    "data",
    "envs",
    "export",
    "interpret",
    "layers",
    "models",
    "offline",
    "pretrained",
    "training",
    "viz",
)


def __getattr__(name):
    if name in _SUBPACKAGES:
        return importlib.import_module(f"rrl_tf.{name}")
    if name == "load_policy":  # often a newcomer's first line: without TensorFlow's page of notes
        importlib.import_module("rrl_tf._tf_logging").load_tensorflow()
        return importlib.import_module("rrl_tf.export").load_policy
    raise AttributeError(f"module 'rrl_tf' has no attribute {name!r}")
