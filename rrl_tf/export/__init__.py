"""Policies as SavedModels: preprocessing, model and choice of action in one graph."""

from rrl_tf.export.classifier import export_classifier
from rrl_tf.export.decision_transformer import export_decision_transformer
from rrl_tf.export.load import load_policy
from rrl_tf.export.policy import export_policy, next_version
from rrl_tf.export.session import SavedModelSession

__all__ = [
    "SavedModelSession",
    "export_classifier",
    "export_decision_transformer",
    "export_policy",
    "load_policy",
    "next_version",
]
