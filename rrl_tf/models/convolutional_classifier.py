"""The convolutional network that relations are compared with."""

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
from rrl_tf.models._grids import check_grid, check_grid_shape, check_room, dense
from rrl_tf.models.presets import CONVOLUTIONAL_CLASSIFIER


@keras.saving.register_keras_serializable(package="rrl_tf")
class ConvolutionalClassifier(FromPreset, keras.Model, presets=CONVOLUTIONAL_CLASSIFIER):
    """Classifies images with convolutions, pooling and dense layers.

    Args:
        num_classes: K, the number of classes.
        conv_filters: channels of each convolution; a ReLU follows each.
        conv_kernel_size: edge of the kernels, in pixels. Nothing is padded.
        pool_after: convolutions, counted from 1, that a maximum over 2 x 2 pixels follows.
        hidden_units: sizes of the ReLU layers between the last convolution and the classes.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        images: `(B, height, width, C)`, values in [0, 1].

    Returns:
        Logits `(B, K)`, float32 also under a mixed policy.

    Raises:
        InvalidInput: for an argument out of its range, or images of a shape that does not fit.

    Example:

    >>> model = ConvolutionalClassifier.from_preset("book")
    >>> tuple(model(keras.ops.ones((1, 28, 28, 1))).shape), model.count_params()
    ((1, 10), 88252)

    References:
        - "Deep Reinforcement Learning in Action", listing 10.6
    """

    def __init__(
        self,
        num_classes: int = 10,
        conv_filters: Sequence[int] = (16, 32),
        conv_kernel_size: int = 3,
        pool_after: Sequence[int] = (1, 2),
        hidden_units: Sequence[int] = (64,),
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = positive_int("num_classes", num_classes)
        self.conv_filters = positive_ints("conv_filters", conv_filters)
        self.conv_kernel_size = positive_int("conv_kernel_size", conv_kernel_size)
        self.pool_after = positive_ints("pool_after", pool_after)
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        if max(self.pool_after, default=0) > len(self.conv_filters):
            raise InvalidInput(
                f"`pool_after` counts the {len(self.conv_filters)} convolutions; "
                f"received {pool_after!r}"
            )
        self._make_layers()

    def _make_layers(self):
        self.grid_layers = []
        for i, filters in enumerate(self.conv_filters, start=1):
            convolution = keras.layers.Conv2D(
                filters,
                self.conv_kernel_size,
                activation="relu",
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name=f"convolution_{i}",
            )
            self.grid_layers.append(convolution)
            if i in self.pool_after:
                self.grid_layers.append(keras.layers.MaxPooling2D(2, dtype=self.dtype_policy))
        self.hidden = [
            dense(self, f"hidden_{i}", units, "relu")
            for i, units in enumerate(self.hidden_units, start=1)
        ]
        self.head = dense(self, "head", self.num_classes, full_precision=True)

    @property
    def convolutions(self) -> list[keras.layers.Conv2D]:
        """The convolutions, without the pooling between them."""
        return [layer for layer in self.grid_layers if isinstance(layer, keras.layers.Conv2D)]

    def build(self, images_shape: Shape) -> None:
        check_grid_shape("ConvolutionalClassifier", images_shape)
        shape = tuple(images_shape)
        if None in shape[1:]:
            raise InvalidInput(
                "ConvolutionalClassifier has a weight for every place of the last convolution, so "
                f"the size of the images must be known; received the shape {shape}"
            )
        for layer in self.grid_layers:
            check_room(layer, shape, pool="the pooling of `pool_after`")
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
        _, rows, columns, filters = shape
        features = rows * columns * filters
        for layer in [*self.hidden, self.head]:
            layer.build((None, features))
            features = layer.units
        self._expected_shape = (None, *images_shape[1:])

    def call(self, images: Tensor, training: bool = False) -> Tensor:
        check_grid(self.name, self._expected_shape, images.shape)
        x = images  # (B, height, width, C)
        for layer in self.grid_layers:
            x = layer(x)
        _, rows, columns, filters = x.shape
        x = ops.reshape(x, (-1, rows * columns * filters))
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
            "conv_filters": self.conv_filters,
            "conv_kernel_size": self.conv_kernel_size,
            "pool_after": self.pool_after,
            "hidden_units": self.hidden_units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
