"""A small policy, and servers on free loopback ports."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.export import export_policy
from serving.local import free_ports
from serving.server.flags import Flags

SHAPE, ACTIONS = (3, 3, 2), 4


def free_port():
    return free_ports(1)[0]


def make_flags(base, **changes):
    ports = {"port": 0, "rest_api_port": free_port()}
    quick = {"file_system_poll_wait_seconds": 0.05, "max_num_load_retries": 0}
    return Flags(model_base_path=str(base), model_name="tiny", **(ports | quick | changes))


def make_policy_model(seed=0):
    import keras
    from keras import ops

    class TinyAttention(keras.Model):
        """A small network with Q values and optional attention scores."""

        def __init__(self):
            super().__init__()
            self.scorer = keras.layers.Dense(2)
            self.head = keras.layers.Dense(ACTIONS)

        def call(self, inputs, return_attention_scores=False):
            entities = ops.reshape(inputs, (-1, 9, 2))
            logits = ops.transpose(self.scorer(entities), (0, 2, 1))[:, :, None, :]
            scores = ops.softmax(ops.repeat(logits, 9, axis=2), axis=-1)
            mixed = ops.matmul(scores, entities[:, None])
            q_values = self.head(ops.reshape(mixed, (-1, 36)))
            return (q_values, {"round_1": scores}) if return_attention_scores else q_values

    keras.utils.set_random_seed(seed)
    return TinyAttention()


def prepare(observation):
    return tf.cast(observation, "float32") / 10.0


def export_tiny(base, seed=0, version=None):
    details = {"action_names": ["left", "right", "forward", "toggle"]}
    return export_policy(
        base, make_policy_model(seed), prepare, SHAPE, details=details, version=version
    )


def make_recurrent_model(seed=0):
    """Return (model, function of the initial memory); the model has a Relational Memory Core."""
    import keras
    from keras import ops

    from rrl_tf.layers import RelationalMemoryCell

    class TinyMemory(keras.Model):
        def __init__(self):
            super().__init__()
            self.cell = RelationalMemoryCell(mem_slots=3, head_size=4, num_heads=2)
            self.head = keras.layers.Dense(ACTIONS)

        def call(self, inputs, memory, return_attention_scores=False):
            flat = ops.reshape(inputs, (-1, 18))
            output, state, scores = self.cell(flat, memory, return_attention_scores=True)
            results = (self.head(output), state)
            return (*results, scores) if return_attention_scores else results

    keras.utils.set_random_seed(seed)
    model = TinyMemory()
    return model, model.cell.get_initial_state


def export_recurrent(base, seed=0):
    model, initial_memory = make_recurrent_model(seed)
    return export_policy(base, model, prepare, SHAPE, initial_memory=initial_memory)


def observations(batch, seed=0):
    return np.random.default_rng(seed).integers(0, 11, (batch, *SHAPE), np.uint8)


def save_module(path, functions):
    """Save name -> (function, [TensorSpec]) as the signatures of a SavedModel."""
    module = tf.Module()
    signatures = {
        name: tf.function(function, input_signature=specs)
        for name, (function, specs) in functions.items()
    }
    tf.saved_model.save(module, str(path), signatures=signatures)


@contextlib.contextmanager
def serve(base, **changes):
    from serving.server import running

    with running(make_flags(base, **changes)) as server:
        yield server


@pytest.fixture(scope="module")
def tools():
    """The helpers above, because test files cannot import each other in importlib mode."""
    import types

    names = ("SHAPE", "ACTIONS", "free_port", "make_flags", "export_tiny", "observations")
    names += ("export_recurrent", "make_recurrent_model", "prepare")
    return types.SimpleNamespace(
        **{name: globals()[name] for name in (*names, "save_module", "serve")}
    )


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """A base folder with version 1 of the tiny policy; read only."""
    base = tmp_path_factory.mktemp("models") / "tiny"
    export_tiny(base)
    return base


@pytest.fixture(scope="session")
def recurrent(tmp_path_factory):
    """A base folder with version 1 of a recurrent policy; read only."""
    base = tmp_path_factory.mktemp("models") / "recurrent"
    export_recurrent(base)
    return base


@pytest.fixture(scope="module")
def server(exported):
    """A server of the tiny policy, for tests that change nothing on disk."""
    with serve(exported) as running_server:
        yield running_server
