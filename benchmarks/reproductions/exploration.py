"""Whether exploring half of the time is best: DoorKey-5x5 under several constant ε, with figure.

    python -m benchmarks reproductions/exploration --agents fast

Every ε has as many steps, and no run stops before. What is finished is not trained again, and what
was stopped goes on. One run at a time: `--jobs` and `--threads` are without effect.
"""

import dataclasses
import pathlib

import keras
import numpy as np
import tensorflow as tf
from matplotlib.ticker import PercentFormatter

from benchmarks import runs
from benchmarks.runs import percent, spread, summaries
from benchmarks.tables import markdown_table
from rrl_tf._arguments import one_of
from rrl_tf.agents.graph_envs import CurriculumGraph
from rrl_tf.agents.loops import make_loop
from rrl_tf.agents.run import train_agent
from rrl_tf.errors import InvalidInput
from rrl_tf.training import Replicas
from rrl_tf.viz import style
from train_scripts import train_doorkey

RESULTS = pathlib.Path("docs/results/exploration")
AGENTS = {"fast": "ours", "book": "book, as meant"}
"""Presets of `train_scripts.train_doorkey`, in the table's words."""
EPSILONS = (0.01, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
GREEDY, NOISY, TRAINING = "eval/success", "eval/success_epsilon_0.05", "rollout/success"


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which agents, exploration rates and seeds."""

    agents: runs.any_of(AGENTS) = tuple(AGENTS)
    """`fast`, ours, and `book`, the book's agent as it was meant; or one of them."""
    epsilons: tuple[float, ...] = EPSILONS
    """Shares of random actions, from the first step to the last."""
    steps: int = 15_000
    """Of each run."""
    runs: str = "runs/exploration"

    def __post_init__(self):
        super().__post_init__()
        for epsilon in self.epsilons:
            one_of("epsilons", epsilon, EPSILONS)  # table and figure show no others


def main(config):
    """Trains both agents with every constant ε and writes the table and the figure of the docs."""
    wanted = [(a, e, s) for a in config.agents for s in config.seeds for e in config.epsilons]
    for run in wanted if config.train else ():
        train(config, *run)
    runs.publish(RESULTS, TABLES, FIGURES)


def train(config, agent, epsilon, seed):
    """Trains one agent, counting the states it visits, and keeps what table and figure need."""
    training = configured(config, agent, epsilon, seed)
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    task = train_doorkey.make_task(training)
    loop = make_loop(task, train_doorkey.make_network(training, task), training)
    loop.env = CountedStates(loop.env.levels, training.num_envs, training.sizes[-1])
    run, _ = train_agent(task, loop, training, Replicas())
    visits = loop.env.visits.numpy()
    rows = runs.metrics(run.folder.path / "metrics.csv")
    if not (solved := [row[TRAINING] for row in rows if TRAINING in row]):
        raise InvalidInput(
            f"steps must be enough for an episode to end; received {config.steps} "
            f"with {training.num_envs} environments"
        )
    runs.keep(
        run.folder.path,
        RESULTS,
        epsilon=epsilon,
        **{TRAINING: solved[-1]},
        first_90=next((int(row["step"]) for row in rows if row.get(GREEDY, 0) >= 0.9), None),
        states=int(np.count_nonzero(visits)),
        entropy=entropy(visits),
    )


def configured(config, agent, epsilon, seed):
    """The preset of the agent, but for its exploration, its steps, and where it plays."""
    return dataclasses.replace(
        train_doorkey.PRESETS[agent],
        name=f"{agent}-{epsilon}-seed{seed}",
        runs=config.runs,
        seed=seed,
        steps=config.steps,
        epsilon_start=epsilon,
        epsilon_end=epsilon,
        loop="graph",
        jit_compile=False,  # on a CPU the update is faster without
    )


class CountedStates(CurriculumGraph):
    """Counts in which states of DoorKey actions are taken.

    A state is what the agent brings about: its cell and direction, whether it carries the key, and
    whether the door is open, closed or locked. The counts are part of the environments' state, so
    a run that is continued goes on counting.

    Attributes:
        visits: variable `(side, side, 4, 2, 3)` int32.
    """

    def __init__(self, levels, num_envs, side):
        super().__init__(levels, num_envs)
        self.visits = tf.Variable(np.zeros((side, side, 4, 2, 3), np.int32))

    def step_and_restart(self, state, action, seed, level):
        """Counts the states that the actions are taken in, and takes them."""
        carried = tf.cast(state.key_x < 0, tf.int32)
        visited = tf.stack([state.x, state.y, state.direction, carried, state.lock], axis=1)
        self.visits.scatter_nd_add(visited, tf.ones_like(state.x))
        return super().step_and_restart(state, action, seed, level)

    def get_state(self, state):
        """As before, with the counts."""
        return {**super().get_state(state), "visits": self.visits.numpy()}

    def set_state(self, stored):
        """Goes on from what `get_state` returned."""
        self.visits.assign(stored["visits"])
        return super().set_state(stored)


def entropy(counts):
    """Entropy in nats of the distribution that counts are a sample of.

    Example:
        >>> entropy([5, 5, 5, 5])  # ln 4
        1.3862943611198906
    """
    counts = np.asarray(counts)
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def table(results):
    """One line for every agent and ε, as Markdown."""
    rows = []
    for agent, label in AGENTS.items():
        for epsilon in EPSILONS:
            found = summaries(results, f"{agent}-{epsilon}")
            if not found:
                continue
            rows.append(
                {
                    "agent": label,
                    "ε": str(epsilon),
                    "seeds": len(found),
                    "steps": f"{max(run['step'] for run in found):,}",
                    "greedy success": percent(found, GREEDY),
                    "success, ε = .05": percent(found, NOISY),
                    "in training, last 100 episodes": percent(found, TRAINING, ".0f"),
                    "first step with 90 % greedily": runs.in_words(
                        [run["first_90"] for run in found]
                    ),
                    "states": spread([run["states"] for run in found], ".0f"),
                    "their entropy, nats": spread([run["entropy"] for run in found], ".2f"),
                }
            )
    return markdown_table(rows)


def figure(results):
    """Success against ε, and of each agent against the entropy of the states it visited."""
    found = {label: measured(results, agent) for agent, label in AGENTS.items()}
    found = {label: each for label, each in found.items() if each}
    if not found:
        return None
    figure, panels = style.row_of_panels(1 + len(found), 0.6, 3.0, gap=0.2)
    meanings = {
        kind: style.line(style.MUTED, **look(style.MUTED, place))
        for place, kind in enumerate(("played greedily", "5 % random actions"))
    }
    for number, each in enumerate(found.values()):
        draw(panels[0], panels[1 + number], each, style.colour(number))
        if len(next(iter(each.values()))) > 1:
            meanings["min–max over seeds"] = style.area(alpha=0.35)
    for axes in panels:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(-0.03, 1.04)
        axes.margins(x=0.14)
        axes.tick_params(labelleft=axes is panels[0])
    measured_at = {epsilon for each in found.values() for epsilon in each}
    panels[0].set_xticks(sorted(measured_at), map(str, sorted(measured_at)), rotation=45)
    style.name_axes(panels[0], "ε in training", "share of the 48 starts solved after training")
    for axes in panels[1:]:
        style.name_axes(axes, "entropy of the states, nats")
    named = {label: style.line(style.colour(i)) for i, label in enumerate(found)}
    style.legend(figure, 0.75, 0, named, len(named))
    style.legend(figure, 0.75, 0.22, meanings, len(meanings))
    return figure


def measured(results, agent):
    """ε → an agent's runs with it, of the seeds that have every ε there is."""
    found = {epsilon: of_seeds(results, f"{agent}-{epsilon}") for epsilon in EPSILONS}
    found = {epsilon: each for epsilon, each in found.items() if each}
    seeds = set.intersection(*map(set, found.values())) if found else set()
    return {e: [each[seed] for seed in sorted(seeds)] for e, each in found.items() if seeds}


def of_seeds(results, name):
    """Seed → the last evaluation of a run."""
    seeds = map(runs.seed_of, runs.files(results, name, "json"))
    return dict(zip(seeds, summaries(results, name), strict=True))


def look(colour, place):
    """Of a line: the greedy policy's is whole; the other is dashed, with rings that go around."""
    dashes, face, size = (("solid", colour, 4), ((0, (4, 2)), "none", 7))[place]
    ring = {"marker": "o", "markersize": size, "markerfacecolor": face}
    return {"linestyle": dashes, "markeredgecolor": colour, **ring}


def draw(by_epsilon, by_entropy, found, colour):
    """One agent in the panel of all and in its own."""
    entropies = [np.mean([run["entropy"] for run in each]) for each in found.values()]
    ends = []
    for place, column in enumerate((GREEDY, NOISY)):
        values = np.array([[run[column] for run in each] for each in found.values()])  # (ε, seeds)
        mean, own = values.mean(1), look(colour, place)
        ends.append(mean)
        by_epsilon.plot([*found], mean, color=colour, lw=1.8, **own)
        if values.shape[1] > 1:
            low, high = values.min(1), values.max(1)
            by_epsilon.fill_between([*found], low, high, color=colour, alpha=0.15, linewidth=0)
        by_entropy.plot(entropies, mean, color=colour, **own | {"linestyle": "none"})
        points = list(zip(entropies, found, mean)) if column == GREEDY else ()
        for x, epsilon, y in points:
            # On the side on which there is room, and never on the axis.
            others = [
                (abs(x - x_) + abs(y - y_), x_) for x_, other, y_ in points if other != epsilon
            ]
            side = -1 if min(others, default=(0, x))[1] > x else 1
            options = {"ha": "left" if side > 0 else "right", "fontsize": style.SMALL_SIZE}
            offset = (4 * side, 5 if y < 0.1 else -11)
            options |= {"textcoords": "offset points", "color": colour}
            by_entropy.annotate(f"{epsilon}", (x, y), offset, **options)
    by_entropy.vlines(entropies, *ends, color=colour, lw=0.8, alpha=0.5)  # of the same agents


TABLES = {"table": table}
FIGURES = {"curves": figure}
