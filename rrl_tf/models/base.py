"""The base class of models: named architectures and trained models."""

from __future__ import annotations

import copy
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
from keras import ops

from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import BaseLayer, make_dense
from rrl_tf.models.architectures import Architecture
from rrl_tf.models.trained import read_preset, write_preset
from rrl_tf.presets import FOLDER, is_on_hub, read_metadata, trained_presets


class BaseModel(BaseLayer, keras.Model):
    """A model that is built from the name of an architecture or of a trained model.

    A subclass names its table of architectures in its header:
    `class Network(BaseModel, architectures=TABLE)`.

    Attributes:
        presets: dict name -> description in one sentence, of its architectures and of the trained
            models in the package.
    """

    presets: ClassVar[dict[str, str]] = {}
    _architectures: ClassVar[Mapping[str, Architecture]] = {}

    def __init_subclass__(
        cls, architectures: Mapping[str, Architecture] | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if architectures is not None:
            cls._architectures = architectures
            cls.presets = {name: each["description"] for name, each in architectures.items()}
            cls.presets |= trained_presets(cls.__name__)

    @classmethod
    def from_preset(
        cls, name: str | os.PathLike, load_weights: bool | None = None, **overrides: Any
    ) -> Self:
        """Return a named architecture with new weights, or a trained model.

        Args:
            name: name of an architecture or of a trained model, one of `presets`;
                `rrl_tf.models.architectures` has the numbers and sources of the architectures. Or
                a folder that `save_to_preset` wrote, or `hf://owner/name` or
                `hf://owner/name@revision` for such a folder on the Hugging Face Hub.
            load_weights: whether to load the weights of a trained model; by default True. An
                architecture has no weights to load.
            **overrides: for an architecture, arguments that it leaves open or that replace its own.
                A dict (`block=`, `coordinates=`, `core_arguments=`) replaces single entries of the
                architecture's dict.

        Raises:
            InvalidInput: for an unknown name, with a list of the known names; if an architecture
                should load weights; if the folder is damaged or holds a model of another class; if
                the Hub does not have it or cannot be reached, or its package is missing.

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
        if str(name) in cls._architectures:
            if load_weights:
                raise InvalidInput(f"load_weights needs a trained preset; received {name!r}")
            return cls(**architecture_config(cls._architectures, str(name), overrides))
        has_folder = is_on_hub(name) or pathlib.Path(name).is_dir()
        if str(name) not in cls.presets and not has_folder:
            raise InvalidInput(
                f"`preset` must be one of {tuple(cls.presets)}; received {_with_class(str(name))}"
            )
        if overrides:
            raise InvalidInput(
                f"a trained model takes no other arguments; received {sorted(overrides)} for "
                f"{name!r}"
            )
        model = read_preset(name, load_weights is not False)
        if not isinstance(model, cls):
            raise InvalidInput(
                f"{name!r} must hold a {cls.__name__}; received a {type(model).__name__}"
            )
        return model

    def save_to_preset(self, folder: str | os.PathLike, description: str = "") -> pathlib.Path:
        """Write configuration and weights to a new folder, which `from_preset` reads.

        Args:
            folder: path of a folder that does not exist.
            description: what the model does, in one sentence.

        Raises:
            InvalidInput: if the model is not built, the folder exists, or it has the name of a
                known preset, which `from_preset` would return instead.

        Example:

        >>> model.save_to_preset("presets/mine")  # doctest: +SKIP
        """
        return write_preset(self, folder, description)

    def compute_output_shape(self, inputs_shape: Any) -> Any:
        inputs = keras.tree.map_shape_structure(
            lambda shape: keras.KerasTensor(shape, dtype=self.compute_dtype), inputs_shape
        )
        return keras.tree.map_structure(lambda x: x.shape, self.compute_output_spec(inputs))


def _with_class(name):
    """Return the quoted name, followed by its class if it is a trained model of another class."""
    if name not in trained_presets():
        return repr(name)
    return f"{name!r}, a preset of {read_metadata(FOLDER / name)['class']}"


def architecture_config(
    architectures: Mapping[str, Architecture], name: str, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an architecture's keyword arguments with some of them replaced.

    If both the original value and the override are dicts (such as `block=`), the override replaces
    single entries.
    """
    config = copy.deepcopy(architectures[name]["config"])
    for argument, value in overrides.items():
        if isinstance(value, dict) and isinstance(config.get(argument), dict):
            value = {**config[argument], **value}
        config[argument] = value
    return config


def make_hidden(
    owner: keras.Model, sizes: Sequence[int], activation: str = "relu"
) -> list[keras.layers.Layer]:
    """Return dense layers `hidden_1`, `hidden_2`, ... of some sizes."""
    return [
        make_dense(owner, f"hidden_{i}", units, activation=activation)
        for i, units in enumerate(sizes, start=1)
    ]


def make_layer(
    argument: str,
    kind: type[keras.layers.Layer],
    arguments: Mapping[str, Any],
    /,
    **defaults: Any,
) -> keras.layers.Layer:
    """Return a layer made from a model's `argument`, a dict of the layer's arguments.

    Args:
        argument: name of the model's argument.
        kind: class of the layer.
        arguments: value of the model's argument.
        **defaults: arguments of the layer that `arguments` may replace.

    Raises:
        InvalidInput: if the layer does not take these arguments.
    """
    try:
        return kind(**{**defaults, **arguments})
    except InvalidInput:
        raise
    except (TypeError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise InvalidInput(
            f"`{argument}` must be a dict of arguments of {kind.__name__} ({reason}); "
            f"received {arguments!r}"
        ) from error


def build_in_turn(layers: Sequence[keras.layers.Layer], shape: Shape) -> Shape:
    """Build consecutive layers and return the shape of the last output."""
    for layer in layers:
        layer.build(shape)
        shape = layer.compute_output_shape(shape)
    return shape


def dueling_values(outputs: Tensor) -> Tensor:
    """Return `V + A - mean(A)` from `(..., 1 + A)`, a state's value followed by the advantages.

    References:
        - [Wang et al., 2016](https://arxiv.org/abs/1511.06581)
    """
    value, advantage = outputs[..., :1], outputs[..., 1:]
    return value + advantage - ops.mean(advantage, axis=-1, keepdims=True)
