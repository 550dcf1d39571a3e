"""From an image to its class, by way of relations between its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import one_of, optional_dict, positive_int, positive_ints
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.layers import AppendCoordinates, RelationalBlock, RelationalModule
from rrl_tf.layers.base import tensor_spec
from rrl_tf.models._from_preset import FromPreset
from rrl_tf.models._grids import (
    OnGrid,
    check_grid,
    check_grid_shape,
    check_room,
    dense,
    layer_of,
    one_each,
)
from rrl_tf.models.presets import RELATIONAL_CLASSIFIER

CONV_PADDINGS = ("valid", "same")


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalClassifier(FromPreset, OnGrid, keras.Model, presets=RELATIONAL_CLASSIFIER):
    """Classifies images by letting their parts attend to each other.

    Convolutions turn the image into a smaller grid, each cell of which is an entity; coordinates
    tell it where it is, rounds of message passing relate the entities, and the maximum over them
    of every feature goes to the classes. Cell (row, column) of the grid is node
    `row * columns + column`.

    Args:
        num_classes: K, the number of classes.
        conv_filters: channels of each convolution.
        conv_kernel_size: edge of the kernels, in pixels; one for all, or one for each.
        conv_strides: step of the kernels; one for all, or one for each.
        conv_padding: `"valid"` or `"same"`.
        conv_norm: whether the features of every cell are normalised between a convolution and its
            ReLU.
        coordinates: arguments of `AppendCoordinates`, or `None` for no coordinates.
        block: arguments of `RelationalBlock`.
        num_rounds: rounds of message passing.
        share_weights: whether the rounds share their weights.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        images: `(B, height, width, C)`, values in [0, 1].
        training: whether to apply dropout.
        return_attention_scores: whether to return the attention as well.

    Returns:
        Logits `(B, K)`, float32 also under a mixed policy; with `return_attention_scores`, a pair
        of them and a dict `"round_1"`, `"round_2"`, ... -> attention `(B, H, N, N)`.

    Raises:
        InvalidInput: for an argument out of its range, or images of a shape that does not fit.

    Example:

    >>> model = RelationalClassifier.from_preset("book")
    >>> logits, attention = model(keras.ops.ones((1, 28, 28, 1)), return_attention_scores=True)
    >>> tuple(logits.shape), tuple(attention["round_1"].shape), model.count_params()
    ((1, 10), (1, 1, 256, 256), 85228)

    References:
        - "Deep Reinforcement Learning in Action", listing 10.2
        - [Zambaldi et al., 2019](https://arxiv.org/abs/1806.01830)
    """

    def __init__(
        self,
        num_classes: int = 10,
        conv_filters: Sequence[int] = (16, 32),
        conv_kernel_size: int | Sequence[int] = 3,
        conv_strides: int | Sequence[int] = 2,
        conv_padding: str = "same",
        conv_norm: bool = False,
        coordinates: Mapping[str, Any] | None = None,
        block: Mapping[str, Any] | None = None,
        num_rounds: int = 1,
        share_weights: bool = False,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = positive_int("num_classes", num_classes)
        self.conv_filters = positive_ints("conv_filters", conv_filters)
        count = len(self.conv_filters)
        self.conv_kernel_size = one_each("conv_kernel_size", conv_kernel_size, count)
        self.conv_strides = one_each("conv_strides", conv_strides, count)
        self.conv_padding = one_of("conv_padding", conv_padding, CONV_PADDINGS)
        self.conv_norm = conv_norm
        self.coordinates = optional_dict("coordinates", coordinates)
        block = optional_dict("block", block)
        self.block = {"num_heads": 2, "key_size": 16} if block is None else block
        self.num_rounds = positive_int("num_rounds", num_rounds)
        self.share_weights = share_weights
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._make_layers()

    def _make_layers(self):
        self.grid_layers = []
        sizes = zip(self.conv_filters, self.conv_kernel_size, self.conv_strides)
        for i, (filters, kernel_size, strides) in enumerate(sizes, start=1):
            convolution = keras.layers.Conv2D(
                filters,
                kernel_size,
                strides,
                padding=self.conv_padding,
                activation=None if self.conv_norm else "relu",
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name=f"convolution_{i}",
            )
            self.grid_layers.append(convolution)
            if self.conv_norm:
                norm = keras.layers.LayerNormalization(
                    epsilon=1e-5, dtype=self.dtype_policy, name=f"convolution_norm_{i}"
                )
                self.grid_layers += [norm, keras.layers.ReLU(dtype=self.dtype_policy)]
        if self.coordinates is not None:
            ours = {"dtype": self.dtype_policy}
            layer = layer_of("coordinates", AppendCoordinates, self.coordinates, **ours)
            self.grid_layers.append(layer)
        self.relations = RelationalModule(
            layer_of(
                "block",
                RelationalBlock,
                self.block,
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name="block",
            ),
            num_rounds=self.num_rounds,
            share_weights=self.share_weights,
            dtype=self.dtype_policy,
            name="relations",
        )
        self.head = dense(self, "head", self.num_classes, full_precision=True)

    def build(self, images_shape: Shape) -> None:
        check_grid_shape("RelationalClassifier", images_shape)
        shape = tuple(images_shape)
        for layer in self.grid_layers:
            check_room(layer, shape)
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
        nodes = self._nodes_shape(images_shape)
        self.relations.build(nodes)
        self.head.build((None, self.relations.compute_output_shape(nodes)[-1]))
        any_size = not self.relations.block.attention.fixed_entities
        _, height, width, channels = images_shape
        self._expected_shape = (
            (None, None, None, channels) if any_size else (None, height, width, channels)
        )

    def call(
        self, images: Tensor, training: bool = False, return_attention_scores: bool = False
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        check_grid(self.name, self._expected_shape, images.shape)
        x = images  # (B, height, width, C)
        for layer in self.grid_layers:
            x = layer(x)
        _, rows, columns, features = ops.shape(x)
        x = ops.reshape(x, (-1, rows * columns, features))  # (B, N, F)
        x, attention = self.relations(
            x, grid=(rows, columns), training=training, return_attention_scores=True
        )
        logits = self.head(ops.max(x, axis=1))
        return (logits, attention) if return_attention_scores else logits

    def compute_output_shape(self, images_shape: Shape) -> Shape:
        return (images_shape[0], self.num_classes)

    def compute_output_spec(
        self, images: Tensor, training: bool = False, return_attention_scores: bool = False
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, dict[str, keras.KerasTensor]]:
        logits = tensor_spec(self.head, self.compute_output_shape(images.shape))
        if not return_attention_scores:
            return logits
        nodes = keras.KerasTensor(self._nodes_shape(images.shape), dtype=self.compute_dtype)
        _, attention = self.relations.compute_output_spec(
            nodes, grid=self.grid_shape(images.shape), return_attention_scores=True
        )
        return logits, attention

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "conv_filters": self.conv_filters,
            "conv_kernel_size": self.conv_kernel_size,
            "conv_strides": self.conv_strides,
            "conv_padding": self.conv_padding,
            "conv_norm": self.conv_norm,
            "coordinates": self.coordinates and dict(self.coordinates),
            "block": dict(self.block),
            "num_rounds": self.num_rounds,
            "share_weights": self.share_weights,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
