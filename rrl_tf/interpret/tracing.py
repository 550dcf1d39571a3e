"""A Q network that is asked step by step, with what can be seen of it."""

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
class Look:
    """One step of a network: Q values `(A,)`, and dicts name → array of what can be seen of it."""

    q_values: np.ndarray
    rounds: dict[str, np.ndarray]
    """Attention from cell to cell, `(H, N, N)`, cell by cell as pictures have them, or, where
    these are patches of a frame, row by row."""
    blocks: dict[str, np.ndarray]
    """Attention of the memory, `(H, N, S)`."""
    gates: dict[str, np.ndarray]
    """`(M, units)` or `(units,)`, from 0 to 1."""


class Watched:
    """Plays one episode with a Q network; of one that remembers, carries along what it does.

    Args:
        network: `RecurrentQNetwork`, or `network(x)` → Q values `(B, A)`, perhaps with an argument
            `return_attention_scores`.
        task: what is played.

    Attributes:
        attends: whether it can show its attention from cell to cell of the task's grid.
        frame_grid: `(rows, columns)` of the patches of a picture that attend to each other, where
            a network makes its entities of a picture; else `None`.
        remembers: whether it has a memory.

    Example:
        >>> from rrl_tf.envs import doorkey_task
        >>> task, network = doorkey_task((5,)), RelationalQNetwork.from_preset("doorkey-5x5")
        >>> watched, env = Watched(network, task), task.make_test_env()
        >>> observation, _ = env.reset(seed=0)
        >>> look = watched.look(observation)
        >>> {name: attention.shape for name, attention in look.rounds.items()}
        {'round_1': (2, 49, 49), 'round_2': (2, 49, 49)}
        >>> action = int(look.q_values.argmax())
        >>> observation, reward, *_ = env.step(action)
        >>> watched.remember(action, float(reward))
    """

    def __init__(self, network: keras.Model, task: Task) -> None:
        self._network, self._task = network, task
        self._recurrent = isinstance(network, RecurrentQNetwork)
        self.remembers = self._recurrent and network.memory_size > 0
        self._memory: Any = None
        self._action, self._reward = -1, 0.0
        self.attends, self.frame_grid = self._attends(), self._frame_grid()

    def _attends(self):
        shape = self._task.preprocessor.shape
        can = "return_attention_scores" in inspect.signature(self._network.call).parameters
        if self._task.entities is None or len(shape) != 3 or not can:
            return False
        _, _, rounds, *_ = self._ask(ops.zeros((1, *shape)), looks=True)
        cells = (shape[0] * shape[1],) * 2
        return bool(rounds) and all(each.shape[-2:] == cells for each in rounds.values())

    def _frame_grid(self):
        shape = self._task.preprocessor.shape
        if self._task.entities is not None or not isinstance(self._network, RelationalQNetwork):
            return None
        grid = self._network.grid_shape((None, *shape))
        return None if grid == shape[:2] else grid  # cells of a grid may lie anywhere in a frame

    def look(self, observation: np.ndarray) -> Look:
        """What the network makes of an observation, and what it remembers from now on."""
        views = self._task.preprocessor(observation[None])
        q, self._memory, *seen = self._ask(views, looks=self.attends or bool(self.frame_grid))
        rounds, blocks, gates = (
            {name: _array(value) for name, value in values.items()} for values in seen
        )
        if self.attends:
            order = cells_order(self._task)
            rounds = {name: each[:, order][:, :, order] for name, each in rounds.items()}
        return Look(_array(q), rounds, blocks, gates)

    def _ask(self, views, looks):
        """Q values, the next memory, and attention from cell to cell, of the memory, and gates."""
        if not self._recurrent:
            if not looks:
                return self._network(views), None, {}, {}, {}
            q, scores = self._network(views, return_attention_scores=True)
            return q, None, scores, {}, {}
        inputs = {
            "observation": views,
            "previous_action": ops.convert_to_tensor([self._action], "int32"),
            "previous_reward": ops.convert_to_tensor([self._reward], "float32"),
        }
        q, memory, scores, gates = self._network(
            inputs, self._memory, return_attention_scores=True, return_gates=True
        )
        rounds = {name: each for name, each in scores.items() if name.startswith("round_")}
        blocks = {name: each for name, each in scores.items() if name not in rounds}
        return q, memory, rounds, blocks, gates

    def remember(self, action: int, reward: float) -> None:
        """What was done after the last look, and what came of it."""
        self._action, self._reward = action, reward

    def memory_of(self, looks: Sequence[Look]) -> viz.EpisodeMemory | None:
        """An episode's memory as pictures show it; `None` where there is nothing to show."""
        if not self.remembers:
            return None
        gates = {name: np.stack([look.gates[name] for look in looks]) for name in looks[0].gates}
        blocks = {name: np.stack([look.blocks[name] for look in looks]) for name in looks[0].blocks}
        if self._network.core == "window":
            return _window(blocks)
        if self._network.core == "lstm":  # every unit, as the mean of many hardly moves
            units = self._network.core_layer.output_size
            return viz.EpisodeMemory([f"unit {i}" for i in range(1, units + 1)], gates)
        means = {name: gate.mean(axis=-1) for name, gate in gates.items()}
        # The rows of later blocks are mixtures of these.
        return self._slots(blocks["block_1"], means)

    def _slots(self, attention, gates):
        count = self._network.core_layer.cell.mem_slots
        slots = tuple(f"slot {i}" for i in range(1, count + 1))
        if self._network.memory_input == "vector":
            return viz.EpisodeMemory(slots, gates, attention[:, :, :count], (*slots, "input"))
        cells = count + cells_order(self._task)
        order = np.concatenate([np.arange(count), cells, [cells.max() + 1]])
        return viz.EpisodeMemory(
            slots,
            gates,
            attention[:, :, :count, order],
            (*slots, viz.VIEW, "action"),
            picture_grid(self._task),
        )


def _window(blocks):
    """What the present step attends to, in every block of a transformer over the last steps."""
    present = [blocks[f"block_{i}"][:, :, -1] for i in range(1, len(blocks) + 1)]  # (T, H, K)
    length = present[0].shape[-1]
    steps = (*(f"-{k}" for k in range(length - 1, 0, -1)), "now")
    names = tuple(f"block {i}" for i in range(1, len(present) + 1))
    return viz.EpisodeMemory(names, {}, np.stack(present, axis=2), steps)


def cells_order(task: Task) -> np.ndarray:
    """For every cell in the order of pictures, x before y, its place in the network's `(N,)`."""
    height_width = task.preprocessor.shape[:2]
    order = np.arange(height_width[0] * height_width[1]).reshape(height_width)
    return (order.T if task.rows_first else order).ravel()


def picture_grid(task: Task) -> tuple[int, int]:
    """`(width, height)` of the task's grid."""
    first, second = task.preprocessor.shape[:2]
    return (second, first) if task.rows_first else (first, second)


def _array(tensor):
    """The only row of a batch, float32: mixed precision's numbers are drawn by nobody."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))[0]
