"""What a learner loses to the actors that play for it, and what losing those costs.

The agent is `train_scripts.train_doorkey`'s preset, its actors are processes of Ray on this
machine. Alone, the learner samples from the full replay, updates and sets priorities, while its
actors wait; with actors it also takes in their steps, four an update. The two take turns. Then the
actors are ended by SIGKILL, one after the other, and training goes on.

Needs `pip install ray`; a core for the learner and one for the actors, with nothing else on them,
or else the wall times say how the system shares its cores.
"""

import dataclasses
import os
import signal
import threading
import time

import numpy as np
import psutil

from benchmarks.measure import median
from benchmarks.report import Report
from rrl_tf.agents.loops import make_loop
from rrl_tf.training.safeguards import require_finite
from train_scripts import train_doorkey


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured, and how long."""

    preset: str = "fast"
    """Of `train_scripts.train_doorkey`."""
    actors: int = 2
    """Processes that play."""
    replay_capacity: int = 5000
    """Transitions; the replay is full before anything is measured."""
    rounds: int = 20
    """Turns, alone and with actors."""
    updates: int = 256
    """Of a turn."""
    kill_every: float = 10.0
    """Seconds between losses of an actor."""
    kill_for: float = 60.0
    """Seconds in which actors are lost."""


def main(config):
    """Measures a learner's updates a second alone, with actors, and while actors are killed."""
    training = dataclasses.replace(
        train_doorkey.PRESETS[config.preset],
        actors=config.actors,
        replay_capacity=config.replay_capacity,
        learning_starts=config.replay_capacity - 1,
    )
    task = train_doorkey.make_task(training)
    loop = make_loop(task, train_doorkey.make_network(training, task), training)
    records = loop.run(10**9)
    for record in records:
        if record.metrics:  # the replay is full, and the update is compiled
            break
    turns = {"alone": [], "with actors": []}
    for _ in range(config.rounds):
        turns["alone"].append(clocked(learn_alone, loop, config.updates))
        turns["with actors"].append(clocked(learn, records, config.updates.__le__))
    killed = clocked(learn_and_lose, records, config)
    require_finite(loop.step, loop.agent.get_state())
    restarts = loop.env.restarts
    records.close()
    return report(config, turns, killed, restarts)


def clocked(function, *arguments):
    """What a function counts (updates, and seconds of waiting), with its wall and CPU seconds."""
    began = time.perf_counter(), time.process_time()
    updates, waited = function(*arguments)
    return {
        "updates": updates,
        "waited": waited,
        "wall": time.perf_counter() - began[0],
        "cpu": time.process_time() - began[1],
    }


def learn_alone(loop, updates):
    """Updates from what is there."""
    rng = np.random.default_rng(0)
    for _ in range(updates):
        batch = loop.replay.sample(loop.batch_size, rng)
        _, error = loop.agent.update(batch)
        loop.replay.set_priorities(batch.index, error)
    return updates, 0.0


def learn(records, enough):
    """Updates by the loop that takes in what actors send, until there are `enough(updates)`."""
    first, waited = next(records).updates, 0.0
    for record in records:
        waited += record.seconds["wait"]
        if enough(record.updates - first):
            return record.updates - first, waited


def learn_and_lose(records, config):
    """Updates for a while, in which an actor is killed now and then."""
    end = time.perf_counter() + config.kill_for
    over = threading.Event()

    def kill_now_and_then():
        for _ in range(int(config.kill_for // config.kill_every)):
            if not over.wait(config.kill_every):
                kill_oldest_actor()

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    try:
        return learn(records, lambda updates: time.perf_counter() >= end)
    finally:
        over.set()
        killer.join()


def kill_oldest_actor():
    """Ends the actor that has been there the longest, if one has begun."""
    children = psutil.Process().children(recursive=True)
    actors = [each for each in children if "ActorProcess" in "".join(each.cmdline()[:1])]
    if actors:
        os.kill(min(actors, key=lambda each: each.create_time()).pid, signal.SIGKILL)


def report(config, turns, killed, restarts):
    """The table."""
    turns = {**turns, f"one killed every {config.kill_every:.0f} s": [killed]}
    rows = [row(name, measured, turns["alone"]) for name, measured in turns.items()]
    notes = (
        f"{config.actors} actors of 16 environments; CPU time is that of the learner's process; "
        "medians of the turns.",
        f"In the last row {restarts} actors were lost in {config.kill_for:.0f} s; all weights are "
        "finite after it.",
    )
    return Report("A learner and its actors on Ray", rows, notes)


def row(name, measured, alone):
    """A line of the table."""
    wall, cpu = each_update(measured, "wall"), each_update(measured, "cpu")
    waited = sum(turn["waited"] for turn in measured) / sum(turn["wall"] for turn in measured)
    return {
        "learner": name,
        "updates": sum(turn["updates"] for turn in measured),
        "updates/s": 1 / wall,
        "of alone": each_update(alone, "wall") / wall,
        "waits for actors": f"{waited:.1%}",
        "CPU ms an update": 1e3 * cpu,
        "CPU of alone's": cpu / each_update(alone, "cpu"),
    }


def each_update(measured, what):
    """Seconds of an update, the median turn's."""
    return median([turn[what] / turn["updates"] for turn in measured])
