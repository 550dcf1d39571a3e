"""What models with named configurations, new or trained, have in common."""

from __future__ import annotations

import copy
import os
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from rrl_tf._arguments import one_of
from rrl_tf.errors import InvalidInput
from rrl_tf.models.presets import Preset
from rrl_tf.models.trained import read_preset, write_preset
from rrl_tf.presets import FOLDER, is_on_hub, read_metadata, trained_presets


class FromPreset:
    """Beside `keras.Model` among the bases of a model with named configurations.

    A model names its table in its header, `class Network(FromPreset, keras.Model, presets=TABLE)`.

    Attributes:
        presets: dict name -> what it is, in one sentence: configurations, and those with trained
            weights that are part of the package.
    """

    presets: ClassVar[dict[str, str]] = {}
    _preset_table: ClassVar[Mapping[str, Preset]] = {}

    def __init_subclass__(cls, presets: Mapping[str, Preset] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if presets is not None:
            cls._preset_table = presets
            cls.presets = {name: preset["description"] for name, preset in presets.items()}
            cls.presets |= trained_presets(cls.__name__)

    @classmethod
    def from_preset(
        cls, name: str | os.PathLike, load_weights: bool | None = None, **overrides: Any
    ) -> Self:
        """A model with a published configuration, or ours, and new weights; or a trained one.

        Args:
            name: one of `presets`, which says what each of them is; `rrl_tf.models.presets` has
                their numbers and sources. Or a folder that `save_to_preset` wrote, on the
                Hugging Face Hub as `hf://owner/name` or `hf://owner/name@revision`.
            load_weights: whether a trained preset comes with its weights; by default it does.
                A configuration has none.
            **overrides: of a configuration, arguments that replace the preset's, or that it leaves
                open. A dict (`block=`, `coordinates=`, `core_arguments=`) replaces single entries
                of the preset's dict.

        Raises:
            InvalidInput: for an unknown name, which lists the known ones; for weights of what has
                none; for a folder that is damaged or holds a model of another class; if the Hub
                has it not, cannot be reached, or its package is missing.

        Example:

        >>> from rrl_tf.models import MLPClassifier
        >>> "patch-mnist" in MLPClassifier.presets
        True
        >>> model = MLPClassifier.from_preset("patch-mnist", hidden_units=(64,))
        """
        if not isinstance(load_weights, bool | None):
            raise InvalidInput(
                f"load_weights must be True, False or None; received {load_weights!r}"
            )
        if str(name) in cls._preset_table:
            if load_weights:
                raise InvalidInput(f"load_weights needs a trained preset; received {name!r}")
            return cls(**preset_config(cls._preset_table, str(name), overrides))
        has_folder = is_on_hub(name) or pathlib.Path(name).is_dir()
        if str(name) not in cls.presets and not has_folder:
            raise InvalidInput(
                f"`preset` must be one of {tuple(cls.presets)}; received {_with_owner(str(name))}"
            )
        if overrides:
            raise InvalidInput(
                f"a trained preset is as it was trained; received {sorted(overrides)} for {name!r}"
            )
        model = read_preset(name, load_weights in (None, True))
        if not isinstance(model, cls):
            raise InvalidInput(
                f"{name!r} must hold a {cls.__name__}; received a {type(model).__name__}"
            )
        return model

    def save_to_preset(self, folder: str | os.PathLike, description: str = "") -> pathlib.Path:
        """Writes configuration and weights to a new folder that `from_preset` reads.

        Args:
            folder: must not be there yet.
            description: what it is, in one sentence.

        Raises:
            InvalidInput: if the model has no weights yet, or the folder is there or has the name of
                a known preset, which `from_preset` would give in its place.

        Example:

        >>> model.save_to_preset("presets/mine")  # doctest: +SKIP
        """
        return write_preset(self, folder, description)


def _with_owner(name):
    """The name, and whose trained preset it is, where it is one of another model."""
    if name not in trained_presets():
        return repr(name)
    return f"{name!r}, a preset of {read_metadata(FOLDER / name)['class']}"


def preset_config(
    presets: Mapping[str, Preset], name: str, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """The configuration of a preset, with some arguments replaced.

    Args:
        presets: dict name -> preset.
        name: which one.
        overrides: arguments to replace. Where both the preset's value and the override are dicts
            (as `block=`), the override's entries replace the preset's one by one.

    Returns:
        A new dict of keyword arguments.

    Raises:
        InvalidInput: for an unknown name; it lists the known ones.
    """
    one_of("preset", name, tuple(presets))
    config = copy.deepcopy(presets[name]["config"])
    for argument, value in overrides.items():
        if isinstance(value, dict) and isinstance(config.get(argument), dict):
            value = {**config[argument], **value}
        config[argument] = value
    return config
