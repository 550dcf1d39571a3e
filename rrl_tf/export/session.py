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

# Without it all Sessions and eager code share one pool, sized by whoever comes first. Read by
# TensorFlow when it first looks for devices.
os.environ.setdefault("TF_OVERRIDE_GLOBAL_THREADPOOL", "1")


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

    >>> session = SavedModelSession("runs/doorkey/fast/export/1")
    >>> session.run("act", {"observation": observations})["action"]
    array([2], dtype=int32)
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        tags: Sequence[str] = ("serve",),
        config: Any = None,
    ) -> None:
        config = config or tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
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
        function = self._callables.get(key) or self._make_callable(*key)
        return dict(zip(outputs, function(*inputs.values())))

    def _make_callable(self, signature, inputs, outputs):
        definition = self.signatures[signature]
        options = config_pb2.CallableOptions()
        options.feed.extend(definition.inputs[name].name for name in inputs)
        options.fetch.extend(definition.outputs[name].name for name in outputs)
        options.run_options.inter_op_thread_pool = -1  # the calling thread
        # Session.make_callable takes run options only per call, at four times the cost.
        function = self._session._make_callable_from_options(options)
        return self._callables.setdefault((signature, inputs, outputs), function)

    def close(self) -> None:
        """Frees the graph and its variables; nothing may be running."""
        self._free()


def _free(session, callables):
    callables.clear()
    session.close()
