"""Ablation: run a model without a head, a round or a slot, or with other attention."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from rrl_tf._arguments import natural, one_of
from rrl_tf.envs import Task
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret.effects import Effects
from rrl_tf.interpret.places import MEMORY, Edits, outputs, trace
from rrl_tf.interpret.states import network_inputs
from rrl_tf.models import RecurrentQNetwork

if TYPE_CHECKING:  # it loads TensorFlow
    from rrl_tf.agents.evaluation import Evaluation

KINDS = ("head", "round", "slot", "memory", "uniform", "shuffled")
EXCHANGED = "exchanged"


def ablate(
    model: keras.Model, inputs: Any, kinds: Collection[str] = KINDS, seed: int = 0
) -> Effects:
    """Return the effect of removing parts of a model on its outputs, one part at a time.

    The kinds of changes are:

    - `"head"`: the attention of a head, and thus its message to all entities, becomes zero.
    - `"round"`: the entities stay as they were before the round. If the round changes their size,
      they become zero.
    - `"slot"`: a slot of the memory becomes zero; of an LSTM, h or c.
    - `"memory"`: the whole memory becomes zero.
    - `"uniform"`: all heads of a round attend equally to all entities that they may attend to.
    - `"shuffled"`: every entity exchanges the scores of the entities that it may attend to.

    Args:
        model: as for `trace`.
        inputs: inputs of the model for B states.
        kinds: kinds of changes; those that the model does not have are left out.
        seed: seed of the exchanges.

    Returns:
        `Effects`, whose names are such as `"round_1, head 2"` and `"round_1, uniform"`.

    Raises:
        InvalidInput: if a kind is unknown, or the model has no place.

    Example:
        >>> from rrl_tf.models import RelationalQNetwork
        >>> model = RelationalQNetwork.from_preset("doorkey-5x5")
        >>> found = ablate(model, np.zeros((1, 7, 7, 24)), kinds=["head", "round"])
        >>> found.names
        ('round_1, head 1', 'round_1, head 2', 'round_1', 'round_2, head 1', 'round_2, head 2', \
'round_2')
    """
    for kind in kinds:
        one_of("kinds", kind, KINDS)
    rng, found = np.random.default_rng(natural("seed", seed)), trace(model, inputs)
    changes = {name: edits for kind, name, edits in _changes(found, rng) if kind in kinds}
    after = [outputs(model, inputs, edits) for edits in changes.values()]
    before = outputs(model, inputs)
    return Effects(tuple(changes), before, np.array(after).reshape(-1, *before.shape))


def play_ablated(
    model: keras.Model,
    task: Task,
    resets: Sequence[Mapping[str, Any]],
    kinds: Collection[str] = ("head", "round", "memory", "uniform"),
    seed: int = 0,
) -> dict[str, Evaluation]:
    """Play a task greedily without a part of the model, one part at a time.

    Unlike `ablate`, this shows whether a part is needed to succeed: the agent acts without it from
    the first step on, and may reach states that it never sees otherwise.

    Args:
        model: a Q network of the task.
        task: the task to play.
        resets: keyword arguments of `reset`, one mapping per episode, such as
            `task.evaluation_resets()`.
        kinds, seed: as for `ablate`. Another kind is `"exchanged"`: an episode chooses every action
            with the memory of another episode that is running or, if it is the last one to run, of
            one that has ended. It still updates its own memory from its own observations.

    Returns:
        A dict from the name of each change, as in `ablate`, to an `Evaluation`. `"nothing"` is the
        unchanged model.

    Raises:
        InvalidInput: as for `ablate`, or if `resets` is empty, or has a single element for
            `"exchanged"`.

    Example:
        >>> from rrl_tf.envs import doorkey_task
        >>> from rrl_tf.models import RelationalQNetwork
        >>> task, model = doorkey_task((5,)), RelationalQNetwork.from_preset("doorkey-5x5")
        >>> found = play_ablated(model, task, task.evaluation_resets(at_most=4), ["round"])
        >>> {name: each.summary()["success"] for name, each in found.items()}
        {'nothing': 1.0, 'round_1': 0.0, 'round_2': 0.0}
    """
    from rrl_tf.agents.evaluation import evaluate

    for kind in kinds:
        one_of("kinds", kind, (*KINDS, EXCHANGED))
    if EXCHANGED in kinds and len(resets) < 2:
        raise InvalidInput(
            f"`resets` must have at least 2 elements to exchange memories; received {len(resets)}"
        )
    seed = natural("seed", seed)
    found, player = {}, _Player(model, task, "nothing", seed)
    for name in ("nothing", *player.names(kinds)):
        player = _Player(model, task, name, seed)
        act = player if isinstance(model, RecurrentQNetwork) else player.act
        found[name] = evaluate(act, task.make_test_env, resets)
    return found


class _Player:
    """A greedy policy of a model with one change, in the form that `evaluate` expects."""

    def __init__(self, model, task, name, seed):
        self.model, self.task, self.name = model, task, name
        self.rng = np.random.default_rng(seed)
        self.ended = None  # the memory of an episode that has ended

    def names(self, kinds):
        """Return the names of the changes of some kinds that the model has."""
        with contextlib.closing(self.task.make_test_env()) as env:
            view, _ = env.reset(seed=0)
        inputs = network_inputs(self.model, self.task, view[None], self.initial_state(1))
        found = trace(self.model, inputs)
        names = [name for kind, name, _ in _changes(found, self.rng) if kind in kinds]
        return names + [EXCHANGED] * (EXCHANGED in kinds and MEMORY in found)

    def act(self, observation):
        return self(observation, {})[0]

    def __call__(self, observation, state):
        inputs = network_inputs(self.model, self.task, observation, state)
        found = chosen = trace(self.model, inputs)
        if self.name == EXCHANGED:
            chosen = trace(self.model, inputs, {MEMORY: self.exchanged(found[MEMORY])})
        else:
            for _, name, edits in _changes(found, self.rng):
                if name == self.name:
                    found = chosen = trace(self.model, inputs, edits)
                    break
        count = len(observation)
        memory = found.get("memory/after", np.zeros((count, 0), "float32"))
        actions = chosen["output"].reshape(count, -1).argmax(axis=1).astype("int32")
        return actions, memory.reshape(count, -1)

    def initial_state(self, count):
        is_recurrent = isinstance(self.model, RecurrentQNetwork)
        return _arrays(self.model.initial_state(count)) if is_recurrent else {}

    def exchanged(self, memory):
        """Return the memories `(B, slots, units)`, so that no episode has its own."""
        if len(memory) == 1:
            return self.ended.reshape(memory.shape)
        # Use a random cycle: an arbitrary permutation may give an episode its own memory.
        cycle = self.rng.permutation(len(memory))
        exchanged = np.empty_like(memory)
        exchanged[cycle] = memory[np.roll(cycle, 1)]
        return exchanged

    def next_state(self, memory, action, reward, done):
        if done.any():
            self.ended = memory[done][0]
        return _arrays(self.model.next_state(memory, action, reward, done))


def _arrays(state):
    return {name: np.array(value) for name, value in state.items()}


def _changes(found, rng) -> Iterator[tuple[str, str, Edits]]:
    """Yield the kind, the name and the edits of every change."""
    for place in found:
        name, _, what = place.rpartition("/")
        if what == "attention":
            scores = found[place]
            for head in range(scores.shape[1]):
                kept = (np.arange(scores.shape[1]) != head)[:, None, None]
                yield "head", f"{name}, head {head + 1}", {place: _times(kept)}
            yield "uniform", f"{name}, uniform", {place: _rows(_uniform(scores))}
            yield "shuffled", f"{name}, shuffled", {place: _rows(_shuffled(scores, rng))}
        elif what == "after" and f"{name}/before" in found and name != "memory":
            before = found[f"{name}/before"]
            same = before.shape == found[place].shape
            yield "round", name, {place: before if same else np.zeros_like(found[place])}
        elif place == MEMORY:
            yield "memory", name, {place: np.zeros_like(found[place])}
            for slot in range(found[place].shape[1]):
                kept = (np.arange(found[place].shape[1]) != slot)[:, None]
                yield "slot", f"{name}, slot {slot + 1}", {place: _times(kept)}


def _times(kept):
    return lambda value: value * kept.astype("float32")


def _rows(scores):
    """Return an edit; a memory computes only the rows of its slots, which are the first."""
    return lambda value: scores[:, :, : value.shape[2]]


def _uniform(scores):
    allowed = (scores > 0).astype("float32")
    return allowed / np.maximum(1, allowed.sum(axis=-1, keepdims=True))


def _shuffled(scores, rng):
    """Return scores `(B, H, N, S)` whose positive entries have changed places within each row."""
    masked = scores == 0
    places = np.argsort(masked, axis=-1, kind="stable")
    drawn = np.argsort(masked + rng.random(scores.shape), axis=-1)
    shuffled = np.zeros_like(scores)
    np.put_along_axis(shuffled, places, np.take_along_axis(scores, drawn, axis=-1), axis=-1)
    return shuffled
