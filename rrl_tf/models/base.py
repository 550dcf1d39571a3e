"""Define `BaseModel` and `ActionModel`, the base classes of the models."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import reprlib
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
from keras import ops

import rrl_tf
from rrl_tf._arguments import number_from, one_of, path_of, positive_int
from rrl_tf._atomic import draft_folder
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import CensoredNormal
from rrl_tf.layers.base import BaseLayer, dense_on_rows, make_dense
from rrl_tf.models.architectures import Architecture
from rrl_tf.pretrained import (
    FOLDER,
    METADATA,
    checksums,
    is_on_hub,
    pretrained_folder,
    pretrained_models,
    read_metadata,
)

DISTRIBUTIONS = ("point", "censored_normal")
_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
# Errors that JSON and Keras raise for a file that does not describe a model.
_UNREADABLE = (ValueError, TypeError, LookupError, OSError, AttributeError, RecursionError)


class BaseModel(BaseLayer, keras.Model):
    """Base class of models that `from_preset` creates and `save_to_preset` saves.

    A subclass passes its dict of architectures as a class argument:
    `class Network(BaseModel, architectures=TABLE)`.

    Attributes:
        presets: dict name -> description, with the architectures of the class and its pretrained
            models in the package.
    """

    presets: ClassVar[dict[str, str]] = {}
    _architectures: ClassVar[Mapping[str, Architecture]] = {}
    _integer_inputs: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(
        cls, architectures: Mapping[str, Architecture] | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if architectures is not None:
            cls._architectures = architectures
            cls.presets = {name: each["description"] for name, each in architectures.items()}
            cls.presets |= pretrained_models(cls.__name__)

    @classmethod
    def from_preset(
        cls, name: str | os.PathLike, load_weights: bool | None = None, **overrides: Any
    ) -> Self:
        """Return a named architecture with new weights, or a pretrained model.

        Args:
            name: one of

                - an architecture or a pretrained model in `presets`; `rrl_tf.models.architectures`
                  lists the arguments and sources of the architectures;
                - a folder that `save_to_preset` wrote;
                - `hf://owner/name` or `hf://owner/name@revision`, such a folder on the Hugging Face
                  Hub.
            load_weights: whether to load the weights of a pretrained model. `None` means True for a
                pretrained model. An architecture has no weights to load.
            **overrides: arguments of the model that replace those of an architecture or that the
                architecture does not set. A dict (`block=`, `coordinates=`, `core_arguments=`) is
                merged into the dict of the architecture.

        Raises:
            InvalidInput: if the name is unknown (the message lists the known names); if
                `load_weights` is True for an architecture; if the folder is damaged or contains a
                model of a different class; if the folder cannot be downloaded from the Hub.

        Example:

        >>> from rrl_tf.models import MLPClassifier
        >>> "patch-mnist" in MLPClassifier.presets
        True
        >>> model = MLPClassifier.from_preset("patch-mnist", hidden_units=(64,))
        """
        if not isinstance(load_weights, bool | None):
            raise InvalidInput(
                f"`load_weights` must be True, False or None; received {load_weights!r}"
            )
        if str(name) in cls._architectures:
            if load_weights:
                raise InvalidInput(
                    "`load_weights` must be None or False for an architecture, which has no "
                    f"weights; received {name!r}"
                )
            return cls(**architecture_config(cls._architectures, str(name), overrides))
        has_folder = is_on_hub(name) or path_of("preset", name).is_dir()
        if str(name) not in cls.presets and not has_folder:
            raise InvalidInput(
                f"`preset` must be one of {tuple(cls.presets)}; received {_with_class(str(name))}"
            )
        if overrides:
            raise InvalidInput(
                f"the pretrained model {name!r} must be loaded without other arguments; received "
                f"{sorted(overrides)}"
            )
        model = read_pretrained(name, load_weights is not False)
        if not isinstance(model, cls):
            raise InvalidInput(
                f"{name!r} must hold a {cls.__name__}; received a {type(model).__name__}"
            )
        return model

    def save_to_preset(
        self,
        folder: str | os.PathLike,
        description: str = "",
        extra_files: Mapping[str, str | bytes] | None = None,
    ) -> pathlib.Path:
        """Write the configuration and the weights to a new folder, which `from_preset` can read.

        The folder appears only when it is complete.

        Args:
            folder: path of the folder, which must not exist.
            description: what the model does, in one sentence.
            extra_files: dict relative path -> text or bytes, files to add to the folder.

        Returns:
            The folder.

        Raises:
            InvalidInput: if the model is not built, if the folder exists, or if its path equals a
                known name, because `from_preset` would load the model of that name instead.
            OSError: if a file cannot be written; no files remain.

        Example:

        >>> model.save_to_preset("presets/mine")  # doctest: +SKIP
        """
        self._check_folder(folder)
        folder = pathlib.Path(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(folder.parent) as draft:
            config = keras.saving.serialize_keras_object(self)
            (draft / _CONFIG).write_text(json.dumps(config, indent=2) + "\n")
            self._write_weights(draft)
            for name, content in (extra_files or {}).items():
                file = draft / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content if isinstance(content, bytes) else content.encode())
            metadata = {
                "class": type(self).__name__,
                "description": description,
                "parameters": self.count_params(),
                "rrl_tf_version": rrl_tf.__version__,
                "keras_version": keras.__version__,
                "sha256": checksums(draft),
            }
            (draft / METADATA).write_text(json.dumps(metadata, indent=2) + "\n")
            draft.rename(folder)
        return folder

    def _check_folder(self, folder):
        """Raise an `InvalidInput` unless `save_to_preset` can write this model to `folder`."""
        if is_on_hub(folder):
            raise InvalidInput(
                "`folder` must be local; `hf upload owner/name FOLDER` copies it to the Hub; "
                f"received {folder!r}"
            )
        if not self.built:
            raise InvalidInput(f"the model must be built; received {self.name} without weights")
        known = {**self.presets, **pretrained_models()}
        if str(pathlib.Path(folder)) in known or pathlib.Path(folder).exists():
            raise InvalidInput(
                "`folder` must be new and must not have the name of a known preset, "
                f"{', '.join(known)}, which `from_preset` would load instead; received "
                f"{str(folder)!r}"
            )

    def _write_weights(self, folder):
        """Write the same file as `save_weights`, which would crash the process on a full disk.

        `save` does not crash: Keras collects the weights in memory, and Python writes the archive.
        """
        archive = folder / "model.keras"
        self.save(archive)
        with zipfile.ZipFile(archive) as file:
            file.extract(_WEIGHTS, folder)
        archive.unlink()

    def export(
        self,
        filepath: str | os.PathLike,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Export `call` with Keras, by default for inputs of the dtypes that the model documents.

        `rrl_tf.export` exports policies and classifiers with preprocessing and named signatures.

        Args:
            filepath, format, verbose, **kwargs: as in `keras.Model.export`.
            input_signature: as in `keras.Model.export`. `None` means the shapes that the model was
                built with, with a free batch dimension.

        Raises:
            InvalidInput: if the model was built without shapes and `input_signature` is None.
        """
        if input_signature is None and self.built:
            input_signature = self._export_signature()
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def _export_signature(self) -> list[Any]:
        """Return the specs of the positional arguments of `call` in an export."""
        shapes = (self.get_build_config() or {}).get("input_shape")
        if shapes is None:
            raise InvalidInput(
                f"`input_signature` must be given, because {self.name} was built without the "
                "shapes of its inputs; received None"
            )
        specs = self._input_specs(shapes)
        return [
            keras.tree.map_structure(
                lambda spec: keras.InputSpec(spec.dtype, (None, *spec.shape[1:]), name=spec.name),
                specs,
            )
        ]

    def _input_specs(self, shapes: Any) -> Any:
        """Return the specs of the inputs, one for each shape, with the dtypes that `call` takes."""
        if not isinstance(shapes, Mapping):
            return keras.InputSpec(self.variable_dtype, tuple(shapes))
        return {
            name: keras.InputSpec(
                "int32" if name in self._integer_inputs else self.variable_dtype,
                tuple(shape),
                name=name,
            )
            for name, shape in shapes.items()
        }

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        # The only argument has the name of that of `build`, with which `summary` passes it.
        (inputs_shape,) = (*args, *kwargs.values())
        inputs = keras.tree.map_structure(
            lambda spec: keras.KerasTensor(spec.shape, dtype=spec.dtype),
            self._input_specs(inputs_shape),
        )
        return keras.tree.map_structure(lambda x: x.shape, self.compute_output_spec(inputs))


class ActionModel(BaseModel):
    """Base class of models that predict actions.

    Attributes:
        action_distribution: a `CensoredNormal` layer, or None. A change of its `noise_scale` has no
            effect on functions that are already traced.
    """

    _integer_inputs = ("timesteps",)

    def _set_action(
        self,
        state_size: int,
        action_size: int,
        discrete: bool,
        distribution: str,
        noise_scale: float,
    ) -> None:
        """Store the arguments about states and actions, and create the layer of the distribution.

        Raises:
            InvalidInput: for an argument out of its range, or for a distribution if actions are
                discrete.
        """
        self.state_size = positive_int("state_size", state_size)
        self.action_size = positive_int("action_size", action_size)
        self.discrete = bool(discrete)
        self.distribution = one_of("distribution", distribution, DISTRIBUTIONS)
        self.noise_scale = number_from("noise_scale", noise_scale, 0, 1)
        self.action_distribution = None
        if distribution != "point":
            if discrete:
                raise InvalidInput(
                    "`distribution` must be 'point' for discrete actions; received "
                    f"{distribution!r}"
                )
            self.action_distribution = CensoredNormal(
                noise_scale, dtype="float32", name="distribution"
            )
        self._action_activation = "tanh" if distribution == "point" and not discrete else None

    def _actions(self, prediction: Tensor) -> dict[str, Tensor]:
        """Return the dict of outputs, `"action"` and maybe `"distribution"`, for `(..., A)`."""
        if self.action_distribution is None:
            return {"action": prediction}
        return self.action_distribution(prediction)


def one_hot(index: Tensor, depth: int, dtype: str, axis: int = -1) -> Tensor:
    """Return one-hot vectors along a new axis, zeros for the index -1.

    ONNX's `OneHot`, to which `keras.ops.one_hot` is converted, counts -1 from the end.
    """
    shape = [1] * (len(index.shape) + 1)
    shape[axis] = depth
    dtype_of_index = keras.backend.standardize_dtype(index.dtype)
    positions = ops.reshape(ops.arange(depth, dtype=dtype_of_index), shape)
    return ops.cast(ops.equal(ops.expand_dims(index, axis), positions), dtype)


def read_pretrained(name: str | os.PathLike, load_weights: bool = True) -> keras.Model:
    """Return a pretrained model of any class.

    Args:
        name: as for `rrl_tf.pretrained.pretrained_folder`.
        load_weights: whether to load the trained weights.

    Raises:
        InvalidInput: as for `pretrained_folder`, or if this version of the package cannot create
            the model.
    """
    folder = pretrained_folder(name)
    try:
        model = keras.saving.deserialize_keras_object(json.loads((folder / _CONFIG).read_text()))
        if not isinstance(model, keras.Model):
            raise TypeError(f"{_CONFIG} describes {reprlib.repr(model)}, not a model")
        if load_weights:
            model.load_weights(folder / _WEIGHTS)
    except _UNREADABLE as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        written = read_metadata(folder).get("rrl_tf_version")
        raise InvalidInput(
            f"{str(folder / _CONFIG)!r} was written by rrl_tf {written} and must describe a model "
            f"of rrl_tf {rrl_tf.__version__}, with weights in {_WEIGHTS}; received another "
            f"({first})"
        ) from error
    return model


def _with_class(name):
    """Return the quoted name, with the class of the model if it is a pretrained model."""
    if name not in pretrained_models():
        return repr(name)
    return f"{name!r}, a pretrained {read_metadata(FOLDER / name)['class']}"


def architecture_config(
    architectures: Mapping[str, Architecture], name: str, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keyword arguments of an architecture, updated with `overrides`.

    A dict (such as `block=`) is merged into the dict of the architecture.
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
    """Return dense layers of the given sizes with the names `hidden_1`, `hidden_2`, ..."""
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
    """Create a layer from an argument of a model that is a dict of the layer's arguments.

    Args:
        argument: name of the model's argument, for the error message.
        kind: class of the layer.
        arguments: arguments of the layer.
        **defaults: arguments of the layer if `arguments` does not contain them.

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


def make_q_head(
    owner: keras.Model,
    num_actions: int,
    hidden_units: Sequence[int],
    dueling: bool,
    activation: str = "relu",
    kernel_initializer: Initializer | None = None,
) -> tuple[list[keras.layers.Layer], keras.layers.Layer]:
    """Return the hidden layers and the last layer of a Q network, for `q_values`.

    Args:
        owner: model with a `kernel_initializer`.
        num_actions: A, the number of actions.
        hidden_units: sizes of the hidden layers.
        dueling: whether the last layer returns the inputs of `dueling_values`.
        activation: activation of the hidden layers.
        kernel_initializer: initialiser of the last matrix; `None` means the owner's.
    """
    return make_hidden(owner, hidden_units, activation), make_dense(
        owner,
        "head",
        num_actions + (1 if dueling else 0),  # the first is the value of the state
        full_precision=True,
        kernel_initializer=kernel_initializer,
    )


def q_values(layers: Sequence[keras.layers.Layer], x: Tensor, dueling: bool) -> Tensor:
    """Return the Q values `(..., A)` of features `(..., F)`.

    Args:
        layers: the hidden layers and the last layer, from `make_q_head`.
        x: the features.
        dueling: as in `make_q_head`.
    """
    for layer in layers:
        x = layer(x) if len(x.shape) == 2 else dense_on_rows(layer, x)
    return dueling_values(x) if dueling else x


def dueling_values(outputs: Tensor) -> Tensor:
    """Return the Q values `V + A - mean(A)` of a dueling network.

    Args:
        outputs: `(..., 1 + A)`, the value of the state, followed by the advantages of the actions.

    References:
        - [Wang et al., 2016](https://arxiv.org/abs/1511.06581)
    """
    value, advantage = outputs[..., :1], outputs[..., 1:]
    return value + advantage - ops.mean(advantage, axis=-1, keepdims=True)
