"""SavedModels in a `tf.compat.v1.Session`, as TensorFlow Serving runs them."""

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

# Otherwise all Sessions and eager code share one thread pool, with the size of the first one.
# TensorFlow reads the variable when it lists the devices.
os.environ.setdefault("TF_OVERRIDE_GLOBAL_THREADPOOL", "1")

# Maximum number of callables for each signature. A callable for a subset of the outputs takes a
# megabyte and a third of a second, and the clients of a server choose the subsets.
_MOST_CALLABLES = 16


class SavedModelSession:
    """A SavedModel in its own Session, loaded as TensorFlow Serving loads it.

    Only SignatureDefs are used, so Python functions in the graph and forced XLA fail here as they
    fail in TensorFlow Serving. A run executes in the calling thread, because handing it to
    TensorFlow's pool costs more than the arithmetic of a small model, and by default on one core,
    because oneDNN on several cores is five times slower for a small relational model. Call `run`
    from several threads to use more cores.

    Args:
        directory: The version folder.
        tags: Which meta graph to load.
        config: `tf.compat.v1.ConfigProto` of the Session; by default with one intra-op thread.

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
        # Also at the interpreter's exit, before TensorFlow is unloaded.
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

        Reading a variable costs about as much as a small product, and TensorFlow folds constants.
        Without a GPU, runs also use TensorFlow's single-threaded executor. Outputs stay the same;
        the weights take several times the memory. A graph that writes its variables, or that has
        other resources such as tables, is left unchanged. No run may be in progress.
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
        """Return name -> array of the outputs (all, or those named) for name -> array of inputs."""
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
        options.run_options.inter_op_thread_pool = -1  # the calling thread
        # Session.make_callable takes run options with each call, at four times the cost.
        function = self._session._make_callable_from_options(options)
        return self._callables.setdefault((signature, inputs, outputs), function)

    def close(self) -> None:
        """Free the graph and its variables. No run may be in progress."""
        self._free()


def _free(session, callables):
    callables.clear()
    session.close()


def _without_variables(session, outputs):
    """Return the graph of these outputs without variables, or None if it needs resources."""
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
