"""Whether attention explains what a network does: what it attends to most is removed from it.

    python -m benchmarks reproductions/faithfulness

Asked are, on the greedy way from every start, networks that `reproductions/doorkey` and
`reproductions/box_world` train and trained presets; and about pictures, those that
`reproductions/sort_of_clevr` trains.
"""

import dataclasses
import pathlib

import numpy as np

from benchmarks import runs
from benchmarks.reproductions import box_world, doorkey
from benchmarks.runs import percent, spread, summaries
from benchmarks.tables import markdown_table
from rrl_tf.agents import RecurrentDoubleDQN, evaluate
from rrl_tf.data.sort_of_clevr_task import examples, sort_of_clevr
from rrl_tf.envs import box_world_task, doorkey_task
from rrl_tf.interpret.faithfulness import LAST, LEAST, MOST, RANDOM, faithfulness
from rrl_tf.interpret.memory_checks import ZeroedMemory
from rrl_tf.models import RecurrentQNetwork, RelationalQNetwork
from rrl_tf.viz import style
from train_scripts.train_sort_of_clevr import TEST_SEED

RESULTS = pathlib.Path("docs/results/faithfulness")
TRAINED, BOX_WORLD, PICTURES = "fast-graph", "box-world", "sort-of-clevr"
PRESETS = {"doorkey-6x6": 6, "doorkey-8x8": 8}
"""Trained presets that play DoorKey, and the side of their grid."""
LABELS = {
    TRAINED: "DoorKey-5x5",
    "doorkey-6x6": "DoorKey-6x6, with a memory",
    "doorkey-8x8": "DoorKey-8x8, with a memory",
    BOX_WORLD: "Box-World",
    PICTURES: "Sort-of-CLEVR, relational",
}
Q, PROBABILITY, ACCURACY = "Q", "probability", "accuracy"
MEASURES = {Q: "drop", PROBABILITY: "drop", ACCURACY: "accuracy_drop"}
"""What falls, and the name of its fall."""
PANELS = (
    tuple((name, Q) for name in (TRAINED, *PRESETS)),
    ((BOX_WORLD, Q), (PICTURES, PROBABILITY), (PICTURES, ACCURACY)),
)
"""What the rows of the figure show; what falls alike in a row is drawn to the same scale."""
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
CELLS_OF_PICTURES = (1, 2, 4, 8, 16, 32)
"""More, as an object lies in several cells."""
SHOWN = (1, 2, 4, 8)
"""Of these counts, those in the table."""
QUESTIONS_EACH = 5
"""Relational ones about every picture."""
KINDS = {
    "open": "a lock that the held key opens",
    "box": "another lock",
    "key": "the loose key",
    "gem": "the gem",
    "other": "what is in a box",
}
"""What `task.entities` calls things in Box-World, in the words of the table."""
ORDERS = {MOST: MOST, RANDOM: RANDOM, LEAST: LEAST, LAST: "most attended, last round"}
"""Lines of the figure, in its words."""
RESAMPLES = 2000


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which networks."""

    networks: runs.any_of(LABELS) = tuple(LABELS)
    """Who is asked; a preset is seed 0."""
    starts: int = 48
    """At most so many."""
    pictures: int = 100
    """New ones."""
    runs: str = "runs/doorkey"
    box_world_runs: str = "runs/box_world"
    """Where those of Box-World are kept."""
    clevr_runs: str = "runs/sort_of_clevr"
    """Where those of Sort-of-CLEVR are kept."""


def main(config):
    """Removes from trained networks what they attend to; writes the docs' table and figure."""
    for name in config.networks if config.train else ():
        for seed in (0,) if name in PRESETS else config.seeds:
            if name == PICTURES:
                found = answered(answerer(config, seed), config.pictures)
            else:
                found = measured(*agent(config, name, seed), config.starts)
            file = RESULTS / f"{name}-seed{seed}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            runs.write_json(file, found)
    runs.publish(RESULTS, TABLES, FIGURES)


def agent(config, name, seed):
    """Task and network of an agent that is asked."""
    if name == TRAINED:
        return doorkey_agent(config, seed)
    return box_world_agent(config, seed) if name == BOX_WORLD else preset(name)


def doorkey_agent(config, seed):
    """Task and network of a run that is trained if it is missing."""
    options = doorkey.OPTIONS[TRAINED]
    run = runs.train(config, "train_doorkey", "fast", seed, *options, name=f"{TRAINED}-seed{seed}")
    _, task, network = doorkey.trained(run)
    return task, network


def box_world_agent(config, seed):
    """The same on Box-World, where the trained preset is seed 0."""
    if seed == 0:
        return preset(BOX_WORLD)
    run = box_world.trained(dataclasses.replace(config, runs=config.box_world_runs), "fast", seed)
    return box_world_task(), runs.network(run)


def answerer(config, seed):
    """The network of a run on Sort-of-CLEVR that is trained if it is missing."""
    config = dataclasses.replace(config, runs=config.clevr_runs)
    return runs.network(runs.train(config, "train_sort_of_clevr", "fast", seed))


def preset(name):
    """Task and network of a trained preset."""
    if name == BOX_WORLD:
        return box_world_task(), RelationalQNetwork.from_preset(name)
    return doorkey_task((PRESETS[name],)), RecurrentQNetwork.from_preset(name)


def measured(task, network, starts):
    """What was lost, by order, start and count, averaged over the states of an episode."""
    episodes = visited(task, network, task.evaluation_resets(at_most=starts))
    seen = {name: np.concatenate([each[name] for each in episodes]) for name in episodes[0]}
    observations = seen.pop("observation")
    views = np.asarray(task.preprocessor(observations))
    memory = seen.pop("memory", None)
    inputs = views if memory is None else {"observation": views, **seen}
    found = faithfulness(network, inputs, memory, counts=COUNTS)
    told = of_parts(found, [len(each["observation"]) for each in episodes])
    return {**told, "states": len(views), "kinds": of_kinds(task, observations, found)}


def of_kinds(task, observations, found):
    """By the kind of the cell that is attended to most: the states, and what is lost without it."""
    lost: dict = {}
    for observation, place, drop, kept in zip(
        observations, found.most_attended, found.drop[MOST][0], found.kept[MOST][0], strict=True
    ):
        cell = tuple(int(each) for each in np.unravel_index(place, observation.shape[:2]))
        names = {cell: name for name, cell in task.entities(observation).items()}
        lost.setdefault(names.get(cell, "other").rstrip(" 0123456789"), []).append((drop, kept))
    means = {kind: np.mean(each, axis=0) for kind, each in lost.items()}
    return {
        kind: {"states": len(lost[kind]), "drop": round(drop, 5), "kept": round(kept, 5)}
        for kind, (drop, kept) in ((kind, mean.tolist()) for kind, mean in means.items())
    }


def answered(network, pictures):
    """What was lost, by order, picture and count, averaged over the questions about a picture."""
    shown = sort_of_clevr(pictures, QUESTIONS_EACH, TEST_SEED)
    inputs, answers = examples(shown)
    relational = slice(QUESTIONS_EACH, None)
    answers = answers[:, relational].reshape(-1)
    inputs = {
        # Who asks about a picture sees other cells than who asks about it next.
        "images": inputs["images"].repeat(QUESTIONS_EACH, axis=0),
        "questions": inputs["questions"][:, relational].reshape(len(answers), 1, -1),
    }
    logits = network.predict(inputs, batch_size=50, verbose=0)[:, 0]
    found = faithfulness(network, inputs, answers=answers, counts=CELLS_OF_PICTURES)
    told = of_parts(found, [QUESTIONS_EACH] * pictures)
    accuracy = float((logits.argmax(axis=-1) == answers).mean())
    return {**told, "questions": len(answers), "accuracy": accuracy}


def of_parts(found, sizes):
    """What was lost by order, part and count, averaged over a part, as JSON has it."""
    ends = np.cumsum(sizes)[:-1]

    def of_part(values):
        parts = np.split(values, ends, axis=1)
        return [[round(float(value), 5) for value in part.mean(axis=1)] for part in parts]

    told = {"counts": found.counts.tolist(), "candidates": float(found.candidates.mean())}
    for measure in dict.fromkeys(("drop", "kept", *MEASURES.values())):
        if (lost := getattr(found, measure)) is not None:
            told[measure] = {order: of_part(values) for order, values in lost.items()}
    return told


def visited(task, network, resets):
    """What is seen, and remembered, on the greedy way from every start: a dict an episode."""
    if isinstance(network, RecurrentQNetwork):
        player = WatchedMemory(RecurrentDoubleDQN(network, task.preprocessor).greedy_player())
    else:
        player = Watched(lambda seen: np.asarray(network(task.preprocessor(seen))).argmax(-1))
    episodes = []
    for reset in resets:
        player.seen = []
        evaluate(player, task.make_test_env, [reset])
        names = player.seen[0]
        episodes.append({n: np.concatenate([each[n] for each in player.seen]) for n in names})
    return episodes


class Watched:
    """A policy as it is, and what it was asked."""

    def __init__(self, act):
        self.act = act
        self.seen = []

    def __call__(self, observation):
        """The policy's own answer."""
        self.seen.append({"observation": observation})
        return self.act(observation)


class WatchedMemory(ZeroedMemory):
    """The same of a player that remembers."""

    def __call__(self, observation, recall):
        """The player's own answer."""
        self.seen.append({"observation": observation, **recall})
        return self.player(observation, recall)


def resampled(found, measure, order, rng_seed=0):
    """Means over starts `(RESAMPLES, K)`, and over seeds, had others been drawn."""
    # All runs were asked from the same starts: the mean over them is what is drawn from.
    values = np.mean([run[measure][order] for run in found], axis=0)  # (starts, K)
    rng = np.random.default_rng(rng_seed)  # the same starts for every order
    drawn = rng.integers(len(values), size=(RESAMPLES, len(values)))
    return values[drawn].mean(axis=1)


def interval(samples):
    """Ends of the middle 95 %, `(2, K)`."""
    return np.percentile(samples, (2.5, 97.5), axis=0)


def table(results):
    """By how much Q, or an answer, falls, and how often a choice stays, as Markdown."""
    rows = []
    for name, falls in (panel for panels in PANELS for panel in panels):
        found = summaries(results, name)
        for count in SHOWN if found else ():
            rows.append(row_of(LABELS[name], falls, found, count))
    return markdown_table(rows)


def kinds(results):
    """What Box-World's agent attends to most, and what is lost without it, as Markdown."""
    rows, found = [], summaries(results, BOX_WORLD)
    for kind, label in KINDS.items():
        shares = [run["kinds"].get(kind, {"states": 0})["states"] / run["states"] for run in found]
        lost = [run["kinds"][kind] for run in found if kind in run["kinds"]]
        if lost:
            rows.append(
                {
                    "attended to most": label,
                    "seeds": len(lost),
                    "states": spread([100 * share for share in shares], ".0f", " %"),
                    "fall of Q": spread([each["drop"] for each in lost], "z.3f"),
                    "same choice": percent(lost, "kept", ".0f"),
                }
            )
    return markdown_table(rows)


def row_of(label, falls, found, count):
    """What is lost with so many entities, of all seeds."""
    k, measure = found[0]["counts"].index(count), MEASURES[falls]
    more = [resampled(found, measure, order)[:, k] for order in (MOST, RANDOM)]
    low, high = interval(more[0] - more[1])
    row = {"asked": label, "what falls": falls, "seeds": len(found), "removed": count}
    for order in (MOST, LAST, RANDOM, LEAST):
        drops = [np.mean(run[measure][order], axis=0)[k] for run in found]
        row[f"fall: {order}"] = spread(drops, "z.3f")
    row["most less random, 95 %"] = f"{low:.3f} to {high:.3f}"
    for order in (MOST, RANDOM):
        kept = [100 * np.mean(run["kept"][order], axis=0)[k] for run in found]
        row[f"same choice: {order}"] = spread(kept, ".0f", " %")
    return row


def figure(results):
    """Fall against how many entities are removed, a panel an agent; bands over starts."""
    found = {name: summaries(results, name) for name in LABELS}
    rows = [[panel for panel in row if found[panel[0]]] for row in PANELS]
    rows = [row for row in rows if row]
    if not rows:
        return None
    left, top, width, height, gap, below = 0.75, 0.55, 2.32, 2.3, 0.55, 0.9
    figure = style.new_figure(style.FIGURE_WIDTH, top + len(rows) * (height + below) - 0.35)
    for i, row in enumerate(rows):
        scales = {}
        for j, (name, falls) in enumerate(row):
            place = (left + j * (width + gap), top + i * (height + below), width, height)
            axes = style.place(figure, *place)
            style.plain(axes)
            axes.sharey(scales.setdefault(falls, axes))
            draw(axes, found[name], MEASURES[falls])
            style.title(axes, LABELS[name])
            is_first = scales[falls] is axes
            axes.tick_params(labelleft=is_first)
            style.name_axes(axes, "entities removed", f"fall of {falls}" if is_first else "")
    entries = {ORDERS[o]: style.line(style.colour(i)) for i, o in enumerate(ORDERS)}
    entries["95 % over starts or pictures"] = style.area()
    style.legend(figure, left, 0, entries, len(entries))
    return figure


def draw(axes, found, measure):
    """A line for each order, the mean over seeds."""
    counts = found[0]["counts"]
    for number, order in enumerate(ORDERS):
        samples, look = resampled(found, measure, order), {"color": style.colour(number)}
        mean = np.mean([np.mean(run[measure][order], axis=0) for run in found], axis=0)
        axes.plot(counts, mean, lw=1.8, **look)
        axes.fill_between(counts, *interval(samples), alpha=0.18, linewidth=0, **look)
    powers = [count for count in counts if count & (count - 1) == 0]
    axes.set_xticks([power for power in powers if 16 * power >= max(counts)])


TABLES = {"table": table, "kinds": kinds}
FIGURES = {"curves": figure}
