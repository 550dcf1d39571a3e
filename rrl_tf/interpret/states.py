"""Collect states of a task, with facts about them that probes can decode."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from rrl_tf._arguments import natural, number_from, positive_int
from rrl_tf.envs import Task
from rrl_tf.envs.checks import CheckedEnv
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret.places import trace
from rrl_tf.models import RecurrentQNetwork

MOST_STEPS = 20
"""Number of steps to play for each state that is selected, at most."""


@dataclasses.dataclass(frozen=True)
class States:
    """States of B steps of several episodes.

    Attributes:
        inputs: the network's inputs for `trace`, with a leading axis of B.
        observations: `(B, ...)`, raw observations.
        episodes: `(B,)` int, number of the episode.
        facts: dict name -> `(B,)` bool, facts that are true in some states and false in others.
    """

    inputs: Any
    observations: np.ndarray
    episodes: np.ndarray
    facts: dict[str, np.ndarray]


def collect_states(
    model: keras.Model, task: Task, count: int = 200, epsilon: float = 0.1, seed: int = 0
) -> States:
    """Play a task almost greedily, and return a random selection of the states.

    The facts of a MiniGrid world are `"key held"`, or of another object, and `"door locked"` and
    `"door open"`, true if this holds for any door. For a task with `entities`, `"key visible"` and
    so on are facts, too.

    Args:
        model: a Q network.
        task: the task that it plays, from its evaluation starts.
        count: B, the number of states; fewer if the starts do not have that many.
        epsilon: probability of a random action.
        seed: seed of the random actions and of the selection.

    Returns:
        `States`, sorted by episode.

    Raises:
        InvalidInput: if the model is not a Q network of the task, or has no place (see `trace`).

    Example:
        >>> from rrl_tf.envs import doorkey_task
        >>> from rrl_tf.models import RelationalQNetwork
        >>> model = RelationalQNetwork.from_preset("doorkey-5x5")
        >>> states = collect_states(model, doorkey_task((5,)), count=20)
        >>> states.inputs.shape, "door locked" in states.facts
        ((20, 7, 7, 24), True)
    """
    rng = np.random.default_rng(natural("seed", seed))
    count = positive_int("count", count)
    number_from("epsilon", epsilon, 0, 1)
    resets = task.evaluation_resets(at_most=max(20, count // 4))
    with contextlib.ExitStack() as stack:
        envs = [
            stack.enter_context(contextlib.closing(CheckedEnv(task.make_test_env())))
            for _ in resets
        ]
        steps = _play(model, task, envs, resets, epsilon, rng, MOST_STEPS * count)
    chosen = [steps[i] for i in sorted(rng.permutation(len(steps))[:count])]
    observations = np.stack([step["observation"] for step in chosen])
    names = dict.fromkeys(name for step in chosen for name in step["facts"])
    values = {name: np.array([step["facts"].get(name, False) for step in chosen]) for name in names}
    state = {
        name: np.stack([step["state"][name] for step in chosen]) for name in chosen[0]["state"]
    }
    return States(
        network_inputs(model, task, observations, state),
        observations,
        np.array([step["episode"] for step in chosen]),
        {name: each for name, each in values.items() if each.any() and not each.all()},
    )


def network_inputs(
    model: keras.Model, task: Task, observations: np.ndarray, state: Mapping[str, np.ndarray]
) -> Any:
    """Return a Q network's inputs; `state` is its recurrent state, or an empty dict."""
    preprocessed = keras.tree.map_structure(np.array, task.preprocessor(observations))
    return (
        {"observation": preprocessed, **state}
        if isinstance(model, RecurrentQNetwork)
        else preprocessed
    )


def _play(model, task, envs, resets, epsilon, rng, most):
    """Play an episode from each reset, all at once; return one dict per step, by episode.

    All episodes are cut when they have `most` steps together, because a poor policy may run on.
    """
    views = [env.reset(**reset)[0] for env, reset in zip(envs, resets)]
    recurrent = isinstance(model, RecurrentQNetwork)
    state = model.initial_state(len(envs)) if recurrent else {}
    episodes, steps = list(range(len(envs))), []
    while episodes and len(steps) < most:
        state = {name: np.array(value) for name, value in state.items()}
        states = [{n: value[i] for n, value in state.items()} for i in range(len(episodes))]
        found = _traced(model, task, network_inputs(model, task, np.stack(views), state))
        actions = found["output"].reshape(len(episodes), -1).argmax(axis=1).astype("int32")
        random = rng.random(len(actions)) < epsilon
        actions[random] = rng.integers(task.num_actions, size=random.sum())
        rewards, done = np.zeros(len(actions), "float32"), np.zeros(len(actions), bool)
        for i, (episode, action) in enumerate(zip(episodes, actions)):
            facts = _facts(envs[episode], task, views[i])
            step = {"episode": episode, "observation": views[i], "state": states[i]}
            steps.append({**step, "facts": facts})
            views[i], rewards[i], terminated, truncated, _ = envs[episode].step(int(action))
            done[i] = terminated or truncated
        if recurrent:
            memory = found.get("memory/after", np.zeros((len(done), 0), "float32"))
            state = model.next_state(memory.reshape(len(done), -1), actions, rewards, done)
            state = {name: np.array(value)[~done] for name, value in state.items()}
        views = [view for view, over in zip(views, done) if not over]
        episodes = [episode for episode, over in zip(episodes, done) if not over]
    return sorted(steps, key=lambda step: step["episode"])


def _traced(model, task, inputs):
    """Return `trace(model, inputs)`, or raise one error if the model does not play the task."""
    try:
        found = trace(model, inputs)
        if found["output"][0].size != task.num_actions:
            raise TypeError(f"outputs of shape {found['output'].shape}")
    except InvalidInput:
        raise
    except (TypeError, ValueError, LookupError) as error:  # of Keras for other inputs
        raise InvalidInput(
            f"`model` must be a Q network of {task.name} with {task.num_actions} actions; "
            f"received {model.name!r} ({[*str(error).strip().splitlines(), ''][0]})"
        ) from error
    return found


def _facts(env, task, observation):
    """Return the facts that are true."""
    world, facts = env.unwrapped, {}
    if hasattr(world, "carrying") and hasattr(world, "grid"):
        doors = [each for each in world.grid.grid if each is not None and each.type == "door"]
        facts = {"door locked": any(door.is_locked for door in doors)}
        facts["door open"] = any(door.is_open for door in doors)
        if world.carrying is not None:
            facts[f"{world.carrying.type} held"] = True
    visible = task.entities(observation) if task.entities else {}
    return facts | {f"{label} visible": True for label in visible}
