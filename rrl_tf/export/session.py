"""Runs SavedModels the way a server does: through their signatures, in a Session."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

# The public tf.compat.v1.saved_model.load is this, and a deprecation notice on every start.
from tensorflow.python.saved_model.loader_impl import SavedModelLoader
from tensorflow.python.util import deprecation

# Without it all Sessions and eager code share one pool, sized by whoever comes first. Read by
# TensorFlow when it first looks for devices.
os.environ.setdefault("TF_OVERRIDE_GLOBAL_THREADPOOL", "1")

# Sets of outputs of a signature that are computed for themselves. Each takes a megabyte and a third
# of a second to prepare, and which ones are asked for is up to a server's clients.
_MOST_CALLABLES = 16


class SavedModelSession:
    """A SavedModel loaded into a Session of its own, as TensorFlow Serving loads it.

    Only SignatureDefs are used, so what runs here runs there: Python functions in the graph and
    forced XLA fail in both. A run executes in the calling thread, without the hand-over to
    TensorFlow's pool that costs a small model more than its own arithmetic, and by default on one
    core: with more, oneDNN takes a small relational model five times as long. `run` may be called
    from several threads, which is the better parallelism.

    Args:
        directory: The version folder.
        tags: Which meta graph to load.
        config: `tf.compat.v1.ConfigProto` of the Session; by default with one intra-op thread.

    Raises:
        OSError: If there is no SavedModel in `directory`.
        tf.errors.OpError, RuntimeError: If it cannot be loaded.

    Example:

    >>> from rrl_tf.presets import preset_folder
    >>> session = SavedModelSession(preset_folder("doorkey-5x5") / "policy" / "1")
    >>> observations = np.zeros((2, 7, 7, 4), "uint8")
    >>> session.run("act", {"observation": observations})["q_values"].shape
    (2, 5)
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        tags: Sequence[str] = ("serve",),
        config: Any = None,
    ) -> None:
        self._config = config or tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=self._config)
        self._callables: dict = {}
        # Also at the interpreter's exit, before it takes from TensorFlow what freeing needs.
        self._free = weakref.finalize(self, _free, self._session, self._callables)
        try:
            loader = SavedModelLoader(str(directory))
            self.meta_graph = loader.load(self._session, list(tags))
        except BaseException:
            self.close()
            raise
        # The initialiser is listed as a signature, though it answers nothing.
        self.signatures = {
            name: signature
            for name, signature in self.meta_graph.signature_def.items()
            if name != "__saved_model_init_op"
        }

    def freeze(self) -> None:
        """Makes runs of a small model cheaper, by a quarter to a half: variables become constants.

        Reading one costs about as much as a small product, and what is known of constants is
        computed once. Without a GPU, runs also go through TensorFlow's executor of one thread,
        which knows the order of operations beforehand. The answers stay the same; the weights take
        several times the memory. A graph that writes its variables, or has other resources, such as
        tables, stays as it is. Nothing may be running.
        """
        outputs = {
            tensor.name.partition(":")[0]
            for signature in self.signatures.values()
            for tensor in signature.outputs.values()
        }
        graph = _without_variables(self._session, sorted(outputs))
        if graph is None:
            return
        config = config_pb2.ConfigProto()
        config.CopyFrom(self._config)
        if not tf.config.get_visible_devices("GPU"):  # it does not go from device to device
            config.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
        self.close()
        self._session = tf.compat.v1.Session(graph=graph, config=config)
        self._free = weakref.finalize(self, _free, self._session, self._callables)

    def run(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] | None = None,
    ) -> dict[str, np.ndarray]:
        """Returns a dict of the outputs (all, or those named) for a dict of NumPy inputs."""
        if outputs is None:
            outputs = self.signatures[signature].outputs
        key = (signature, tuple(inputs), tuple(outputs))
        function = self._callables.get(key)
        if function is None and self._has_enough_of(*key):
            answers = self.run(signature, inputs)
            return {name: answers[name] for name in outputs}
        function = function or self._make_callable(*key)
        return dict(zip(outputs, function(*inputs.values())))

    def _has_enough_of(self, signature, _, outputs):
        kept = [name for name, *_ in list(self._callables) if name == signature]
        everything = tuple(self.signatures[signature].outputs)
        return len(kept) >= _MOST_CALLABLES and outputs != everything

    def _make_callable(self, signature, inputs, outputs):
        definition = self.signatures[signature]
        options = config_pb2.CallableOptions()
        options.feed.extend(definition.inputs[name].name for name in inputs)
        options.fetch.extend(definition.outputs[name].name for name in outputs)
        options.run_options.inter_op_thread_pool = -1  # the calling thread
        # Session.make_callable takes run options only per call, at four times the cost.
        function = self._session._make_callable_from_options(options)
        return self._callables.setdefault((signature, inputs, outputs), function)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is being."""
        return not self._free.alive

    def close(self) -> None:
        """Frees the graph and its variables; nothing may be running."""
        self._free()


def _free(session, callables):
    callables.clear()
    session.close()


def _without_variables(session, outputs):
    """The graph of these operations with constants for variables, None if it needs resources."""
    with deprecation.silence():  # nothing has taken its place for the graph of a Session
        definition = tf.compat.v1.graph_util.convert_variables_to_constants(
            session, session.graph.as_graph_def(), outputs
        )
    with tf.Graph().as_default() as graph:
        try:
            tf.graph_util.import_graph_def(definition, name="")
        except ValueError:  # an operation that writes a variable has got a constant
            return None
    tensors = (tensor for operation in graph.get_operations() for tensor in operation.outputs)
    return None if any(tensor.dtype == tf.resource for tensor in tensors) else graph
