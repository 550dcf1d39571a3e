"""What a recorded profile says in numbers: how long a step took, and what its parts took of it."""

from __future__ import annotations

import collections
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from rrl_tf.errors import InvalidInput

PARTS = ("wait", "act", "environment", "replay", "update")
"""What a loop in Python does in a step; with actors it waits, and they act."""
SCOPES = ("act", "environment", "replay", "target", "forward", "backward", "optimizer")
"""What the graph does: the last four in an update, the others in `GraphLoop` only."""
# TensorFlow puts the operations of a gradient in a scope of its own.
_SCOPE_OF = {scope: scope for scope in SCOPES} | {"gradient_tape": "backward"}


class ProfileSummary(NamedTuple):
    """What `read_profile` finds.

    Attributes:
        step_seconds: of each step that was recorded.
        parts: dict part of a step → its share of the steps' time; empty without a loop in Python.
        scopes: dict scope of the graph → its share of the time that all threads spent in
            operations of any scope.
    """

    step_seconds: list[float]
    parts: dict[str, float]
    scopes: dict[str, float]


def read_profile(folder: str | os.PathLike) -> ProfileSummary:
    """Reads the newest profile below a folder; it needs nothing beside TensorFlow.

    Args:
        folder: of the run. What it did ran on a CPU: for other devices, see TensorBoard.

    Raises:
        InvalidInput: if no profile is there, or the profile is of another device.

    Example:
        >>> from rrl_tf.training import profiled
        >>> steps = profiled(range(5), "runs/first", lambda number: number == 1, count=2)
        >>> list(steps)  # doctest: +ELLIPSIS
        written: a profile; tensorboard --logdir runs/first shows it...
        [0, 1, 2, 3, 4]
        >>> len(read_profile("runs/first").step_seconds)
        2
    """
    host, names_in_xla = _host(_newest(folder))
    steps: list[float] = []
    parts: dict[str, float] = collections.defaultdict(float)
    scopes: dict[str, float] = collections.defaultdict(float)
    for line in host.lines:
        for name, seconds, own in _events(host, line, names_in_xla):
            if name == "train":
                steps.append(seconds)
            elif name in PARTS:
                parts[name] += seconds
            elif scope := next((_SCOPE_OF[s] for s in name.split("/") if s in _SCOPE_OF), None):
                scopes[scope] += own
    in_scopes = sum(scopes.values())
    return ProfileSummary(
        steps,
        {part: parts[part] / sum(steps) for part in PARTS if part in parts},
        {scope: scopes[scope] / in_scopes for scope in SCOPES if scope in scopes},
    )


def _newest(folder):
    # It comes with TensorFlow, but is no part of its public interface.
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    files = sorted(pathlib.Path(folder).rglob("*.xplane.pb"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise InvalidInput(f"expected a run recorded with --profile; received {str(folder)!r}")
    return XSpace.FromString(files[-1].read_bytes())


def _host(space):
    """What ran on the host, and program of XLA's → its parts → the operations they come from."""
    planes = {plane.name: plane for plane in space.planes}
    devices = [name for name in planes if name.startswith("/device:")]
    if devices or "/host:CPU" not in planes:
        raise InvalidInput(f"expected a profile of a CPU; received one of {devices or 'nothing'}")
    names = dict(_names_in_xla(planes["/host:metadata"])) if "/host:metadata" in planes else {}
    return planes["/host:CPU"], names


def _names_in_xla(plane) -> Iterator[tuple[str, dict[str, str]]]:
    from tensorflow.compiler.xla.service.hlo_pb2 import HloProto

    for program in plane.event_metadata.values():
        for stat in program.stats:
            module = HloProto.FromString(stat.bytes_value).hlo_module
            instructions = (each for part in module.computations for each in part.instructions)
            yield module.name, {each.name: each.metadata.op_name for each in instructions}


def _name(plane, event, names_in_xla):
    """An event's name, or what stands behind it in XLA's program: names repeat in others."""
    name = plane.event_metadata[event.metadata_id].name
    for stat in event.stats:
        if plane.stat_metadata[stat.metadata_id].name == "hlo_module":
            module = stat.str_value or plane.stat_metadata[stat.ref_value].name
            return names_in_xla.get(module, {}).get(name, name)
    return name


def _events(plane, line, names_in_xla) -> Iterator[tuple[str, float, float]]:
    """Name, seconds, and seconds without those of events within, of every event of a thread."""
    open_events: list[list[Any]] = []  # each within the one before: name, end, seconds, own

    def closed(until):
        while open_events and open_events[-1][1] <= until:
            name, _, *times = open_events.pop()
            yield (name, *times)

    for event in sorted(line.events, key=lambda each: (each.offset_ps, -each.duration_ps)):
        seconds = event.duration_ps / 1e12
        yield from closed(event.offset_ps)
        if open_events:
            open_events[-1][3] -= seconds
        end = event.offset_ps + event.duration_ps
        open_events.append([_name(plane, event, names_in_xla), end, seconds, seconds])
    yield from closed(float("inf"))
