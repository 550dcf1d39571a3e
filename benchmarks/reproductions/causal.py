"""Causal tests of DoorKey, Box-World and Memory: probes, patching, and ablations in play.

python -m benchmarks reproductions/causal              # trains and measures
python -m benchmarks reproductions/causal --no-train   # the tables and figures alone
"""

import functools
import itertools

import keras
import numpy as np

from benchmarks.interventions import box_world_pairs, doorkey_pairs, patch_pairs
from benchmarks.reproduction import Reproduction, Training, load_network, spread
from benchmarks.reproductions import doorkey
from rrl_tf import viz
from rrl_tf.agents import RecurrentDoubleDQN
from rrl_tf.envs import box_world_task, doorkey_task, memory_task
from rrl_tf.interpret import (
    attention_rollout,
    collect_states,
    occlusion,
    patch,
    play_ablated,
    probe,
    probe_places,
    swap_memories,
    trace,
    untrained,
)
from rrl_tf.interpret.attribution import read_entity
from rrl_tf.interpret.places import attention_places
from rrl_tf.models import RecurrentQNetwork, RelationalQNetwork

STATES, DONORS, PAIRS, EPISODES, MOST_STEPS = 200, 3, 1000, 40, 60
OF_AGENT, RECEIVED = "attention of the agent's cell", "attention received, mean over cells"
TRAININGS = {
    "doorkey": doorkey.TRAININGS["fast-6x6"],
    "memory": Training(
        "MemoryS17, chrono LSTM",
        "train_recurrent",
        "memory-s17",
        ("--network=lstm-long-dense", "--batch-size=16", "--steps=260000"),
    ),
}
NETWORKS = {"doorkey": "DoorKey-6x6", "box-world": "Box-World"}
"""Variant -> name in the tables, of networks with rounds of attention."""


def doorkey_of_6x6(**options):
    """Return the task of the preset `fast-6x6`."""
    return doorkey_task((5, 6), held_out=True, **options)


def measure(run):
    """Return what was found in the network of a run."""
    keras.utils.set_random_seed(0)  # of the untrained networks
    measures = {"doorkey": measure_doorkey, "memory": measure_memory}
    return measures[run.name.split("-")[0]](load_network(run))


def measure_doorkey(model):
    """Return the probes, the effects of patching the key, and the effects of ablations."""
    task = doorkey_of_6x6()
    states = collect_states(model, task, STATES)
    labels = {name: states.facts[name] for name in ("door locked", "key held")}
    entities = {"agent's cell": read_entity(model, states.inputs), "all cells": None}
    return {
        "probes": {
            cells: probe_places(model, states.inputs, labels, states.episodes, entity=each)
            for cells, each in entities.items()
        },
        "patching": patch_pairs(model, task, doorkey_pairs(task)),
        "attention": compare_attention(model, states.inputs),
        "ablation": ablate_in_play(model, doorkey_of_6x6(reward="env")),
    }


def ablate_in_play(model, task, episodes=100, kinds=("head", "round", "uniform")):
    """Return change -> mean return and success of greedy play."""
    played = play_ablated(model, task, task.evaluation_resets(at_most=episodes), kinds)
    return {name: [float(x.returns.mean()), x.summary()["success"]] for name, x in played.items()}


def measure_box_world(model):
    """Return the probes, and the effects of patching two boxes."""
    pairs = box_world_pairs(box_world_task(8, levels=[(3, 0)]), PAIRS)
    task, count = box_world_task(8), PAIRS // 3
    # Of each pair, one of the two locks, in the state and in the donor: the key opens it in one.
    rng, rows = np.random.default_rng(0), np.arange(count)
    first = rng.integers(2, size=count)
    lock = pairs.locks[rows, first]
    opens = np.concatenate([first == 0, first == 1])
    x, groups = (
        np.array(task.preprocessor(np.concatenate(pairs.observations[:, :count]))),
        np.tile(rows, 2),
    )
    agent, width = read_entity(model, x), x.shape[2]
    opened = pairs.locks[:count].T.ravel()  # in the states, then in the donors
    to_probe = {
        "the lock": (np.tile(lock, 2), {"the held key opens the lock": opens}),
        "agent's cell": (
            agent,
            {"the opened lock is to the right": opened % width > agent % width},
        ),
    }
    return {
        "probes": {
            cells: probe_places(model, x, labels, groups, entity=entity)
            for cells, (entity, labels) in to_probe.items()
        },
        "patching": patch_pairs(model, task, pairs),
        "attention": compare_attention(model, collect_states(model, task, STATES // 2).inputs),
    }


def compare_attention(model, x):
    """Return the rank correlation of attention with the effect of patching an entity.

    The result is a dict order -> kind of attention -> mean over states. The effect is the mean
    change of the Q values if the entity before the round is patched from random other states; for
    rollout and occlusion, before the first round.
    """
    rng, found = np.random.default_rng(0), trace(model, x)
    rounds, read, rows = attention_places(found), read_entity(model, x), np.arange(len(x))
    visible = found[rounds[0]].sum(axis=(1, 2)) > 0
    visible[rows, read] = False
    cells = np.argsort(~visible, axis=1, kind="stable")[:, : visible.sum(axis=1).max()]
    rank = functools.partial(_rank, cells, np.take_along_axis(visible, cells, axis=1))
    result, effects = {}, []
    for place in rounds:
        before = place.replace("attention", "before")
        patched = [
            patch(model, x, x[rng.permutation(len(x))], [before], cells.T) for _ in range(DONORS)
        ]
        effects.append(np.mean([np.abs(p.after - p.before)[0] for p in patched], axis=(0, 3)).T)
        for head, scores in enumerate(found[place].swapaxes(0, 1), start=1):
            result[f"{place.split('/')[0]}, head {head}"] = {
                OF_AGENT: rank(scores[rows, read], effects[-1]),
                RECEIVED: rank(scores.mean(axis=1), effects[-1]),
            }
    rollout = attention_rollout([found[place] for place in rounds], read)
    result["rollout"] = {OF_AGENT: rank(rollout, effects[0])}
    hidden = np.abs(occlusion(model, x))
    result["occlusion, not attention"] = {OF_AGENT: rank(hidden, effects[0])}
    return result


def _rank(cells, candidates, orders, effects):
    """Return the mean over states of the rank correlation over candidates.

    Shapes: `cells`, `candidates` and `effects` `(B, E)`, `orders` `(B, N)`.
    """
    values = []
    for a, b, allowed in zip(np.take_along_axis(orders, cells, axis=1), effects, candidates):
        if allowed.sum() > 2:
            ranks = [each[allowed].argsort().argsort() for each in (a, b)]
            values.append(np.corrcoef(*ranks)[0, 1])
    return float(np.mean(values))


def measure_memory(network):
    """Return what the memory holds along the hallway, and what it decides at the end."""
    task, rng, calls = memory_task((17,)), np.random.default_rng(0), itertools.count()
    player = RecurrentDoubleDQN(network, task.preprocessor).greedy_policy()

    memories = []

    def other_object(own, other):
        memories.append(own)
        return other

    def of_another_episode(offset, own, other):
        return memories[(next(calls) + offset) % len(memories)]

    def random(own, other):
        noise = rng.normal(size=own.shape)
        return (own + noise * np.linalg.norm(other - own) / np.linalg.norm(noise)).astype("float32")

    changes = {
        "other object": other_object,
        # `memories` has the order of the starts: two objects, two arrangements, start positions.
        "same object, other arrangement at the end": functools.partial(of_another_episode, 2),
        "same object and arrangement, other start": functools.partial(of_another_episode, 4),
        "own, with a random change of the same norm": random,
    }
    return {
        "swaps": {n: swap_memories(player, task, change=c).summary() for n, c in changes.items()},
        "hallway": decode_along_hallway(network, task),
    }


def decode_along_hallway(network, task):
    """Return x -> accuracies with which the shown object is decoded from the memory there.

    An untrained network sees the same episodes. The memory is that of the last step in which the
    agent is at x and faces the end of the hallway; x is left out if an episode has no such step.
    """
    players = [
        RecurrentDoubleDQN(each, task.preprocessor).greedy_policy()
        for each in (network, untrained(network))
    ]
    resets = task.evaluation_resets()
    envs = [task.make_test_env() for _ in resets]
    views = np.stack([env.reset(**reset)[0] for env, reset in zip(envs, resets)])
    states, running = [each.initial_state(len(envs)) for each in players], np.arange(len(envs))
    memories = {}
    while len(running):
        (actions, own), (_, other) = (each(views, s) for each, s in zip(players, states))
        for i, *both in zip(running, own, other):
            if envs[i].unwrapped.agent_dir == 0:
                memories.setdefault(int(envs[i].unwrapped.agent_pos[0]), {})[i] = both
        steps = [envs[i].step(int(action)) for i, action in zip(running, actions)]
        rewards, done = np.array([s[1] for s in steps], "float32"), [s[2] or s[3] for s in steps]
        left = ~np.array(done)
        states = [
            {
                name: np.array(x)[left]
                for name, x in p.next_state(m, actions, rewards, ~left).items()
            }
            for p, m in zip(players, (own, other))
        ]
        views, running = np.stack([s[0] for s in steps])[left], running[left]
    starts = [reset["options"]["start"] for reset in resets]
    shown, groups = (np.array([getattr(s, name) for s in starts]) for name in ("shown", "agent"))
    found = {}
    for x, of_episode in sorted(memories.items()):
        if len(of_episode) == len(envs):
            features = np.array([of_episode[i] for i in range(len(envs))])
            trained, blank = (probe(features[:, i], shown, groups) for i in range(2))
            found[x] = [trained.accuracy, trained.shuffled, blank.accuracy]
    return found


class Causal(Reproduction):
    """Also measures pretrained policies."""

    pretrained = ("box-world", "doorkey-lstm")

    def main(self, config):
        """Train and measure, store the results, and update tables and figures."""
        if config.train:
            lstm = RecurrentQNetwork.from_preset("doorkey-6x6")
            # A recurrent agent is not stopped at a loop.
            task = doorkey_of_6x6(reward="env", max_steps=MOST_STEPS)
            found = {"ablation": ablate_in_play(lstm, task, EPISODES, ("round", "memory"))}
            self.results.keep("doorkey-lstm-seed0", found, [], ())
            keras.utils.set_random_seed(0)
            found = measure_box_world(RelationalQNetwork.from_preset("box-world"))
            self.results.keep("box-world-seed0", found, [], ())
        super().main(config)


def _percent(values):
    return spread([100 * each for each in values], ".1f", " %")


def probes(results):
    """Return the accuracy of every probe and of its controls."""
    columns = ("accuracy", "shuffled labels", "untrained network")
    return [
        {"network": network, "decoded": row["label"], "from": cells, "place": f"`{row['place']}`"}
        | {name: _percent([each["probes"][cells][i][name] for each in found]) for name in columns}
        for network, found in results.of_each(NETWORKS)
        for cells, rows in found[0]["probes"].items()
        for i, row in sorted(enumerate(rows), key=lambda item: item[1]["label"])
    ]


def patching(results):
    """Return how often patching makes the action optimal for the donor."""
    columns = {
        "optimal for the donor": 0,
        "of pairs that are acted on optimally": 1,
        "of held-out donors": 2,
        "action changes": 3,
    }
    return [
        {"network": network, "place": f"`{place}`", "patched": cells}
        | {
            name: _percent([each["patching"]["patched"][place][cells][i] for each in found])
            for name, i in columns.items()
        }
        for network, found in results.of_each(NETWORKS)
        for place, rows in found[0]["patching"]["patched"].items()
        for cells in rows
    ]


def pairs(results):
    """Return the number of pairs, and how often the networks act optimally in them."""
    rows = []
    for network, evaluations in results.of_each(NETWORKS):
        found = [each["patching"] for each in evaluations]
        counts = np.array([each["pairs"] for each in found])
        rows.append(
            {
                "network": network,
                "seeds": len(found),
                "pairs": f"{counts[0, 0]:,}",
                "held-out donors": f"{counts[0, 2]:,}",
                "state: action is optimal": _percent([each["optimal"][0] for each in found]),
                "donor: action is optimal": _percent([each["optimal"][1] for each in found]),
                "pairs with both": spread(counts[:, 1], ",.0f"),
            }
        )
    return rows


def attention(results):
    """Return the rank correlation between attention and the effect of patching."""
    return [
        {"network": network, "order of the entities": order}
        | {kind: spread([each["attention"][order][kind] for each in found], ".2f") for kind in row}
        for network, found in results.of_each(NETWORKS)
        for order, row in found[0]["attention"].items()
    ]


def ablation(results):
    """Return the return and success of greedy play without a part of the network."""
    networks = {"doorkey": "three seeds", "doorkey-lstm": "with an LSTM, one seed"}
    found = {title: results.of(variant) for variant, title in networks.items()}
    names = dict.fromkeys(name for each in found.values() for name in each[0]["ablation"])
    return [
        {"without": name}
        | {
            f"{measure}, {title}": shown([each["ablation"][name][i] for each in runs])
            for title, runs in found.items()
            for i, (measure, shown) in enumerate(
                (("return", functools.partial(spread, form=".2f")), ("success", _percent))
            )
            if name in runs[0]["ablation"]
        }
        for name in names
    ]


def memory(results):
    """Return what the agent does with another memory before the last turn."""
    found = [each["swaps"] for each in results.of("memory")]
    return [
        {"memory": name, "seeds": len(found), "pairs of episodes": found[0][name]["pairs"]}
        | {
            title: _percent([each[name][measure] for each in found])
            for title, measure in (
                ("the episodes separate", "decided"),
                ("turns as the other", "action"),
                ("ends where the other ends", "outcome"),
            )
        }
        for name in found[0]
    ]


def hallway(results):
    """Draw the accuracy with which the object is decoded from the memory, along the hallway."""
    found = [each["hallway"] for each in results.of("memory")]
    places = [x for x in found[0] if all(x in each for each in found)]
    values = np.array([[each[x] for x in places] for each in found]).transpose(2, 0, 1)
    names = ("trained", "trained, shuffled labels", "untrained")
    lines = {name: (np.array(places, int), each) for name, each in zip(names, values)}
    return viz.learning_curves(
        lines, "accuracy", ylim=(0.4, 1.02), xlabel="position in the hallway"
    )


def after_round_1(results):
    """Draw how often actions become optimal for the donor if DoorKey is patched after round 1."""
    found = {f"seed {each['seed']}": each["patching"]["patched"] for each in results.of("doorkey")}
    cells = next(iter(found.values()))["round_1/after"]
    rows = {
        name: {seed: each["round_1/after"][name][0] for seed, each in found.items()}
        for name in cells
    }
    return viz.dots_figure(rows, "fraction of actions that are optimal for the donor")


REPRODUCTION = Causal(
    page="causal",
    trainings=TRAININGS,
    tables={
        "probes": probes,
        "pairs": pairs,
        "patching": patching,
        "attention": attention,
        "ablation": ablation,
        "memory": memory,
    },
    figures={"hallway": hallway, "doorkey": after_round_1},
    measure=measure,
)
