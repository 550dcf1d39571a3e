"""From an image to its class by dense layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import positive_int, positive_ints
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import tensor_spec
from rrl_tf.models._from_preset import FromPreset
from rrl_tf.models._grids import check_grid, check_grid_shape, dense
from rrl_tf.models.presets import MLP_CLASSIFIER


@keras.saving.register_keras_serializable(package="rrl_tf")
class MLPClassifier(FromPreset, keras.Model, presets=MLP_CLASSIFIER):
    """Classifies images with dense layers on all pixels.

    Args:
        num_classes: K, the number of classes.
        hidden_units: sizes of the ReLU layers.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        images: `(B, height, width, C)`, values in [0, 1].

    Returns:
        Logits `(B, K)`, float32 also under a mixed policy.

    Raises:
        InvalidInput: for an argument out of its range, or images of a shape that does not fit.

    Example:

    >>> model = MLPClassifier.from_preset("patch-mnist")
    >>> tuple(model(keras.ops.ones((1, 28, 28, 1))).shape), model.count_params()
    ((1, 10), 623290)

    References:
        - "Self-Attention", SensIO blog, 17 March 2021 (in Spanish)
    """

    def __init__(
        self,
        num_classes: int = 10,
        hidden_units: Sequence[int] = (128,),
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = positive_int("num_classes", num_classes)
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.hidden = [
            dense(self, f"hidden_{i}", units, "relu")
            for i, units in enumerate(self.hidden_units, start=1)
        ]
        self.head = dense(self, "head", self.num_classes, full_precision=True)

    def build(self, images_shape: Shape) -> None:
        check_grid_shape("MLPClassifier", images_shape)
        _, height, width, channels = images_shape
        if None in (height, width):
            raise InvalidInput(
                "MLPClassifier has a weight for every pixel, so the size of the images must be "
                f"known; received the shape {tuple(images_shape)}"
            )
        features = height * width * channels
        for layer in [*self.hidden, self.head]:
            layer.build((None, features))
            features = layer.units
        self._expected_shape = (None, *images_shape[1:])

    def call(self, images: Tensor, training: bool = False) -> Tensor:
        check_grid(self.name, self._expected_shape, images.shape)
        _, height, width, channels = images.shape
        x = ops.reshape(images, (-1, height * width * channels))
        for layer in [*self.hidden, self.head]:
            x = layer(x)
        return x

    def compute_output_shape(self, images_shape: Shape) -> Shape:
        return (images_shape[0], self.num_classes)

    def compute_output_spec(self, images: Tensor, training: bool = False) -> keras.KerasTensor:
        return tensor_spec(self.head, self.compute_output_shape(images.shape))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "hidden_units": self.hidden_units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
