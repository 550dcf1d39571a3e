"""Run SavedModels in a `tf.compat.v1.Session`, as TensorFlow Serving does."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

# The public tf.compat.v1.saved_model.load is this class with a deprecation notice.
from tensorflow.python.saved_model.loader_impl import SavedModelLoader
from tensorflow.python.util import deprecation

# Without this variable, all Sessions and eager code share one thread pool, and the first Session
# sets its size. TensorFlow reads the variable when it lists the devices.
os.environ.setdefault("TF_OVERRIDE_GLOBAL_THREADPOOL", "1")

# Maximum number of cached callables of a signature. Each subset of the outputs that a client
# requests needs its own callable, which takes 1 MB of memory and 0.3 s to create.
_MOST_CALLABLES = 16


class SavedModelSession:
    """A SavedModel in its own Session, loaded as TensorFlow Serving loads it.

    Only SignatureDefs are used, so Python functions in the graph and forced XLA fail here as they
    fail in TensorFlow Serving.

    A run executes in the calling thread, because passing it to TensorFlow's thread pool takes
    longer than the arithmetic of a small model. It executes in the pool only if `config` sets
    `inter_op_parallelism_threads` to more than one. By default, it uses one core, because oneDNN on
    several cores is five times slower for a small relational model. To use more cores, call `run`
    from several threads.

    Args:
        directory: The version folder.
        tags: Tags of the meta graph to load.
        config: `tf.compat.v1.ConfigProto` of the Session; None means one intra-op thread.

    Raises:
        OSError: If there is no SavedModel in `directory`.
        tf.errors.OpError, RuntimeError: If it cannot be loaded.

    Example:

    >>> from rrl_tf.pretrained import pretrained_folder
    >>> session = SavedModelSession(pretrained_folder("doorkey-5x5") / "policy" / "1")
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
        # A finalizer also runs when the interpreter exits, before TensorFlow is unloaded.
        self._free = weakref.finalize(self, _free, self._session, self._callables)
        try:
            loader = SavedModelLoader(str(directory))
            self.meta_graph = loader.load(self._session, list(tags))
        except BaseException:
            self.close()
            raise
        # The initialiser is listed as a signature without outputs.
        self.signatures = {
            name: signature
            for name, signature in self.meta_graph.signature_def.items()
            if name != "__saved_model_init_op"
        }

    def freeze(self) -> None:
        """Replace variables by constants, which makes a run of a small model 25 to 50 % cheaper.

        A run becomes cheaper because reading a variable takes about as long as multiplying two
        small matrices, and because TensorFlow computes constant expressions only once. Without a
        GPU, runs also use TensorFlow's single-threaded executor. The outputs stay the same, but the
        weights take several times the memory.

        The method does nothing if the graph writes variables or uses other resources, such as
        tables. Do not call it while a run is in progress.
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
        if not tf.config.get_visible_devices("GPU"):  # it supports one device
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
        """Run a signature on a dict name -> array, and return its outputs as such a dict.

        Args:
            signature: Name of the signature.
            inputs: dict input name -> array.
            outputs: Names of the outputs to return; None means all.
        """
        if outputs is None:
            outputs = self.signatures[signature].outputs
        key = (signature, tuple(inputs), tuple(outputs))
        function = self._callables.get(key)
        if function is None:
            everything = tuple(self.signatures[signature].outputs)
            callables = [name for name, *_ in list(self._callables) if name == signature]
            if len(callables) >= _MOST_CALLABLES and tuple(outputs) != everything:
                answers = self.run(signature, inputs)
                return {name: answers[name] for name in outputs}
            function = self._make_callable(*key)
        return dict(zip(outputs, function(*inputs.values())))

    def _make_callable(self, signature, inputs, outputs):
        definition = self.signatures[signature]
        options = config_pb2.CallableOptions()
        options.feed.extend(definition.inputs[name].name for name in inputs)
        options.fetch.extend(definition.outputs[name].name for name in outputs)
        # -1: the calling thread, which runs one operation at a time; 0: the Session's threads
        config = self._config
        several = config.inter_op_parallelism_threads > 1 or config.session_inter_op_thread_pool
        options.run_options.inter_op_thread_pool = 0 if several else -1
        # The public Session.make_callable is four times slower, because it takes run options with
        # each call.
        function = self._session._make_callable_from_options(options)
        return self._callables.setdefault((signature, inputs, outputs), function)

    def close(self) -> None:
        """Free the graph and its variables. Do not call it while a run is in progress."""
        self._free()


def _free(session, callables):
    callables.clear()
    session.close()


def _without_variables(session, outputs):
    """Return a graph of these outputs with constants for variables, or None if it is impossible."""
    with deprecation.silence():  # there is no replacement for the graph of a Session
        definition = tf.compat.v1.graph_util.convert_variables_to_constants(
            session, session.graph.as_graph_def(), outputs
        )
    with tf.Graph().as_default() as graph:
        try:
            tf.graph_util.import_graph_def(definition, name="")
        except ValueError:  # an operation writes a variable
            return None
    tensors = (tensor for operation in graph.get_operations() for tensor in operation.outputs)
    return None if any(tensor.dtype == tf.resource for tensor in tensors) else graph
