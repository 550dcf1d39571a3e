"""Define `Servable`, a loaded version of a model, and its signatures."""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from rrl_tf.export.session import SavedModelSession
from serving import tensors, windows
from serving.errors import ServingError, invalid
from serving.server.sequences import STATE_SIGNATURE

DEFAULT_SIGNATURE = "serving_default"
_LOOPS = {"While", "StatelessWhile", "Enter"}  # operations
_MAX_NAMES = 8  # maximum number of names from a request in an error message


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """The name, DataType and shape of an input or output; an unknown size or shape is None."""

    name: str
    dtype: int
    shape: tuple | None
    #: The encoding of its TensorInfo: "name" for a dense tensor, "coo_sparse", "composite_tensor".
    encoding: str = "name"

    @classmethod
    def from_info(cls, name: str, info: Any) -> TensorSpec:
        """Return the spec that a TensorInfo describes."""
        shape = None
        if not info.tensor_shape.unknown_rank:
            shape = tuple(d.size if d.size >= 0 else None for d in info.tensor_shape.dim)
        return cls(name, info.dtype, shape, info.WhichOneof("encoding") or "name")

    @functools.cached_property
    def numpy_dtype(self) -> np.dtype | None:
        """The NumPy dtype, or None for the few DataTypes that NumPy does not have."""
        return tensors.numpy_dtype(self.dtype)

    @functools.cached_property
    def has_rows(self) -> bool:
        """Whether the first dimension is a batch dimension of any size."""
        return self.shape is not None and self.shape[:1] == (None,)

    @functools.cached_property
    def row_bytes(self) -> int | None:
        """The bytes of one row, or None if the signature does not determine them."""
        dtype = self.numpy_dtype
        if self.shape is None or None in self.shape[1:] or dtype is None or dtype.kind == "O":
            return None
        return math.prod(self.shape[1:]) * dtype.itemsize

    def from_json(self, array: np.ndarray) -> np.ndarray:
        """Return an array from JSON; `[]`, an empty batch, gets the shape (0, ...) of the input."""
        batch, *row = self.shape or (0,)
        if array.shape == (0,) and batch is None and None not in row:
            return array.reshape(0, *row)
        return array

    def check(self, array: np.ndarray) -> None:
        """Raise INVALID_ARGUMENT if the dtype or shape of an array does not match."""
        self.check_dtype(array)
        self.check_shape(array.shape)

    def check_dtype(self, array: np.ndarray) -> None:
        """Raise INVALID_ARGUMENT if the dtype of an array does not match."""
        if array.dtype != self.numpy_dtype:
            raise invalid(
                f"input {self.name!r} has dtype {tensors.dtype_name(array.dtype)}; "
                f"expected {types_pb2.DataType.Name(self.dtype)}"
            )

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether a shape is one of those declared."""
        if self.shape is None or (self.has_rows and shape and shape[1:] == self.shape[1:]):
            return True
        return len(shape) == len(self.shape) and all(
            expected in (None, size) for size, expected in zip(shape, self.shape)
        )

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise INVALID_ARGUMENT if a shape does not match."""
        if self.shape is not None and not self.fits(shape):
            received, expected = map(tensors.format_shape, (shape, self.shape))
            raise invalid(f"input {self.name!r} has shape {received}; expected {expected}")


@dataclasses.dataclass(frozen=True)
class Signature:
    """One signature of a model.

    Attributes:
        name: The name of the signature.
        inputs: name -> `TensorSpec` of the inputs.
        outputs: name -> `TensorSpec` of the outputs.
        defaults: name -> array of the inputs that a request may omit.
        method: The method name that Classify and Regress require; None for no check.
        checks_shapes: Whether inputs must have the declared shapes. Otherwise the graph decides,
            as in TensorFlow Serving.
    """

    name: str
    inputs: dict
    outputs: dict
    defaults: dict
    method: str | None = None
    checks_shapes: bool = False

    @classmethod
    def from_def(
        cls, name: str, definition: Any, check_method: bool = False, checks_shapes: bool = False
    ) -> Signature:
        """Return the signature of a SignatureDef; `check_method` keeps its method name."""

        def specs(infos):
            return {key: TensorSpec.from_info(key, infos[key]) for key in sorted(infos)}

        defaults = {key: tensors.from_proto(value) for key, value in definition.defaults.items()}
        method = definition.method_name if check_method else None
        inputs, outputs = specs(definition.inputs), specs(definition.outputs)
        return cls(name, inputs, outputs, defaults, method, checks_shapes)

    @functools.cached_property
    def has_rows(self) -> bool:
        """Whether all inputs and outputs have a batch dimension, so that requests can be merged."""
        specs = [*self.inputs.values(), *self.outputs.values()]
        return bool(self.inputs) and all(spec.has_rows for spec in specs)

    def can_merge(self, inputs: Mapping[str, np.ndarray]) -> bool:
        """Return whether axis 0 of checked inputs is a batch, so that they merge with others.

        What a graph makes of shapes other than the declared ones is unknown.
        """
        return self.has_rows and (
            self.checks_shapes
            or all(spec.fits(inputs[name].shape) for name, spec in self.inputs.items())
        )

    @functools.cached_property
    def reply_row_bytes(self) -> int:
        """The bytes of one row of all outputs whose shapes are known."""
        return sum(spec.row_bytes or 0 for spec in self.outputs.values())

    @functools.cached_property
    def state(self) -> dict[str, TensorSpec]:
        """The inputs that the server can keep between requests; empty if there are none."""
        names: Collection[str] = ()
        if "memory" in self.inputs and "next_memory" in self.outputs:
            names = {"memory"}
        elif self.inputs.keys() == windows.INPUTS and "action" in self.outputs:
            names = windows.INPUTS if all(spec.row_bytes for spec in self.inputs.values()) else ()
        return {name: self.inputs[name] for name in self.inputs if name in names and self.has_rows}

    @functools.cached_property
    def step(self) -> Signature:
        """The signature of a request in a sequence, in which the inputs `state` are optional.

        Instead of a window, it has the newest observation, the reward and the target return.
        """
        inputs, optional = self.inputs, set(self.state)
        if "states" in self.state:
            shape = (None, *self.inputs["states"].shape[2:])
            observation = dataclasses.replace(
                self.inputs["states"], name="observation", shape=shape
            )
            numbers = ("reward", "target_return")
            specs = [observation, *(TensorSpec(n, types_pb2.DT_FLOAT, (None,)) for n in numbers)]
            inputs = {**{spec.name: spec for spec in specs}, **self.inputs}
            optional.add("target_return")
        outputs = {name: spec for name, spec in self.outputs.items() if name != "next_memory"}
        defaults = {**self.defaults, **dict.fromkeys(optional)}
        return dataclasses.replace(self, inputs=inputs, outputs=outputs, defaults=defaults)

    def check(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs in the signature's order, with defaults for missing ones.

        Raises:
            ServingError: INVALID_ARGUMENT for a missing or unknown name, or for a dtype or shape
                that does not match.
        """
        inputs = self.defaults | inputs
        self.check_names(inputs)
        for name, spec in self.inputs.items():
            check = spec.check if self.checks_shapes else spec.check_dtype
            check(inputs[name])
        return {name: inputs[name] for name in self.inputs}

    def check_names(self, names: Collection[str]) -> None:
        """Raise INVALID_ARGUMENT if a name is unknown, or an input without default is missing."""
        given = {*names, *self.defaults}
        if given != self.inputs.keys():
            extra = sorted(given - self.inputs.keys())[:_MAX_NAMES]
            missing = sorted(self.inputs.keys() - given)
            raise invalid(
                f"inputs do not match signature {self.name!r}: "
                f"sent extra: {extra}, missing but required: {missing}"
            )

    def choose_outputs(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the output names of a filter in the signature's order; an empty one means all."""
        if not names:
            return self._all_outputs
        names = names[: len(self.outputs) + 1]  # bounds the work; one name too many is an error
        if len(set(names)) != len(names):
            raise invalid(f"the request repeats an output: {list(names[:_MAX_NAMES])}")
        unknown = [name for name in names if name not in self.outputs][:_MAX_NAMES]
        if unknown:
            raise invalid(f"unknown outputs {unknown}; the signature has {list(self.outputs)}")
        chosen = tuple(name for name in self.outputs if name in names)
        self.check_dense({name: self.outputs[name] for name in chosen}, "output")
        return chosen

    @functools.cached_property
    def _all_outputs(self):
        self.check_dense(self.outputs, "output")
        return tuple(self.outputs)

    def check_dense(self, specs: Mapping[str, TensorSpec], kind: str) -> None:
        """Raise UNIMPLEMENTED if a tensor is not dense; `kind` is "input" or "output"."""
        for spec in specs.values():
            if spec.encoding != "name":
                raise ServingError(
                    "UNIMPLEMENTED",
                    f"{kind} {spec.name!r} of signature {self.name!r} is not a dense tensor but "
                    f"{spec.encoding}, which the protocol cannot represent",
                )


class Servable:
    """A version of a model, loaded into a TensorFlow session.

    Args:
        name: The name of the model.
        version: The number of the version.
        directory: The version directory.
        tags: The tags of the meta graph to load.
        config: The `tf.compat.v1.ConfigProto` of the session.
        batching: The `BatchingParameters` with which requests are merged; `None` to run each
            request on its own.
        check_methods: Whether Classify and Regress require a signature with their method name.
    """

    def __init__(
        self,
        name: str,
        version: int,
        directory: Any,
        tags: Sequence[str] = ("serve",),
        config: Any = None,
        batching: Any = None,
        check_methods: bool = False,
    ) -> None:
        self.name, self.version, self.directory = name, version, directory
        self.batching = batching
        #: Number of requests that use this version; changed only in the event loop's thread.
        self.users = 0
        self._session = SavedModelSession(directory, tags, config)
        self.signature_defs = self._session.meta_graph.signature_def
        graph = self._session.meta_graph.graph_def
        #: Whether the time of a run may depend on the values of its inputs.
        self.has_loops = any(
            node.op in _LOOPS
            for nodes in (graph.node, *(function.node_def for function in graph.library.function))
            for node in nodes
        )
        # Exports of this library declare the only shapes they take; the error names them.
        checks_shapes = (pathlib.Path(directory) / "assets.extra" / "policy.json").exists()
        self.signatures = {
            key: Signature.from_def(key, definition, check_methods, checks_shapes)
            for key, definition in self._session.signatures.items()
        }
        #: Signature name -> input name -> NumPy dtype, with which the REST API parses requests.
        self.json_dtypes = _json_dtypes(self.signatures)
        steps = {key: each.step for key, each in self.signatures.items() if each.state}
        #: The same for requests in a sequence.
        self.sequence_dtypes = {**_json_dtypes(steps), STATE_SIGNATURE: {}}

    def signature(self, name: str, in_sequence: bool = False) -> Signature:
        """Return the signature with a name; "" stands for `serving_default`.

        Args:
            name: The name of the signature.
            in_sequence: Whether to return its `step`, the signature of a request in a sequence.
        """
        if in_sequence and name == STATE_SIGNATURE:
            return Signature(name, {}, {}, {})
        signature = self.signatures.get(name or DEFAULT_SIGNATURE)
        if signature is None:
            raise ServingError(
                "FAILED_PRECONDITION",
                f'Serving signature key "{name or DEFAULT_SIGNATURE}" not found; '
                f"the model has {sorted(self.signatures)}",
            )
        signature.check_dense(signature.inputs, "input")
        if in_sequence and not signature.state:
            raise invalid(f"signature {signature.name!r} has no state for a sequence to keep")
        return signature.step if in_sequence else signature

    def run(self, signature: Any, inputs: dict[str, Any], outputs: Any) -> dict[str, np.ndarray]:
        """Return name -> array of the outputs; block until they are computed.

        Several threads may call this at once.

        Args:
            signature: The `Signature` to run.
            inputs: name -> array, as `Signature.check` returns them.
            outputs: The names of the outputs to compute.
        """
        try:
            results = self._session.run(signature.name, inputs, outputs)
        except tf.errors.OpError as error:
            raise from_tensorflow(error) from error
        # TensorFlow returns a scalar output as Python bytes or as a NumPy scalar.
        return {
            name: np.asarray(value, signature.outputs[name].numpy_dtype)
            for name, value in results.items()
        }

    def close(self) -> None:
        """Free the model; no request may be running on it."""
        self._session.close()


def _json_dtypes(signatures):
    dtypes = {
        key: {name: spec.numpy_dtype for name, spec in signature.inputs.items()}
        for key, signature in signatures.items()
        if all(spec.encoding == "name" for spec in signature.inputs.values())
    }
    if DEFAULT_SIGNATURE in dtypes:
        dtypes[""] = dtypes[DEFAULT_SIGNATURE]
    return dtypes


def from_tensorflow(error: Any) -> ServingError:
    """Return the `ServingError` for a `tf.errors.OpError`, whose codes are the same."""
    codes = {code.value[0]: code.name for code in grpc.StatusCode}
    return ServingError(codes.get(error.error_code, "INTERNAL"), error.message)
