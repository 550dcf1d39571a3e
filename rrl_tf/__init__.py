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
_ATTRIBUTES = {
    "DQN": "gymnasium_agents",
    "DecisionTransformerAgent": "offline",
    "RecurrentDQN": "gymnasium_agents",
    "load_policy": "export",
}
"""Public name -> the module that defines it."""


def __getattr__(name):
    if name in _SUBPACKAGES:
        return importlib.import_module(f"rrl_tf.{name}")
    if name in _ATTRIBUTES:  # often a user's first call, so hide TensorFlow's start-up messages
        importlib.import_module("rrl_tf._tf_logging").load_tensorflow()
        return getattr(importlib.import_module(f"rrl_tf.{_ATTRIBUTES[name]}"), name)
    raise AttributeError(f"module 'rrl_tf' has no attribute {name!r}")
