"""The functions that an exported Q policy answers with, and the tensors that they take."""

import inspect

import keras
import tensorflow as tf
from keras import ops

from rrl_tf.errors import InvalidInput

# What one request may ask of `initial_memory`, so that a few bytes do not fill a server's memory.
LARGEST_INITIAL_BATCH = 4096


def make_endpoints(model, prepare, observation, initial_memory=None):
    """Returns signature -> (function of tensors, their TensorSpecs), having tried them on zeros.

    Args:
        model, prepare, initial_memory: As in `export_policy`.
        observation: TensorSpec of a batch of raw observations.

    Raises:
        ValueError: If the model does not answer as a Q network does.
    """
    if keras.backend.backend() != "tensorflow":
        raise InvalidInput(
            "export_policy needs Keras' TensorFlow backend; "
            f"received a model of the {keras.backend.backend()!r} backend"
        )
    policy = _QPolicy(model, prepare)
    if initial_memory is None:
        specs, act, with_attention = [observation], policy.act, policy.act_with_attention
    else:
        start = _InitialMemory(initial_memory)
        specs = [observation, start.memory_spec()]
        act, with_attention = policy.step, policy.step_with_attention
    _check_answer(act, specs)
    endpoints = {"act": (act, specs)}
    if "return_attention_scores" in inspect.signature(model.call).parameters:
        endpoints["act_with_attention"] = (with_attention, specs)
    if initial_memory is not None:
        batch_size = tf.TensorSpec((), "int32", name="batch_size")
        endpoints["initial_memory"] = (start.initial_memory, [batch_size])
    return {**endpoints, "serving_default": endpoints["act"]}


class _QPolicy:
    """Preparation, model and greedy choice; the arguments' names are those of the inputs."""

    def __init__(self, model, prepare):
        self._model, self._prepare = model, prepare

    def act(self, observation):
        return _choice(self._model(self._prepare(observation)))

    def act_with_attention(self, observation):
        q_values, scores = self._model(self._prepare(observation), return_attention_scores=True)
        return _choice(q_values) | _attention(scores)

    def step(self, observation, memory):
        q_values, next_memory = self._model(self._prepare(observation), memory)
        return _choice(q_values) | {"next_memory": _memory(next_memory)}

    def step_with_attention(self, observation, memory):
        q_values, next_memory, scores = self._model(
            self._prepare(observation), memory, return_attention_scores=True
        )
        return _choice(q_values) | {"next_memory": _memory(next_memory)} | _attention(scores)


class _InitialMemory:
    """What a policy remembers before its first step."""

    def __init__(self, make):
        self._make = make

    def initial_memory(self, batch_size):
        limit = LARGEST_INITIAL_BATCH
        message = f"batch_size must be 0 to {limit}"
        checks = [
            tf.debugging.assert_non_negative(batch_size, message),
            tf.debugging.assert_less_equal(batch_size, limit, message),
        ]
        # In a graph nothing else keeps the memories from being made before the checks.
        with tf.control_dependencies([check for check in checks if check is not None]):
            batch_size = tf.identity(batch_size)
        return {"memory": _memory(self._make(batch_size))}

    def memory_spec(self):
        """The TensorSpec of a batch of memories."""
        try:
            shape = self.initial_memory(tf.constant(2))["memory"].shape
        except Exception as error:
            raise InvalidInput(f"initial_memory cannot make 2 memories: {error}") from error
        if len(shape) < 2 or shape[0] != 2:
            raise InvalidInput(f"initial_memory must make 2 memories (2, ...); received {shape}")
        return tf.TensorSpec((None, *shape[1:]), "float32", name="memory")


def _choice(q_values):
    # Mixed precision would answer in bfloat16, which REST cannot carry.
    q_values = ops.cast(q_values, "float32")
    return {"action": ops.argmax(q_values, axis=-1), "q_values": q_values}


def _attention(scores):
    return {f"attention_{name}": ops.cast(score, "float32") for name, score in scores.items()}


def _memory(memory):
    """The memory, alone or in a list, as Keras' cells have their states."""
    (memory,) = keras.tree.flatten(memory)
    return ops.cast(memory, "float32")


def _check_answer(act, specs):
    zeros = [tf.zeros((2, *spec.shape[1:]), spec.dtype) for spec in specs]
    shapes = ", ".join(f"{tuple(spec.shape[1:])} {spec.dtype.name}" for spec in specs)
    try:
        answer = act(*zeros)
    except Exception as error:
        raise InvalidInput(
            f"prepare and the model cannot answer 2 observations of shape {shapes}: {error}"
        ) from error
    if len(answer["q_values"].shape) != 2 or answer["q_values"].shape[0] != 2:
        raise InvalidInput(
            "the model must answer a batch of 2 observations with Q values of shape (2, A); "
            f"received {tuple(answer['q_values'].shape)}"
        )
    if "next_memory" in answer and answer["next_memory"].shape != zeros[1].shape:
        raise InvalidInput(
            f"the next memory must have the shape of the memory, {tuple(zeros[1].shape)}; "
            f"received {tuple(answer['next_memory'].shape)}"
        )
