"""How cost grows with entities, slots, context, batch and environments, and what sharing adds.

One quantity is changed at a time. A power is fitted to the larger half of its values, cost ~
value^p, by least squares of the logarithms: 1 is linear, 2 quadratic; below 1, what is the same for
every call still weighs. Time is CPU time of all threads, so that of devices says what sharing an
update among them costs, and not how much sooner it is done: these are virtual devices of one CPU.

Actors are measured where Ray is installed: steps a second of wall time that so many gather.
"""

import dataclasses
import functools
import importlib.util
import time

import numpy as np
import tensorflow as tf

from benchmarks import untrained
from benchmarks.measure import Rounds, median, take_turns
from benchmarks.report import Report
from rrl_tf.agents import Batch
from rrl_tf.agents.loops import make_loop
from rrl_tf.envs import DoorKeyGraph
from rrl_tf.layers import RelationalBlock, RelationalMemory
from rrl_tf.models import DecisionTransformer
from rrl_tf.training.devices import make_replicas
from train_scripts import train_doorkey

ROWS, FEATURES = 16, 32


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """What is varied, and how long is measured."""

    entities: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    """Of a round of relations of 32 features, 16 rows; forward and backward."""
    slots: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    """Of a Relational Memory of 2 heads of 16 units, 16 rows of 8 steps; forward and backward."""
    context: tuple[int, ...] = (5, 10, 20, 40, 80)
    """Steps of the Decision Transformer `fast`, 16 rows; forward and backward."""
    batch: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    """Transitions of an update of the double DQN `fast`."""
    environments: tuple[int, ...] = (16, 64, 256, 1024, 4096)
    """Of DoorKey-8x8 in the graph, with XLA; 64 steps of each."""
    devices: tuple[int, ...] = (1, 2, 4)
    """Virtual ones that share an update of 64 transitions."""
    actors: tuple[int, ...] = (1, 2)
    """Processes of Ray with 16 environments each."""
    actor_seconds: float = 20.0
    """How long actors are watched."""
    rounds: int = 5
    calls: int = 3


def main(config):
    """Measures cost against size of what can be large, and fits the powers."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    virtual = [tf.config.LogicalDeviceConfiguration()] * max(config.devices)
    tf.config.set_logical_device_configuration(cpu, virtual)
    rows = [row for name, make in MAKERS.items() for row in measured(name, make, config)]
    notes = ["ms of CPU time, medians; the power is p of cost ~ value^p."]
    if importlib.util.find_spec("ray"):
        rows += [actors(count, config) for count in config.actors]
        notes.append("Of actors: environment steps a second of wall time, with no update.")
    else:
        notes.append("Ray is not installed: `pip install ray`, and actors are in the table.")
    return Report("Cost against size", rows, tuple(notes))


def measured(name, make, config):
    """The lines of one quantity; the last one has the power."""
    values = getattr(config, name)
    turns = {value: make(value) for value in values}
    times = take_turns(turns, config)
    cost = [1e3 * median(times[value]) for value in values]
    rows = [
        {"varied": name, "value": value, "ms": each, "of the first": each / cost[0]}
        for value, each in zip(values, cost)
    ]
    half = (len(values) - 1) // 2
    rows[-1]["power of the larger half"] = power(values[half:], cost[half:])
    for row in rows:
        print(row, flush=True)
    return rows


def power(values, cost):
    """p of cost ~ value^p, by least squares of the logarithms.

    Example:
        >>> round(power([1, 2, 4], [3.0, 12.0, 48.0]), 6)
        2.0
    """
    return float(np.polyfit(np.log(values), np.log(cost), 1)[0])


def relations(entities):
    """Forward and backward of a round of relations."""
    block = RelationalBlock(num_heads=2, key_size=16)
    return _with_gradient(block, _random(ROWS, entities, FEATURES))


def memory(slots):
    """Forward and backward of a Relational Memory."""
    layer = RelationalMemory(slots, 16, 2, unroll=True)
    return _with_gradient(layer, _random(ROWS, 8, FEATURES))


def transformer(steps):
    """Forward and backward of a Decision Transformer."""
    network = DecisionTransformer.from_preset(
        "fast", state_size=17, action_size=6, context_length=steps, dropout=0.0
    )
    sizes = {"states": 17, "actions": 6, "returns_to_go": 1}
    window = {name: _random(ROWS, steps, size) for name, size in sizes.items()}
    window["timesteps"] = np.tile(np.arange(steps, dtype="int32"), (ROWS, 1))
    window["mask"] = np.ones((ROWS, steps), "float32")
    network(window)
    return _with_gradient(network, window, read=lambda predictions: predictions["action"])


def _random(*shape):
    return np.random.default_rng(0).random(shape, np.float32)


def _with_gradient(model, inputs, read=lambda output: output):
    inputs = tf.nest.map_structure(tf.constant, inputs)
    model(inputs)

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(read(model(inputs, training=True))))
        return tape.gradient(loss, [variable.value for variable in model.trainable_variables])

    return lambda: tf.nest.map_structure(np.asarray, step())


def update(batch_size, devices=1):
    """An update of the double DQN."""
    config = dataclasses.replace(train_doorkey.FAST, jit_compile=False, devices=devices)
    task, agent = untrained.double_dqn(config, make_replicas(config, batch_size))
    shape, rng = task.observation_space.shape, np.random.default_rng(0)
    seen = rng.integers(3, size=(2, batch_size, *shape), dtype=np.uint8)
    batch = Batch(
        observation_t=seen[0],
        action_t=rng.integers(task.num_actions, size=batch_size, dtype=np.int32),
        return_t=rng.random(batch_size, np.float32),
        discount_t=np.full(batch_size, 0.8, np.float32),
        floor_t=np.full(batch_size, -np.inf, np.float32),
        observation_tpn=seen[1],
        weight_t=np.ones(batch_size, np.float32),
        index=np.arange(batch_size),
    )
    return lambda: agent.update(batch)


def environments(count, steps=64):
    """Steps of DoorKey in the graph."""
    graph = DoorKeyGraph(8)

    @tf.function(jit_compile=True)
    def play(state):
        for t in tf.range(steps):
            action = tf.fill((count,), t % graph.action_space.n)
            state, *_ = graph.step_and_restart(state, action, tf.stack((0, t)))
        return state

    state = graph.initial_state(count, (0, 0))
    return lambda: play(state).x.numpy()


def actors(count, config):
    """The line of so many actors."""
    training = dataclasses.replace(
        train_doorkey.FAST, actors=count, updates_per_step=0.0, jit_compile=False
    )
    task = train_doorkey.make_task(training)
    loop = make_loop(task, train_doorkey.make_network(training, task), training)
    records = loop.run(10**9)
    first = next(records).step  # Ray has started
    began = time.perf_counter()
    while time.perf_counter() - began < config.actor_seconds:
        record = next(records)
    rate = (record.step - first) / (time.perf_counter() - began)
    records.close()
    return {"varied": "actors", "value": count, "steps a second": rate}


MAKERS = {
    "entities": relations,
    "slots": memory,
    "context": transformer,
    "batch": update,
    "environments": environments,
    "devices": functools.partial(update, 64),
}
