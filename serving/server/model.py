"""One loaded version of a model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any

import grpc
import numpy as np
import tensorflow as tf

from rrl_tf.export.session import SavedModelSession
from serving import tensors
from serving.errors import ServingError, invalid

DEFAULT_SIGNATURE = "serving_default"
_MOST_NAMED = 8  # of a client's names, in a message


@dataclasses.dataclass(frozen=True)
class Signature:
    """What one signature takes and gives, by name."""

    name: str
    inputs: dict
    outputs: dict
    defaults: dict
    method: str | None = None

    @classmethod
    def from_def(cls, name: str, definition: Any, check_method: bool = False) -> Signature:
        """Reads a SignatureDef; only a method that is to be checked is kept."""

        def specs(infos):
            return {key: tensors.TensorSpec.from_info(key, infos[key]) for key in sorted(infos)}

        defaults = {key: tensors.from_proto(value) for key, value in definition.defaults.items()}
        method = definition.method_name if check_method else None
        return cls(name, specs(definition.inputs), specs(definition.outputs), defaults, method)

    def most_values(self, rows: int) -> int | None:
        """Returns how many commas inputs of so many rows may hold, None if that is not known."""
        values = _values_a_row(self.inputs)
        if values is None:
            return None
        # An input of a fixed first size has that many, whatever else a request may have.
        fixed = [spec.shape[0] for spec in self.inputs.values() if spec.shape and not spec.rows]
        # Objects have a comma for each of their members too.
        return max([rows, *fixed]) * (values + len(self.inputs))

    @property
    def bytes_a_row(self) -> int | None:
        """How many bytes a row of the outputs takes, None if that is not known."""
        return _values_a_row(self.outputs, lambda spec: spec.numpy_dtype.itemsize)

    def check_method(self, method: str) -> None:
        """Raises INVALID_ARGUMENT if the signature's kind is checked, and is another."""
        if self.method not in (None, method):
            raise invalid(f"Expected {method} signature method_name; got {self.method}")

    @property
    def in_rows(self) -> bool:
        """Whether all inputs and outputs have a free first dimension, so requests can merge."""
        specs = [*self.inputs.values(), *self.outputs.values()]
        return bool(self.inputs) and all(spec.rows for spec in specs)

    def check(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the inputs in the signature's order, defaults filled in.

        Raises:
            ServingError: INVALID_ARGUMENT for a missing or unknown name, or a dtype or shape that
                does not fit; the message names what was received and what was expected.
        """
        inputs = self.defaults | inputs
        self.check_names(inputs)
        for name, spec in self.inputs.items():
            spec.check(inputs[name])
        return {name: inputs[name] for name in self.inputs}

    def check_names(self, names: Collection[str]) -> None:
        """Raises INVALID_ARGUMENT unless these and the defaults are the inputs."""
        given = {*names, *self.defaults}
        if given != self.inputs.keys():
            extra = sorted(given - self.inputs.keys())[:_MOST_NAMED]
            missing = sorted(self.inputs.keys() - given)
            raise invalid(
                f"inputs do not match signature {self.name!r}: "
                f"sent extra: {extra}, missing but required: {missing}"
            )

    def choose_outputs(self, names: Sequence[str]) -> tuple[str, ...]:
        """Returns the output names of a request's filter, all for an empty one.

        They are in the signature's order, so that requests which differ in theirs alone may merge.
        """
        names = names[: len(self.outputs) + 1]  # one too many is as wrong as a million
        if len(set(names)) != len(names):
            raise invalid(f"output_filter repeats an output: {list(names[:_MOST_NAMED])}")
        unknown = [name for name in names if name not in self.outputs][:_MOST_NAMED]
        if unknown:
            raise invalid(f"output_filter names {unknown}; outputs are {list(self.outputs)}")
        return tuple(name for name in self.outputs if not names or name in names)


def _values_a_row(specs, weight=lambda spec: 1):
    total = 0
    for spec in specs.values():
        known = spec.shape is not None and None not in spec.shape[1:]
        if not known or spec.numpy_dtype is None or spec.numpy_dtype.kind == "O":
            return None
        total += math.prod(spec.shape[1:]) * weight(spec)
    return total


class Servable:
    """A version folder loaded into a Session, answering by signature.

    Args:
        name: The model's name.
        version: Its number.
        directory: The version folder.
        tags: Which meta graph of the SavedModel to load.
        config: `tf.compat.v1.ConfigProto` of the Session.
        batching: `BatchingParameters` of its requests, None to run each by itself.
        check_methods: Whether a signature answers only what its `method_name` says.
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
        self.users = 0
        self._session = SavedModelSession(directory, tags, config)
        self.signature_defs = self._session.meta_graph.signature_def
        self.signatures = {
            key: Signature.from_def(key, definition, check_methods)
            for key, definition in self._session.signatures.items()
        }
        #: What REST needs to read a request: name of a signature -> dtype by name of its inputs.
        self.json_dtypes = {
            key: {name: spec.numpy_dtype for name, spec in signature.inputs.items()}
            for key, signature in self.signatures.items()
        }
        if DEFAULT_SIGNATURE in self.json_dtypes:
            self.json_dtypes[""] = self.json_dtypes[DEFAULT_SIGNATURE]

    def acquire(self) -> None:
        """Counts one more user; a version in use is not unloaded. Event loop's thread only."""
        self.users += 1

    def release(self) -> None:
        """Ends one `acquire`."""
        self.users -= 1

    def signature(self, name: str) -> Signature:
        """Returns the signature of that name; "" is `serving_default`."""
        signature = self.signatures.get(name or DEFAULT_SIGNATURE)
        if signature is None:
            raise ServingError(
                "FAILED_PRECONDITION",
                f'Serving signature key "{name or DEFAULT_SIGNATURE}" not found; '
                f"the model has {sorted(self.signatures)}",
            )
        return signature

    def most_values(self, rows: int) -> int | None:
        """Returns how many values a request of so many rows may hold, None if that is not known."""
        most = [signature.most_values(rows) for signature in self.signatures.values()]
        known = [values for values in most if values is not None]
        return max(known) if rows and known and len(known) == len(most) else None

    def run(self, signature: Any, inputs: dict[str, Any], outputs: Any) -> dict[str, np.ndarray]:
        """Returns name -> array for checked inputs; blocks, and may run in several threads."""
        try:
            results = self._session.run(signature.name, inputs, outputs)
        except tf.errors.OpError as error:
            raise from_tensorflow(error) from error
        # A scalar comes back as Python bytes or a NumPy scalar.
        return {
            name: np.asarray(value, signature.outputs[name].numpy_dtype)
            for name, value in results.items()
        }

    def close(self) -> None:
        """Frees the model; nothing may be running."""
        self._session.close()


def from_tensorflow(error: Any) -> ServingError:
    """Returns the ServingError of a tf.errors.OpError: the codes are the same."""
    codes = {code.value[0]: code.name for code in grpc.StatusCode}
    return ServingError(codes.get(error.error_code, "INTERNAL"), error.message)
