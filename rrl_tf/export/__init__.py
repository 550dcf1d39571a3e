"""Export policies and classifiers as SavedModels that contain the preprocessing."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "classifier": "export_classifier export_vqa",
    "decision_transformer": "export_decision_transformer",
    "formats": "convert_policy",
    "load": "load_policy",
    "q_policy": "export_policy export_recurrent_policy",
    "session": "SavedModelSession",
    "writer": "input_spec model_endpoints newest_version next_version write_version",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
