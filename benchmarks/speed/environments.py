"""Steps a second of `make_doorkey` against stock MiniGrid, and what preparing observations costs.

Stock is `gymnasium.make("MiniGrid-DoorKey-5x5-v0", size=...)` with MiniGrid's `ImgObsWrapper`, as
its documentation says. Ours gives the same observations with five actions and success in `info`,
plainly, with the direction and four stacked frames, and 16 at a time in `SeededVectorEnv`. All play
the same random actions and begin a new episode where one ends; a reset is part of the time.

The preprocessor is measured in a `tf.function`, as an update runs it, and on NumPy arrays.
"""

import dataclasses
import functools

import gymnasium
import minigrid  # noqa: F401 - registers the stock environments
import numpy as np
import tensorflow as tf
from minigrid.wrappers import ImgObsWrapper

from benchmarks.measure import Rounds, median, take_turns
from benchmarks.report import Report
from rrl_tf.envs import SeededVectorEnv, doorkey_task, make_doorkey

STOCK = "stock MiniGrid, ImgObsWrapper"
VECTOR = "SeededVectorEnv of 16"


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """What is measured, and how long."""

    sizes: tuple[int, ...] = (5, 8, 16)
    """Sides of the grid."""
    steps: int = 512
    """Environment steps in a call, a multiple of 16."""
    rounds: int = 10
    calls: int = 1


def main(config):
    """Measures environment steps a second, ours and stock MiniGrid's."""
    rows = [row for size in config.sizes for row in environment_rows(size, config)]
    rows += preprocessing_rows(dataclasses.replace(config, calls=20 * config.calls))
    notes = ("Steps of environments and their resets; one-hot codes: observations prepared.",)
    return Report("Speed of the environments", rows, notes)


def environment_rows(size, config):
    """Lines of the table for one size of the grid."""
    actions = np.random.default_rng(0).integers(5, size=config.steps).tolist()
    single = {
        STOCK: ImgObsWrapper(gymnasium.make("MiniGrid-DoorKey-5x5-v0", size=size)),
        "make_doorkey": make_doorkey(size),
        "make_doorkey, compass, 4 frames": make_doorkey(size, observation="compass", frames=4),
    }
    turns = {name: functools.partial(play, env, actions) for name, env in single.items()}
    vector = SeededVectorEnv(functools.partial(make_doorkey, size), 16, seed=0)
    vector.reset()
    turns[VECTOR] = functools.partial(play_vector, vector, np.reshape(actions, (-1, 16)))
    seconds = take_turns(turns, config)
    each = {name: median(seconds[name]) / len(actions) for name in turns}
    return [row(size, name, value, each[STOCK] / value) for name, value in each.items()]


def play(env, actions):
    """Plays the actions, episode after episode."""
    env.reset(seed=0)
    for action in actions:
        *_, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


def play_vector(env, actions):
    """Plays the actions `(T, E)`; episodes follow each other by themselves."""
    for action in actions:
        env.step(action)


def preprocessing_rows(config):
    """Lines of the table for the one-hot codes of view and direction."""
    prepare = doorkey_task().preprocessor
    compiled = tf.function(prepare)
    turns, counts = {}, {}
    for batch in (1, 64):
        observation = np.ones((batch, 7, 7, 4), "uint8")
        ways = {
            "tf.function": functools.partial(compiled, tf.constant(observation)),
            "NumPy array": functools.partial(prepare, observation),
        }
        for how, way in ways.items():
            name = f"one-hot codes, {how}, batch {batch}"
            turns[name], counts[name] = way, batch
    seconds = take_turns(turns, config)
    return [row(None, name, median(seconds[name]) / counts[name], None) for name in turns]


def row(size, what, seconds, ratio):
    """A line of the table."""
    return {
        "size": size,
        "what": what,
        "per second": 1 / seconds,
        "µs each": 1e6 * seconds,
        "times stock": ratio,
    }
