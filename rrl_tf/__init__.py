"""Relational reinforcement learning on Keras 3 and TensorFlow.

`import rrl_tf` imports no deep-learning framework. Each sub-package is imported on first access:

    layers, models, convert   Keras code for the TensorFlow, JAX and PyTorch backends
    envs                      Gymnasium environments
    data                      datasets and data generators that return NumPy arrays or tf.data
    agents, training, export  double DQN agents, training runs, policies as SavedModels
    offline                   Decision Transformers that are trained on recorded episodes
    pretrained                trained models that are part of the package
    interpret                 attention maps, ablation, patching, probes
    viz                       figures of attention, videos, learning curves

`rrl_tf.load_policy("doorkey-5x5")` returns a trained policy that acts on raw observations.
`rrl_tf.DQN("CartPole-v1")` and `rrl_tf.RecurrentDQN(...)` are agents for any Gymnasium environment.
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
    if name in ("DQN", "RecurrentDQN"):
        importlib.import_module("rrl_tf._tf_logging").load_tensorflow()
        return getattr(importlib.import_module("rrl_tf.gymnasium_agents"), name)
    if name == "load_policy":  # often a user's first call, so hide TensorFlow's start-up messages
        importlib.import_module("rrl_tf._tf_logging").load_tensorflow()
        return importlib.import_module("rrl_tf.export").load_policy
    raise AttributeError(f"module 'rrl_tf' has no attribute {name!r}")
