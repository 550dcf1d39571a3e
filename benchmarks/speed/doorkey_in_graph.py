"""Observations a second of DoorKey in tensor operations, and its differences from MiniGrid.

Random play that begins anew where an episode ends, one thread: all steps in one compiled
`tf.while_loop`; `DoorKeyVectorEnv`, whose every step comes from NumPy and goes back there;
`SeededVectorEnv` of `make_doorkey`; and EnvPool with one thread, where it is installed
(`pip install envpool`). Time is CPU time of all threads.

Steps are compared with MiniGrid's own code: of the grids up to 8x8 every action in every state, or
as many of them as asked for, drawn at random; of 16x16 random play.
"""

import dataclasses
import functools
import importlib.util

import numpy as np
import tensorflow as tf

from benchmarks.measure import Rounds, median, take_turns
from benchmarks.minigrid_oracle import MiniGridOracle, differences, every_state
from benchmarks.report import Report
from rrl_tf.envs import TASK_ACTIONS, DoorKeyGraph, DoorKeyVectorEnv, SeededVectorEnv, make_doorkey

IN_GRAPH, VECTOR = "in a loop of the graph", "DoorKeyVectorEnv"
SEEDED, ENVPOOL = "SeededVectorEnv", "EnvPool"
CHUNK = 4096  # cases compared in one call


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """What is measured, how long, and how much is compared."""

    size: int = 8
    """Side of the grid that is played."""
    num_envs: tuple[int, ...] = (16, 256, 1024, 4096)
    """Numbers of environments."""
    steps: int = 262_144
    """Steps, over all environments, of one call of the loop; the others take fewer."""
    most_in_python: int = 1024
    """More environments than this are not tried in `SeededVectorEnv`."""
    compared: int = 1_000_000
    """Cases compared with MiniGrid, at most, on each of 5x5, 6x6 and 8x8; a tenth on 16x16."""
    rounds: int = 10
    calls: int = 1


def main(config):
    """Measures DoorKey in the graph against Python environments and EnvPool; compares it."""
    rows = [row for count in config.num_envs for row in speed_rows(count, config)]
    step = tf.function(DoorKeyGraph(actions="all").step, jit_compile=True)
    rows += [comparison(step, size, config.compared) for size in (5, 6, 8, 16)]
    notes = ["Differences: in state, observation, reward or ends, of cases: a state, an action."]
    if not importlib.util.find_spec("envpool"):
        notes.append("EnvPool is not installed: `pip install envpool`, and it is in the table.")
    return Report("DoorKey in the graph", rows, tuple(notes))


def speed_rows(num_envs, config):
    """Lines of the table for one number of environments."""
    turns, counts = {}, {}
    for name, make in (
        (IN_GRAPH, in_graph),
        (VECTOR, in_vector),
        (SEEDED, seeded if num_envs <= config.most_in_python else None),
        (ENVPOOL, in_envpool if importlib.util.find_spec("envpool") else None),
    ):
        if make:
            turns[name], counts[name] = make(config, num_envs)
    seconds = take_turns(turns, config)
    each = {name: median(seconds[name]) / counts[name] for name in turns}
    return [
        {
            "size": config.size,
            "environments": num_envs,
            "what": name,
            "observations a second": 1 / each[name],
            "ns each": 1e9 * each[name],
            "times EnvPool": each[ENVPOOL] / each[name] if ENVPOOL in each else None,
        }
        for name in turns
    ]


def in_graph(config, num_envs):
    """A function that plays, and how many observations it makes."""
    graph = DoorKeyGraph(config.size)
    actions = random_actions(config.steps, num_envs)

    @tf.function(jit_compile=True)
    def play(state, actions):
        def body(t, state, observation, total):
            state, observation, reward, *_ = graph.step_and_restart(
                state, tf.gather(actions, t), tf.stack((0, t))
            )
            return t + 1, state, observation, total + reward

        begin = (0, state, graph.observe(state), tf.zeros(num_envs))
        return tf.while_loop(lambda t, *_: t < len(actions), body, begin)

    state = graph.initial_state(num_envs, (0, 0))
    return functools.partial(play, state, tf.constant(actions)), actions.size


def in_vector(config, num_envs):
    """As `in_graph`, for the vector environment."""
    vector = DoorKeyVectorEnv(config.size, num_envs)
    return played(vector, random_actions(max(config.steps // 8, num_envs), num_envs))


def seeded(config, num_envs):
    """As `in_graph`, for a list of environments."""
    make_env = functools.partial(make_doorkey, config.size, observation="compass")
    vector = SeededVectorEnv(make_env, num_envs, seed=0)
    return played(vector, random_actions(max(config.steps // 128, num_envs), num_envs))


def in_envpool(config, num_envs):
    """As `in_graph`, for EnvPool, whose actions are MiniGrid's seven; the same five are played."""
    import envpool

    vector = envpool.make(
        f"MiniGrid-DoorKey-{config.size}x{config.size}-v0",
        env_type="gymnasium",
        num_envs=num_envs,
        num_threads=1,
        seed=0,
    )
    actions = random_actions(max(config.steps // 32, num_envs), num_envs)
    return played(vector, np.array(TASK_ACTIONS, np.int32)[actions])


def random_actions(steps, num_envs):
    """Actions `(T, E)` int32 of that many steps over all environments, at least one each."""
    shape = max(steps // num_envs, 1), num_envs
    return np.random.default_rng(0).integers(5, size=shape, dtype=np.int32)


def played(vector, actions):
    """A function that plays the actions `(T, E)`, and how many observations it makes."""
    vector.reset()

    def play():
        for action in actions:
            vector.step(action)

    return play, actions.size


def comparison(step, size, at_most):
    """Line of the table about steps on a grid held against MiniGrid's."""
    states, actions = random_play(at_most // 10) if size == 16 else some_cases(size, at_most)
    oracle, wrong = MiniGridOracle(size), 0
    for begin in range(0, len(states), CHUNK):
        part = slice(begin, begin + CHUNK)
        wrong += differences(step, states[part], actions[part], oracle)
    what = "random play" if size == 16 else "any action in any state"
    return {"size": size, "what": what, "compared": len(states), "differences": wrong}


def some_cases(size, at_most):
    """States `(N, 10)` and actions `(N,)`: every pair there is, or `at_most` of them."""
    states = every_state(size)
    cases = np.random.default_rng(0).permutation(7 * len(states))[:at_most]
    return states[cases // 7], (cases % 7).astype(np.int32)


def random_play(steps, size=16, num_envs=64):
    """States and actions of random play that gets through doors now and then."""
    graph = DoorKeyGraph(size, actions="all")
    step = tf.function(graph.step_and_restart)
    state, met = graph.initial_state(num_envs, (0, 0)), []
    shape = max(steps // num_envs, 1), num_envs
    actions = np.random.default_rng(0).choice([0, 1, 2, 2, 2, 3, 3, 4, 5, 5, 5, 6], shape)
    actions = actions.astype(np.int32)
    for t, action in enumerate(actions):
        met.append(np.stack([column.numpy() for column in state], axis=1))
        state, *_ = step(state, action, tf.constant((0, t + 1)))
    return np.concatenate(met), actions.ravel()
