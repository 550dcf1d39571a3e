"""Define image classifiers: relational, convolutional, dense, and with attention of patches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import (
    one_of,
    optional_dict,
    optional_positive_int,
    positive_int,
    positive_ints,
)
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import MultiHeadDotProductAttention
from rrl_tf.layers.base import LayerNormalization, make_dense
from rrl_tf.models.architectures import (
    CONVOLUTIONAL_CLASSIFIER,
    MLP_CLASSIFIER,
    PATCH_ATTENTION_CLASSIFIER,
    RELATIONAL_CLASSIFIER,
)
from rrl_tf.models.base import build_in_turn, make_hidden
from rrl_tf.models.image_model import (
    ImageModel,
    make_coordinates,
    make_relations,
    one_per_convolution,
)

CONV_PADDINGS = ("valid", "same")


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalClassifier(ImageModel, architectures=RELATIONAL_CLASSIFIER):
    """Classify images by attention between the cells of a grid.

    Convolutions turn the image into a smaller grid, whose cells are the entities, and coordinates
    are appended to their features. Rounds of message passing update the entities. A dense layer
    maps the maximum of every feature over the entities to the logits. Cell (row, column) of the
    grid is entity `row * columns + column`.

    Args:
        num_classes: K, the number of classes.
        conv_filters: channels of each convolution.
        conv_kernel_size: edge of the kernels in pixels: an int for all convolutions, or a sequence
            with one size for each.
        conv_strides: stride of the convolutions in pixels: an int, or a sequence.
        conv_padding: `"valid"` or `"same"`.
        conv_norm: whether to normalise the features of every cell between a convolution and its
            ReLU.
        coordinates: arguments of `AppendCoordinates`, or `None` for no coordinates.
        block: arguments of `RelationalBlock`.
        num_rounds: number of rounds of message passing.
        share_weights: whether the rounds share their weights.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        images: `(B, height, width, C)`, values in [0, 1].
        training: whether to apply dropout.
        return_attention_scores: whether to return the attention as well.

    Returns:
        Logits `(B, K)`, float32 also under a mixed-precision policy. With
        `return_attention_scores`, a pair of the logits and a dict `"round_1"`, `"round_2"`, ... ->
        attention `(B, H, N, N)`.

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
        self.conv_kernel_size = one_per_convolution("conv_kernel_size", conv_kernel_size, count)
        self.conv_strides = one_per_convolution("conv_strides", conv_strides, count)
        self.conv_padding = one_of("conv_padding", conv_padding, CONV_PADDINGS)
        self.conv_norm = conv_norm
        self.coordinates = optional_dict("coordinates", coordinates)
        self.block = optional_dict("block", block, {"num_heads": 2, "key_size": 16})
        self.num_rounds = positive_int("num_rounds", num_rounds)
        self.share_weights = share_weights
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.grid_layers = [*self._convolutions(), *make_coordinates(self)]
        self.relations = make_relations(self)
        self.head = make_dense(self, "head", self.num_classes, full_precision=True)

    def _convolutions(self):
        sizes = zip(self.conv_filters, self.conv_kernel_size, self.conv_strides)
        for i, (filters, kernel_size, strides) in enumerate(sizes, start=1):
            yield self._convolution(
                f"convolution_{i}",
                filters,
                kernel_size,
                strides,
                self.conv_padding,
                None if self.conv_norm else "relu",
            )
            if self.conv_norm:
                yield LayerNormalization(
                    epsilon=1e-5, dtype=self.dtype_policy, name=f"convolution_norm_{i}"
                )
                yield keras.layers.ReLU(dtype=self.dtype_policy)

    def build(self, images_shape: Shape) -> None:
        self._build_grid(images_shape)
        nodes = self._nodes_shape(images_shape)
        build_in_turn([self.relations, self.head], nodes)
        self._expect(images_shape, not self.relations.block.attention.fixed_entities)

    def call(
        self, images: Tensor, training: bool = False, return_attention_scores: bool = False
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        x = self._cells(images)
        _, rows, columns, features = ops.shape(x)
        x = ops.reshape(x, (-1, rows * columns, features))  # (B, N, F)
        x, attention = self.relations(
            x, grid=(rows, columns), training=training, return_attention_scores=True
        )
        logits = self.head(ops.max(x, axis=1))
        return (logits, attention) if return_attention_scores else logits


@keras.saving.register_keras_serializable(package="rrl_tf")
class ConvolutionalClassifier(ImageModel, architectures=CONVOLUTIONAL_CLASSIFIER):
    """Classify images with convolutions, pooling and dense layers.

    Args:
        num_classes: K, the number of classes.
        conv_filters: channels of each convolution; a ReLU follows each.
        conv_kernel_size: edge of the kernels in pixels, without padding.
        pool_after: indices, counted from 1, of the convolutions that a 2 x 2 max-pooling follows.
        hidden_units: sizes of the ReLU layers between the last convolution and the logits.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        images: `(B, height, width, C)`, values in [0, 1].

    Returns:
        Logits `(B, K)`, float32 also under a mixed-precision policy.

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
                f"`pool_after` must be indices of convolutions, 1 to {len(self.conv_filters)}; "
                f"received {pool_after!r}"
            )
        self.grid_layers = []
        for i, filters in enumerate(self.conv_filters, start=1):
            self.grid_layers.append(
                self._convolution(f"convolution_{i}", filters, self.conv_kernel_size)
            )
            if i in self.pool_after:
                self.grid_layers.append(keras.layers.MaxPooling2D(2, dtype=self.dtype_policy))
        self.hidden = make_hidden(self, self.hidden_units)
        self.head = make_dense(self, "head", self.num_classes, full_precision=True)

    @property
    def convolutions(self) -> list[keras.layers.Layer]:
        """The convolutions, without the pooling between them."""
        pooling = keras.layers.MaxPooling2D
        return [layer for layer in self.grid_layers if not isinstance(layer, pooling)]

    def build(self, images_shape: Shape) -> None:
        self._features = math.prod(self._build_grid(images_shape, needs_size=True)[1:])
        build_in_turn([*self.hidden, self.head], (None, self._features))
        self._expect(images_shape, any_size=False)

    def call(self, images: Tensor, training: bool = False) -> Tensor:
        x = ops.reshape(self._cells(images), (-1, self._features))
        for layer in [*self.hidden, self.head]:
            x = layer(x)
        return x


@keras.saving.register_keras_serializable(package="rrl_tf")
class PatchAttentionClassifier(ImageModel, architectures=PATCH_ATTENTION_CLASSIFIER):
    """Classify images by one layer of self-attention between their patches.

    Each patch is an entity whose features are its pixels. A dense layer maps the concatenated
    outputs of all patches to the logits. It has separate weights for each patch, so the model needs
    no position encoding. Patch (row, column) is entity `row * columns + column`.

    Args:
        num_classes: K, the number of classes.
        patch_size: edge of a patch, in pixels.
        num_heads: H, number of heads of the attention.
        key_size: size of queries, keys and values, per head. `None` means the number of values in a
            patch.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        images: `(B, height, width, C)`, values in [0, 1].
        return_attention_scores: whether to return the attention as well.

    Returns:
        Logits `(B, K)`, float32 also under a mixed-precision policy. With
        `return_attention_scores`, a pair of the logits and a dict `"round_1"` -> attention
        `(B, H, N, N)`.

    Raises:
        InvalidInput: for an argument out of its range, or for images whose size is not a multiple
            of `patch_size`.

    Example:

    >>> model = PatchAttentionClassifier.from_preset("patch-mnist")
    >>> logits, attention = model(keras.ops.ones((1, 28, 28, 1)), return_attention_scores=True)
    >>> tuple(logits.shape), tuple(attention["round_1"].shape), model.count_params()
    ((1, 10), (1, 1, 16, 16), 15200)

    References:
        - "Self-Attention", SensIO blog, 17 March 2021 (in Spanish)
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    def __init__(
        self,
        num_classes: int = 10,
        patch_size: int = 7,
        num_heads: int = 1,
        key_size: int | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = positive_int("num_classes", num_classes)
        self.patch_size = positive_int("patch_size", patch_size)
        self.num_heads = positive_int("num_heads", num_heads)
        self.key_size = optional_positive_int("key_size", key_size)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.head = make_dense(self, "head", self.num_classes, full_precision=True)

    def build(self, images_shape: Shape) -> None:
        self._build_grid(images_shape, needs_size=True)
        rows, columns = self.grid_shape(images_shape)
        pixels = self.patch_size**2 * images_shape[-1]
        self.attention = MultiHeadDotProductAttention(
            self.num_heads,
            self.key_size or pixels,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="attention",
        )
        _, nodes, features = build_in_turn([self.attention], (None, rows * columns, pixels))
        self.head.build((None, nodes * features))
        self._expect(images_shape, any_size=False)

    def grid_shape(self, inputs_shape: Shape) -> tuple[int, int]:
        """Return `(rows, columns)` of the patches of images `(B, height, width, C)`."""
        _, height, width, _ = inputs_shape
        if height % self.patch_size or width % self.patch_size:
            raise InvalidInput(
                f"the height and width of images must be multiples of patch_size="
                f"{self.patch_size}; received the shape {tuple(inputs_shape)}"
            )
        return height // self.patch_size, width // self.patch_size

    def call(
        self, images: Tensor, training: bool = False, return_attention_scores: bool = False
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        x, attention = self.attention(
            self._patches(images), training=training, return_attention_scores=True
        )
        x = ops.reshape(x, (-1, x.shape[1] * x.shape[2]))
        logits = self.head(ops.relu(x))
        return (logits, {"round_1": attention}) if return_attention_scores else logits

    def _patches(self, images):
        """Return the patches `(B, N, patch_size * patch_size * C)` of images."""
        rows, columns = self.grid_shape(images.shape)
        edge, channels = self.patch_size, images.shape[-1]
        x = ops.reshape(images, (-1, rows, edge, columns, edge * channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4))
        return ops.reshape(x, (-1, rows * columns, edge * edge * channels))


@keras.saving.register_keras_serializable(package="rrl_tf")
class MLPClassifier(ImageModel, architectures=MLP_CLASSIFIER):
    """Classify images with dense layers that read all pixels.

    Args:
        num_classes: K, the number of classes.
        hidden_units: sizes of the ReLU layers.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        images: `(B, height, width, C)`, values in [0, 1].

    Returns:
        Logits `(B, K)`, float32 also under a mixed-precision policy.

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
        self.hidden = make_hidden(self, self.hidden_units)
        self.head = make_dense(self, "head", self.num_classes, full_precision=True)

    def build(self, images_shape: Shape) -> None:
        pixels = math.prod(self._build_grid(images_shape, needs_size=True)[1:])
        build_in_turn([*self.hidden, self.head], (None, pixels))
        self._expect(images_shape, any_size=False)

    def call(self, images: Tensor, training: bool = False) -> Tensor:
        x = ops.reshape(images, (-1, math.prod(images.shape[1:])))
        for layer in [*self.hidden, self.head]:
            x = layer(x)
        return x
