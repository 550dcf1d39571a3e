"""Keep the state of sequences on the server: memories of recurrent policies, and windows.

Without this module, a client sends the state in every request. In a sequence, the server adds the
state to a request before it enters the batching queue, and keeps the new state instead of sending
it. Requests of many sequences, and requests without a sequence, therefore share batches.

A request belongs to a sequence if it has the parameter `sequence_id`. The first request of a
sequence also has `sequence_start`, and the last one `sequence_end`. `Signature.step` describes its
inputs. The signature name `sequence_state` exports the state. A first request that contains such a
state continues from there.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from serving import windows
from serving.errors import ServingError, invalid, shown
from serving.server.workers import in_thread

#: The parameters of a request in a sequence, as members of a JSON body and as gRPC metadata.
PARAMETERS = ("sequence_id", "sequence_start", "sequence_end")
#: The signature name of a request for the state of a sequence.
STATE_SIGNATURE = "sequence_state"
_MAX_ID = 128  # characters


class SequenceParameters(NamedTuple):
    """The place of a request in its sequence."""

    id: str
    start: bool
    end: bool


def read_parameters(given: Mapping[str, Any]) -> SequenceParameters | None:
    """Return the parameters of a request, or None if it belongs to no sequence.

    Args:
        given: parameter name -> value; other names are ignored. `sequence_id` is an integer or a
            string, and the number 7 stands for the same sequence as "7". The others are booleans,
            or the strings "true" and "false".

    Raises:
        ServingError: INVALID_ARGUMENT for a value of another kind, or without a `sequence_id`.
    """
    if not any(name in given for name in PARAMETERS):
        return None
    name, *flags = given.get("sequence_id"), *(given.get(each, False) for each in PARAMETERS[1:])
    is_integer = isinstance(name, int) and not isinstance(name, bool)
    text = str(name) if is_integer or isinstance(name, str) else ""
    if not (0 < len(text) <= _MAX_ID and text.isascii() and text.isprintable()):
        raise invalid(
            f"sequence_id must be an integer or a string of 1 to {_MAX_ID} printable ASCII "
            f"characters; received {shown(name)}"
        )
    for parameter, flag in zip(PARAMETERS[1:], flags):
        if not isinstance(flag, bool) and flag not in ("true", "false"):
            raise invalid(f"{parameter} must be true or false; received {shown(flag)}")
    return SequenceParameters(text, *(flag in (True, "true") for flag in flags))


def read_metadata(metadata: Iterable[tuple[str, Any]]) -> SequenceParameters | None:
    """Return the parameters in the metadata of a gRPC request, as `read_parameters` does."""
    given = [(name, value) for name, value in metadata if name in PARAMETERS]
    if len(dict(given)) < len(given):
        raise invalid(f"the metadata repeats a parameter: {[name for name, _ in given][:8]}")
    return read_parameters(dict(given))


@dataclasses.dataclass(eq=False)
class _Sequence:
    """The state of a sequence after its last step.

    Attributes:
        version: The version that took the step.
        signature: The `Signature` of the step.
        state: input name -> array.
        target: Of a window, the target returns (B,).
        subtracts: Of a window, 1 if rewards are subtracted from the return-to-go, otherwise 0.
        used: The time of the last request.
    """

    version: int
    signature: Any
    state: dict[str, np.ndarray]
    target: Any = None
    subtracts: Any = 1
    used: float = 0.0

    @property
    def size(self) -> int:
        """The bytes of the state."""
        return sum(array.nbytes for array in self.state.values())

    @property
    def export(self) -> Any:
        """The signature of a request for the state."""
        changes = {"name": STATE_SIGNATURE, "inputs": {}, "outputs": self.signature.state}
        return dataclasses.replace(self.signature, **changes)


class SequenceStore:
    """The sequences of all models.

    All methods must be called in the event loop's thread.

    Args:
        flags: The server's flags, which contain the limits.
        metrics: The `Metrics` with the gauges of sequences.
    """

    def __init__(self, flags: Any, metrics: Any) -> None:
        self._flags = flags
        # (model name, sequence ID) -> sequence; the one that was used longest ago comes first
        self._idle: collections.OrderedDict[tuple[str, str], _Sequence] = collections.OrderedDict()
        # The sequences with a request in progress; None for a first request.
        self._busy: dict[tuple[str, str], _Sequence | None] = {}
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        metrics.sequences.set_function(lambda: len(self._idle) + len(self._busy))
        metrics.sequence_bytes.set_function(lambda: self._bytes)

    async def request(
        self,
        servable: Any,
        name: str,
        inputs: Mapping[str, np.ndarray],
        parameters: SequenceParameters,
        output_filter: Sequence[str],
        run: Callable[[Any, dict[str, np.ndarray]], Awaitable[dict[str, np.ndarray]]],
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Answer a request of a sequence and return (signature, output name -> array).

        If the request fails, the sequence remains as it was before, or does not begin.

        Args:
            servable: The version to run; the caller keeps it loaded.
            name: The name of the signature, or `STATE_SIGNATURE`.
            inputs: name -> array of the inputs.
            parameters: The place of the request in its sequence.
            output_filter: The names of the outputs to return; empty for all.
            run: A function of a signature and its inputs that checks them and returns all outputs.

        Raises:
            ServingError: NOT_FOUND if the sequence does not exist, or cannot continue on this
                version and therefore ends. ALREADY_EXISTS if it exists but should begin. ABORTED if
                another request of the sequence is in progress. RESOURCE_EXHAUSTED if there is no
                room for a new sequence. INVALID_ARGUMENT for invalid inputs.
        """
        if self._flags.num_processes > 1:
            raise ServingError("UNIMPLEMENTED", "sequences need a server with --num_processes=1")
        key = servable.name, parameters.id
        kept = before = self._take(key, parameters.start and name != STATE_SIGNATURE)
        try:
            is_export = name == STATE_SIGNATURE
            signature = before.export if is_export else servable.signature(name, in_sequence=True)
            names = signature.choose_outputs(output_filter)
            if is_export:
                after, outputs = before, before.state
            else:
                after, outputs = await self._step(servable, name, inputs, before, run)
            growth = after.size - (before.size if before else 0)
            if not parameters.end and (before is None or growth > 0):
                self._make_room(growth)
            kept = None if parameters.end else after
        except ServingError as error:
            if error.code == "NOT_FOUND":
                kept = None
            raise
        finally:
            self._put_back(key, kept)
        return signature, {name: outputs[name] for name in names}

    def _take(self, key, start):
        """Return a sequence and mark it as busy; return None if it should start."""
        model, name = key
        if key in self._busy:
            raise ServingError(
                "ABORTED", f"sequence {name!r} of model {model!r} has a request in progress"
            )
        if start and key in self._idle:
            raise ServingError(
                "ALREADY_EXISTS", f"sequence {name!r} of model {model!r} has already started"
            )
        if not start and key not in self._idle:
            raise ServingError(
                "NOT_FOUND",
                f"sequence {name!r} of model {model!r} does not exist: it never started, has "
                "ended, was idle for too long, or the server has restarted; send sequence_start",
            )
        self._busy[key] = self._idle.pop(key, None)
        return self._busy[key]

    def _put_back(self, key, sequence):
        """End the request of a busy sequence, and keep `sequence` unless it is None."""
        before = self._busy.pop(key)
        self._bytes -= before.size if before else 0
        if sequence is None:
            return
        self._bytes += sequence.size
        loop = asyncio.get_running_loop()
        sequence.used = loop.time()
        self._idle[key] = sequence
        if self._timer is None and self._flags.sequence_idle_seconds:
            self._timer = loop.call_later(self._flags.sequence_idle_seconds, self._expire)

    def _expire(self):
        """Remove the sequences that have been idle for too long, and wait for the next one."""
        loop, self._timer = asyncio.get_running_loop(), None
        while self._idle:
            end = next(iter(self._idle.values())).used + self._flags.sequence_idle_seconds
            if end > loop.time():
                self._timer = loop.call_at(end, self._expire)
                return
            self._drop_oldest()

    def _drop_oldest(self):
        _, sequence = self._idle.popitem(last=False)
        self._bytes -= sequence.size

    def _make_room(self, size):
        """Make room for the state of a busy sequence, or raise RESOURCE_EXHAUSTED."""
        most, most_bytes = self._flags.max_sequences, self._flags.max_sequence_bytes
        may_evict = self._flags.sequence_overflow == "evict_oldest" and size <= (most_bytes or size)
        while len(self._idle) + len(self._busy) > most or 0 < most_bytes < self._bytes + size:
            if not (may_evict and self._idle):
                raise ServingError(
                    "RESOURCE_EXHAUSTED",
                    f"the server keeps at most {most} sequences with {most_bytes} bytes; "
                    "end other sequences first",
                )
            self._drop_oldest()

    async def _step(self, servable, name, inputs, before, run):
        """Run a step and return (the sequence after it, all outputs)."""
        signature = servable.signature(name)
        _check_inputs(signature, inputs, is_first=before is None)
        sequence = before or await _start(servable, signature, inputs, run)
        if sequence.signature.state != signature.state:
            if sequence.version == servable.version:
                raise invalid(f"signature {name!r} has a different state than the last step")
            raise _ended(sequence, servable, "the signatures have different states")
        sizes = {key: len(array) for key, array in {**sequence.state, **inputs}.items()}
        if len(set(sizes.values())) > 1:
            raise invalid(f"all steps must have the rows of the first one; received {sizes}")
        if "memory" in signature.state:
            whole = {**inputs, **sequence.state}
        else:
            reward = sequence.subtracts * inputs["reward"]
            whole = await in_thread(
                sequence.size,
                windows.append_step,
                sequence.state,
                inputs["observation"],
                reward,
                sequence.target,
            )
        try:
            outputs = await run(signature, whole)
        except ServingError as error:
            if error.code != "INVALID_ARGUMENT" or sequence.version == servable.version:
                raise
            raise _ended(sequence, servable, error.message) from error
        arguments = sequence, servable, signature, whole, outputs
        return await in_thread(sequence.size, _after_step, *arguments), outputs


def _ended(sequence, servable, reason):
    """Return the error of a sequence that cannot continue on a newly loaded version."""
    return ServingError(
        "NOT_FOUND",
        f"the sequence has ended: version {servable.version} of model {servable.name!r} cannot "
        f"continue it after version {sequence.version}: {reason}",
    )


def _check_inputs(signature, inputs, is_first):
    step = signature.step
    step.check_names(inputs)
    for name, array in inputs.items():
        step.inputs[name].check(array)
    optional = [name for name in inputs if name in signature.state or name == "target_return"]
    if optional and not is_first:
        raise invalid(f"only the first step of a sequence has the inputs {optional}")
    given = signature.state.keys() & inputs.keys()
    if given and given != signature.state.keys():
        raise invalid(f"a state has the inputs {sorted(signature.state)}; received {sorted(given)}")


async def _start(servable, signature, inputs, run):
    """Return a sequence before its first step, whose state the request may contain."""
    rows = max(map(len, inputs.values()), default=1)
    batch = {"batch_size": np.array(rows, np.int32)}
    state = {name: inputs[name] for name in signature.state if name in inputs}
    sequence = _Sequence(servable.version, signature, state)
    if "memory" in signature.state:
        sequence.state = state or await run(servable.signature("initial_memory"), batch)
        return sequence
    sequence.state = state or {
        name: np.zeros((rows, *spec.shape[1:]), spec.numpy_dtype)
        for name, spec in signature.state.items()
    }
    default = {}
    if "default_target" in servable.signatures:
        default = await run(servable.signature("default_target"), batch)
    sequence.subtracts = default.get("subtracts_rewards", 1)
    sequence.target = inputs.get("target_return", default.get("target_return"))
    if sequence.target is None:
        raise invalid("the first step needs `target_return`, because the policy has no default")
    return sequence


def _after_step(sequence, servable, signature, inputs, outputs):
    """Return the sequence after a step; raise INVALID_ARGUMENT if its state is not finite."""
    if "memory" in signature.state:
        # A copy, because an output may be one row of the large array of a whole batch.
        state = {"memory": np.array(outputs["next_memory"])}
    else:
        state = inputs
        windows.set_action(state, outputs["action"])
    if not all(np.isfinite(array).all() for array in state.values() if array.dtype.kind == "f"):
        raise invalid("the inputs or the next state of the sequence are not finite")
    return dataclasses.replace(sequence, version=servable.version, signature=signature, state=state)
