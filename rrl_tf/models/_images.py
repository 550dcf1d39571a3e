"""What the image classifiers share: the shape they take, and their dense layers."""

import keras

from rrl_tf.errors import InvalidInput


def check_image_shape(name, shape):
    """Raises a `ValueError` unless `shape` is one of images with a known number of channels."""
    if len(shape) != 4 or shape[-1] is None:
        raise InvalidInput(
            f"{name} takes images (B, height, width, C) with a known C. "
            f"Received the shape {tuple(shape)}"
        )


def check_images(name, expected, shape):
    """Raises a `ValueError` if a batch of images does not fit; None in `expected` is any size."""
    if len(shape) != 4 or any(
        size is not None and given not in (size, None) for size, given in zip(expected, shape)
    ):
        raise InvalidInput(
            f"{name} was built for images (B, height, width, C) of the shape {expected} "
            f"(None: any size). Received the shape {tuple(shape)}"
        )


def dense(model, name, units, activation=None, full_precision=False):
    """A dense layer with the model's initialiser and precision.

    Logits stay in full precision under a mixed policy: a bfloat16 has three digits.
    """
    return keras.layers.Dense(
        units,
        activation=activation,
        kernel_initializer=model.kernel_initializer.clone(),
        dtype=model.dtype_policy.variable_dtype if full_precision else model.dtype_policy,
        name=name,
    )
