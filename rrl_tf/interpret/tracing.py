"""Trace a Q network: record its Q values, attention and gates at every step of an episode."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from rrl_tf import viz
from rrl_tf.envs import Task
from rrl_tf.models import RecurrentQNetwork, RelationalQNetwork


@dataclasses.dataclass(frozen=True)
class StepTrace:
    """What a Q network computes in one step.

    Attributes:
        q_values: `(A,)`.
        attention: dict name of a round -> attention `(H, N, N)` between entities. The cell (x, y)
            of a grid is entity `x * height + y`, as in the figures; patches of a picture are
            numbered row by row. Empty if the network has no attention between cells or patches. Of
            an observation with several parts, the grid is the preprocessor's `grid_part`.
        memory_attention: dict name of a block -> attention `(H, N, S)` of the memory.
        gates: dict name of a gate -> `(M, units)` for M slots or `(units,)`, from 0 to 1.
    """

    q_values: np.ndarray
    attention: dict[str, np.ndarray]
    memory_attention: dict[str, np.ndarray]
    gates: dict[str, np.ndarray]


class PolicyTracer:
    """Runs a Q network through one episode and traces every step.

    Args:
        network: `RecurrentQNetwork`, or a model that maps observations to Q values `(B, A)`. Its
            `call` may have an argument `return_attention_scores`.
        task: the task that the network plays.

    Attributes:
        has_memory: whether the network has a memory.
        patch_grid: `(rows, columns)` of the patches of a picture that attend to each other; `None`
            if the network's entities are not patches.

    Example:
        >>> from rrl_tf.envs import doorkey_task
        >>> task, network = doorkey_task((5,)), RelationalQNetwork.from_preset("doorkey-5x5")
        >>> tracer, env = PolicyTracer(network, task), task.make_test_env()
        >>> observation, _ = env.reset(seed=0)
        >>> trace = tracer.trace(observation)
        >>> {name: scores.shape for name, scores in trace.attention.items()}
        {'round_1': (2, 49, 49), 'round_2': (2, 49, 49)}
        >>> action = int(trace.q_values.argmax())
        >>> observation, reward, *_ = env.step(action)
        >>> tracer.record(action, float(reward))
    """

    def __init__(self, network: keras.Model, task: Task) -> None:
        self._network, self._task = network, task
        self._is_recurrent = isinstance(network, RecurrentQNetwork)
        self.has_memory = self._is_recurrent and network.memory_size > 0
        self.patch_grid = self._find_patch_grid()
        self._memory: Any = None
        self._state = network.initial_state(1) if self._is_recurrent else {}

    def _find_patch_grid(self):
        if self._task.entities is not None or not isinstance(self._network, RelationalQNetwork):
            return None
        shape = self._task.preprocessor.shape
        grid = self._network.grid_shape((None, *shape))
        # With one entity per cell, the cells of the grid need not cover the rendered frame.
        return None if grid == shape[:2] else grid

    def trace(self, observation: np.ndarray) -> StepTrace:
        """Run the network on one observation; call `record` before the next one."""
        q_values, attention, memory_attention, gates = keras.tree.map_structure(
            lambda x: ops.convert_to_numpy(ops.cast(x, "float32"))[0],
            self._run(self._task.preprocessor(observation[None])),
        )
        return StepTrace(q_values, self._in_figure_order(attention), memory_attention, gates)

    def _run(self, inputs):
        """Return Q values, attention of each round, attention of the memory, and gates."""
        if self._is_recurrent:
            step = {**self._state, "observation": inputs}
            q_values, self._memory, scores, gates = self._network(
                step, step.pop("memory"), return_attention_scores=True, return_gates=True
            )
            scores = _between_cells(scores)
            rounds = {name: each for name, each in scores.items() if "round_" in name}
            blocks = {name: each for name, each in scores.items() if name not in rounds}
            return q_values, rounds, blocks, gates
        if "return_attention_scores" in inspect.signature(self._network.call).parameters:
            q_values, scores = self._network(inputs, return_attention_scores=True)
            return q_values, _between_cells(scores), {}, {}
        return self._network(inputs), {}, {}, {}

    def _in_figure_order(self, attention):
        if self.patch_grid:
            return attention
        part = self._task.preprocessor.grid_part
        prefix = f"{part}_round_" if part else "round_"
        attention = {name: each for name, each in attention.items() if name.startswith(prefix)}
        order = cells_order(self._task)
        if any(each.shape[1:] != (len(order), len(order)) for each in attention.values()):
            return {}
        return {name: each[:, order][:, :, order] for name, each in attention.items()}

    def record(self, action: int, reward: float) -> None:
        """Record the action taken after the last trace and its reward, for the next trace."""
        if self._is_recurrent:
            step = np.array([action], "int32"), np.array([reward], "float32"), np.array([False])
            self._state = self._network.next_state(self._memory, *step)

    def episode_memory(self, traces: Sequence[StepTrace]) -> viz.EpisodeMemory | None:
        """Return the traced memory in the form of the figures, or `None` if there is no memory."""
        if not self.has_memory:
            return None
        gates = {name: np.stack([t.gates[name] for t in traces]) for name in traces[0].gates}
        blocks = [
            np.stack([t.memory_attention[name] for t in traces])
            for name in traces[0].memory_attention
        ]
        if self._network.core == "window":
            return _window_memory(blocks)
        if self._network.core == "lstm":  # every unit, because the mean of all hardly changes
            return viz.EpisodeMemory(_numbered("unit", self._network.core_layer.output_size), gates)
        gates = {name: gate.mean(axis=-1) for name, gate in gates.items()}
        # Only the first block, because rows of later blocks are mixtures of several slots.
        return self._slots_memory(blocks[0], gates)

    def _slots_memory(self, attention, gates):
        count = self._network.core_layer.cell.mem_slots
        slots, attention = _numbered("slot", count), attention[:, :, :count]
        if self._network.memory_input == "vector":
            return viz.EpisodeMemory(slots, gates, attention, (*slots, "input"))
        cells = count + cells_order(self._task)
        order = [*range(count), *cells, count + len(cells)]
        entities = (*slots, viz.VIEW, "action")
        grid = figure_grid(self._task)
        return viz.EpisodeMemory(slots, gates, attention[..., order], entities, grid)


def _between_cells(scores):
    """Return the attention that figures show: without that of a readout's learned queries."""
    return {name: each for name, each in scores.items() if not name.endswith("readout")}


def _window_memory(blocks):
    """Return the attention from the current step to earlier ones in each block of a transformer."""
    attention = np.stack([block[:, :, -1] for block in blocks], axis=2)  # (T, H, blocks, K)
    steps = (*(f"-{k}" for k in range(attention.shape[-1] - 1, 0, -1)), "now")
    return viz.EpisodeMemory(_numbered("block", len(blocks)), {}, attention, steps)


def _numbered(name, count):
    return tuple(f"{name} {i}" for i in range(1, count + 1))


def grid_shape(task: Task) -> tuple[int, ...]:
    """Return the first two sizes of a preprocessed grid or `grid_part`; without one, `()`."""
    shape = task.preprocessor.shape
    if task.preprocessor.parts:
        shape = shape.get(task.preprocessor.grid_part, ())
    return shape[:2] if len(shape) == 3 else ()


def cells_order(task: Task) -> np.ndarray:
    """Return the network's entity number of each cell, for cells in the order of the figures."""
    order = np.arange(np.prod(grid_shape(task))).reshape(grid_shape(task))
    return (order.T if task.rows_first else order).ravel()


def figure_grid(task: Task) -> tuple[int, int]:
    """Return the size of the task's grid as `(width, height)`."""
    first, second = grid_shape(task)
    return (second, first) if task.rows_first else (first, second)
