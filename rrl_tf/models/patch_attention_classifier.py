"""From an image to its class by one attention over its patches."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import optional_positive_int, positive_int
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import MultiHeadDotProductAttention
from rrl_tf.layers.base import tensor_spec
from rrl_tf.models._from_preset import FromPreset
from rrl_tf.models._grids import check_grid, check_grid_shape, dense
from rrl_tf.models.presets import PATCH_ATTENTION_CLASSIFIER


@keras.saving.register_keras_serializable(package="rrl_tf")
class PatchAttentionClassifier(FromPreset, keras.Model, presets=PATCH_ATTENTION_CLASSIFIER):
    """Classifies images by one self-attention over their patches.

    The pixels of a patch are an entity. What the patches gathered is put side by side, so each
    patch has its own weights for the classes, and there is no other code of where it was. Patch
    (row, column) is node `row * columns + column`.

    Args:
        num_classes: K, the number of classes.
        patch_size: edge of a patch, in pixels.
        num_heads: H, heads of the attention.
        key_size: size of queries, keys and values, per head; `None` is the pixels of a patch.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        images: `(B, height, width, C)`, values in [0, 1].
        return_attention_scores: whether to return the attention as well.

    Returns:
        Logits `(B, K)`, float32 also under a mixed policy; with `return_attention_scores`, a pair
        of them and a dict `"round_1"` -> attention `(B, H, N, N)`.

    Raises:
        InvalidInput: for an argument out of its range, or images that patches do not tile.

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
        self.head = dense(self, "head", self.num_classes, full_precision=True)

    def build(self, images_shape: Shape) -> None:
        check_grid_shape("PatchAttentionClassifier", images_shape)
        rows, columns = self.grid_shape(images_shape)
        pixels = self.patch_size**2 * images_shape[-1]
        self.attention = MultiHeadDotProductAttention(
            self.num_heads,
            self.key_size or pixels,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="attention",
        )
        nodes = (None, rows * columns, pixels)
        self.attention.build(nodes)
        self.head.build((None, rows * columns * self.attention.compute_output_shape(nodes)[-1]))
        self._expected_shape = (None, *images_shape[1:])

    def grid_shape(self, images_shape: Shape) -> tuple[int, int]:
        """The grid of patches.

        Args:
            images_shape: `(B, height, width, C)`.

        Returns:
            `(rows, columns)`.

        Raises:
            InvalidInput: if patches do not tile the image.
        """
        _, height, width, _ = images_shape
        if None in (height, width) or height % self.patch_size or width % self.patch_size:
            raise InvalidInput(
                f"Patches of {self.patch_size} x {self.patch_size} pixels must tile the image; "
                f"received the shape {tuple(images_shape)}"
            )
        return height // self.patch_size, width // self.patch_size

    def call(
        self, images: Tensor, training: bool = False, return_attention_scores: bool = False
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        check_grid(self.name, self._expected_shape, images.shape)
        x, attention = self.attention(
            self._patches(images), training=training, return_attention_scores=True
        )
        x = ops.reshape(x, (-1, x.shape[1] * x.shape[2]))
        logits = self.head(ops.relu(x))
        return (logits, {"round_1": attention}) if return_attention_scores else logits

    def _patches(self, images):
        """`(B, height, width, C)` -> `(B, N, patch_size * patch_size * C)`."""
        rows, columns = self.grid_shape(images.shape)
        edge, channels = self.patch_size, images.shape[-1]
        x = ops.reshape(images, (-1, rows, edge, columns, edge * channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4))
        return ops.reshape(x, (-1, rows * columns, edge * edge * channels))

    def compute_output_shape(self, images_shape: Shape) -> Shape:
        return (images_shape[0], self.num_classes)

    def compute_output_spec(
        self, images: Tensor, training: bool = False, return_attention_scores: bool = False
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, dict[str, keras.KerasTensor]]:
        logits = tensor_spec(self.head, self.compute_output_shape(images.shape))
        if not return_attention_scores:
            return logits
        rows, columns = self.grid_shape(images.shape)
        shape = (images.shape[0], self.num_heads, rows * columns, rows * columns)
        return logits, {"round_1": tensor_spec(self, shape)}

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "patch_size": self.patch_size,
            "num_heads": self.num_heads,
            "key_size": self.key_size,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
