"""Wrappers that let conformance.py call layers with several inputs on a single array."""

import math

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable(package="tests")
class OfOneArray(keras.layers.Layer):
    """Split one array into the windows of a layer and join its dict of outputs."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, shape):
        if not self.layer.built:  # a loaded layer is already built
            window = self._split(keras.Input(shape[1:]))
            self.layer.build({name: part.shape for name, part in window})

    def call(self, inputs, training=False, return_attention_scores=False):
        window = dict(self._split(inputs))
        if not return_attention_scores:
            return self._join(self.layer(window, training=training))
        outputs, scores = self.layer(window, training=training, return_attention_scores=True)
        return self._join(outputs), scores

    def _split(self, inputs):
        states, actions, returns = ops.split(inputs, [4, 7], axis=-1)
        steps = ops.cumsum(ops.ones_like(inputs[..., 0], dtype="int32"), axis=1)
        yield from {"states": states, "actions": actions, "returns_to_go": returns}.items()
        yield from {"timesteps": steps - 1, "mask": ops.ones_like(steps)}.items()

    def _join(self, outputs):
        return ops.concatenate([*outputs.values()], -1) if isinstance(outputs, dict) else outputs

    def get_config(self):
        return {**super().get_config(), "layer": keras.saving.serialize_keras_object(self.layer)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "layer": keras.saving.deserialize_keras_object(config["layer"])})


@keras.saving.register_keras_serializable(package="tests")
class OfTwoSteps(OfOneArray):
    """Unroll a recurrent network over two steps: half of an observation, then the observation."""

    def build(self, shape):
        if not self.layer.built:
            self.layer.build({"observation": shape})

    def call(self, observation, training=False, return_attention_scores=False):
        before = ops.zeros_like(ops.reshape(observation, (-1, math.prod(observation.shape[1:]))))
        sequences = {
            "observation": ops.stack([0.5 * observation, observation], axis=1),
            "previous_action": ops.cast(before[:, :2], "int32") - np.array([1, 0], "int32"),
            "previous_reward": before[:, :2] + ops.array([0.0, 0.7], before.dtype),
        }
        q, _, *attention = self.layer.unroll(
            sequences, training=training, return_attention_scores=return_attention_scores
        )
        return (q[:, -1], *attention) if return_attention_scores else q[:, -1]


@keras.saving.register_keras_serializable(package="tests")
class OfOneGraph(OfOneArray):
    """Compute the features of an edge from those of its two nodes."""

    def build(self, shape):
        if not self.layer.built:
            self.layer.build(shape)

    def call(self, inputs, **options):
        few = inputs[..., :3]
        return self.layer(inputs, edges=few[:, :, None] * few[:, None], **options)


@keras.saving.register_keras_serializable(package="tests")
class OfOnePicture(OfOneArray):
    """Use the first row of an image as the question about it."""

    def _split(self, inputs):
        yield from {"images": inputs, "questions": inputs[:, 0]}.items()

    def _join(self, outputs):
        return outputs
