"""Causal tests of DoorKey: probes, the key patched, and attention compared with patching.

python -m benchmarks reproductions/causal              # measures the pretrained policy
python -m benchmarks reproductions/causal --no-train   # the tables alone
"""

import copy
import dataclasses
import itertools

import numpy as np

from benchmarks.reproduction import Reproduction
from rrl_tf.envs import doorkey_task
from rrl_tf.interpret import (
    attention_rollout,
    collect_states,
    interval,
    occlusion,
    patch,
    probe_places,
    trace,
)
from rrl_tf.interpret.attribution import read_entity
from rrl_tf.interpret.places import attention_places, outputs
from rrl_tf.models import RelationalQNetwork

NAME, STATES, DONORS = "doorkey-5x5-seed0", 200, 3
AGENT = 3 * 7 + 6
"""Entity of the agent's cell."""
PROBED = ("door locked", "key held")
OF_AGENT, RECEIVED = "attention of the agent's cell", "attention received, mean over cells"
PLACES = ("round_1/before", "round_1/after", "round_2/after")
KINDS = ("on the floor in both states", "on the floor, then held", "held, then on the floor")


@dataclasses.dataclass(frozen=True)
class World:
    """A state of DoorKey: what the agent sees, where the key is, and everything else."""

    observation: np.ndarray
    key: tuple[int, int] | None  # the cell of the view; None if the key is not visible
    held: bool
    rest: tuple


def explore(task):
    """Return state key -> `World`, and state key -> successor for each action (None: success)."""
    worlds, successors, waiting = {}, {}, []

    def visit(env, observation):
        key = env.unwrapped.state_key()
        if key not in worlds:
            worlds[key] = world(task, env, observation)
            waiting.append((key, env))
        return key

    for reset in task.evaluation_resets():
        env = task.make_test_env()
        visit(env, env.reset(**reset)[0])
    while waiting:
        key, env = waiting.pop()
        successors[key] = []
        for action in range(task.num_actions):
            twin = copy.deepcopy(env)
            twin.unwrapped.step_count = 0
            observation, _, terminated, *_ = twin.step(action)
            successors[key].append(None if terminated else visit(twin, observation))
    return worlds, successors


def world(task, env, observation):
    """Return the `World` of an environment."""
    inner = env.unwrapped
    door = next(each for each in inner.grid.grid if each is not None and each.type == "door")
    rest = (*inner.agent_pos, inner.agent_dir, *door.cur_pos, door.is_locked, door.is_open)
    held = inner.carrying is not None
    cells = task.entities(observation)
    key = cells["agent"] if held else cells.get("key")
    return World(observation, key, held, tuple(map(int, rest)))


def optimal_actions(successors):
    """Return state key -> set of the actions with which the fewest steps lead to the goal."""
    steps, depth = {None: 0}, 0
    while len(steps) <= len(successors):
        depth += 1
        new = [
            key
            for key, after in successors.items()
            if key not in steps and any(each in steps for each in after)
        ]
        if not new:
            break
        steps |= dict.fromkeys(new, depth)
    return {
        key: {a for a, each in enumerate(after) if steps.get(each) == steps[key] - 1}
        for key, after in successors.items()
        if key in steps
    }


def pairs_of_worlds(worlds, optimal):
    """Yield the kind and both keys of pairs that differ only in the key and the optimal actions."""
    groups = {}
    for name in optimal:
        if worlds[name].key is not None:
            groups.setdefault(worlds[name].rest, []).append(name)
    for group in groups.values():
        for first, second in itertools.permutations(group, 2):
            if not optimal[first] & optimal[second]:
                held = worlds[first].held, worlds[second].held
                yield (
                    KINDS[{(False, False): 0, (False, True): 1, (True, False): 2}[held]],
                    first,
                    second,
                )


def patch_the_key(task, model):
    """Return for each kind of pairs and place how often patching changes the action."""
    worlds, successors = explore(task)
    optimal = optimal_actions(successors)
    found = {}
    for kind in KINDS:
        pairs = [pair[1:] for pair in pairs_of_worlds(worlds, optimal) if pair[0] == kind]
        if pairs:
            found[kind] = {"pairs": len(pairs), **_patched(task, model, worlds, optimal, pairs)}
    return {"states": len(worlds), "kinds": found}


def _patched(task, model, worlds, optimal, pairs):
    """Return place -> fractions, of actions that are optimal for the donor and of changed ones."""
    sides = [[worlds[pair[i]] for pair in pairs] for i in (0, 1)]
    x, donors = (
        np.array(task.preprocessor(np.stack([each.observation for each in side]))) for side in sides
    )
    own, other = trace(model, x), trace(model, donors)
    keys = np.array([[cell[0] * 7 + cell[1] for cell in (a.key, b.key)] for a, b in zip(*sides)])
    rng, rows = np.random.default_rng(0), np.arange(len(pairs))
    visible = own["round_1/attention"].sum(axis=(1, 2)) > 0
    controls = []
    for row in rows:
        others = np.setdiff1d(np.flatnonzero(visible[row]), [*keys[row], AGENT])
        controls.append(rng.choice(others, 2, replace=len(others) < 2))
    before, result = outputs(model, x).argmax(axis=1), {}
    result["optimal without patching"] = float(
        np.mean([action in optimal[pair[0]] for action, pair in zip(before, pairs)])
    )
    for place in PLACES:
        actions = {}
        patched = {"key": keys, "agent": 0 * keys + AGENT, "other cells": np.array(controls)}
        for name, cells in patched.items():
            values = own[place].copy()
            values[rows[:, None], cells] = other[place][rows[:, None], cells]
            actions[name] = outputs(model, x, {place: values}).argmax(axis=1)
        result[place] = {
            "optimal for the donor": float(
                np.mean([a in optimal[pair[1]] for a, pair in zip(actions["key"], pairs)])
            ),
            "changed": {name: float(np.mean(each != before)) for name, each in actions.items()},
        }
    return result


def compare_attention(model, states):
    """Return the rank correlation of attention with the effect of patching an entity.

    The result is a dict order -> kind of attention -> (mean, low, high). The effect is the mean
    change of the Q values if the entity before the round is patched from random other states; for
    rollout and occlusion, before the first round.
    """
    x, rng = states.inputs, np.random.default_rng(0)
    found, read, rows = trace(model, x), read_entity(model, x), np.arange(len(x))
    rounds = attention_places(found)
    visible = found[rounds[0]].sum(axis=(1, 2)) > 0
    visible[rows, read] = False
    result, effects = {}, []
    for place in rounds:
        before = place.replace("attention", "before")
        donors = [x[rng.permutation(len(x))] for _ in range(DONORS)]
        patched = [patch(model, x, each, [before]) for each in donors]
        effects.append(np.mean([np.abs(p.after - p.before)[0] for p in patched], axis=(0, 3)).T)
        for head, scores in enumerate(found[place].swapaxes(0, 1), start=1):
            result[f"{place.split('/')[0]}, head {head}"] = {
                OF_AGENT: _rank(scores[rows, read], effects[-1], visible),
                RECEIVED: _rank(scores.mean(axis=1), effects[-1], visible),
            }
    rollout = attention_rollout([found[place] for place in rounds], read)
    result["rollout"] = {OF_AGENT: _rank(rollout, effects[0], visible)}
    hidden = np.abs(occlusion(model, x))
    result["occlusion, not attention"] = {OF_AGENT: _rank(hidden, effects[0], visible)}
    return result


def _rank(first, second, candidates):
    """Return the mean over states of the rank correlation over candidates, and its interval."""
    values = []
    for a, b, allowed in zip(first, second, candidates):
        if allowed.sum() > 2:
            ranks = [each[allowed].argsort().argsort() for each in (a, b)]
            values.append(np.corrcoef(*ranks)[0, 1])
    low, high = interval(np.array(values))
    return [float(np.mean(values)), float(low), float(high)]


class Causal(Reproduction):
    """Measures a pretrained policy instead of training runs."""

    def main(self, config):
        """Measure the policy, store the results, and print the tables."""
        if config.train:
            task, model = doorkey_task((5,)), RelationalQNetwork.from_preset("doorkey-5x5")
            states = collect_states(model, task, STATES)
            labels = {name: states.facts[name] for name in PROBED}
            entity = read_entity(model, states.inputs)
            probes = {
                cells: probe_places(model, states.inputs, labels, states.episodes, entity=each)
                for cells, each in (("the agent's cell", entity), ("all cells", None))
            }
            key, attention = patch_the_key(task, model), compare_attention(model, states)
            found = {"probes": probes, "key": key, "attention": attention}
            self.results.keep(NAME, found, [], ())
        super().main(dataclasses.replace(config, train=False))


def _percent(fraction):
    return f"{100 * fraction:.1f} %"


def probes(results):
    """Return the accuracy of every probe and of its controls."""
    return [
        {
            "decoded": row["label"],
            "from": cells,
            "place": f"`{row['place']}`",
            "accuracy": _percent(row["accuracy"]),
            "shuffled labels": _percent(row["shuffled labels"]),
            "untrained network": _percent(row["untrained network"]),
        }
        for cells, rows in results.evaluations[NAME]["probes"].items()
        for row in sorted(rows, key=lambda row: row["label"])
    ]


def key(results):
    """Return how often patching the key changes the action."""
    return [
        {
            "key": kind,
            "pairs": found["pairs"],
            "action is optimal, not patched": _percent(found["optimal without patching"]),
            "place": f"`{place}`",
            "action is optimal for the donor": _percent(found[place]["optimal for the donor"]),
            "action changes": _percent(found[place]["changed"]["key"]),
            "changes, agent's cell patched": _percent(found[place]["changed"]["agent"]),
            "changes, other cells patched": _percent(found[place]["changed"]["other cells"]),
        }
        for kind, found in results.evaluations[NAME]["key"]["kinds"].items()
        for place in PLACES
    ]


def attention(results):
    """Return the rank correlation between attention and the effect of patching."""

    def shown(found):
        return "" if found is None else f"{found[0]:.2f} ({found[1]:.2f} to {found[2]:.2f})"

    columns = (OF_AGENT, RECEIVED)
    return [
        {"order of the entities": name, **{each: shown(row.get(each)) for each in columns}}
        for name, row in results.evaluations[NAME]["attention"].items()
    ]


REPRODUCTION = Causal(
    page="causal", trainings={}, tables={"probes": probes, "key": key, "attention": attention}
)
