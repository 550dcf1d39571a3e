"""Export policies and classifiers as SavedModels that contain the preprocessing."""

from rrl_tf.export.classifier import export_classifier, export_vqa
from rrl_tf.export.decision_transformer import export_decision_transformer
from rrl_tf.export.load import load_policy
from rrl_tf.export.q_policy import export_policy, export_recurrent_policy
from rrl_tf.export.session import SavedModelSession
from rrl_tf.export.writer import (
    input_spec,
    model_endpoints,
    newest_version,
    next_version,
    write_version,
)

__all__ = [
    "SavedModelSession",
    "export_classifier",
    "export_decision_transformer",
    "export_policy",
    "export_recurrent_policy",
    "export_vqa",
    "input_spec",
    "load_policy",
    "model_endpoints",
    "newest_version",
    "next_version",
    "write_version",
]
