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

from benchmarks import runs
from benchmarks.runs import percent, spread, summaries
from benchmarks.tables import markdown_table
from rrl_tf import viz
from rrl_tf.agents.graph_envs import CurriculumGraph
from rrl_tf.training import Replicas
from rrl_tf.training.agent_run import train_agent
from rrl_tf.training.loops import make_loop
from train_scripts import train_doorkey

RESULTS = pathlib.Path("docs/results/exploration")
AGENTS = {"fast": "ours", "book": "book, as meant"}
"""Presets of `train_scripts.train_doorkey`, in the table's words."""
EPSILONS = (0.01, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
GREEDY, NOISY, TRAINING = "eval/success", "eval/success_epsilon_0.05", "rollout/success"


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which agents, exploration rates and seeds."""

    agents: tuple[str, ...] = tuple(AGENTS)
    """Any of `AGENTS`."""
    epsilons: tuple[float, ...] = EPSILONS
    """Shares of random actions, from the first step to the last."""
    steps: int = 15_000
    """Of each run."""
    runs: str = "runs/exploration"


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
    runs.keep(
        run.folder.path,
        RESULTS,
        epsilon=epsilon,
        **{TRAINING: [row[TRAINING] for row in rows if TRAINING in row][-1]},
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
    """Success against ε, and against the entropy of the states that training visited."""
    against = {"epsilon": "ε in training", "entropy": "entropy of the states visited, nats"}
    panels = {title: {} for title in against.values()}
    for agent, label in AGENTS.items():
        found = [summaries(results, f"{agent}-{epsilon}") for epsilon in EPSILONS]
        # A band is over seeds that have every ε there is.
        seeds = min((len(each) for each in found if each), default=0)
        found = [each[:seeds] for each in found if each]
        for column, kind in ((GREEDY, "played greedily"), (NOISY, "5 % random actions")):
            for place, title in against.items():
                points = sorted(
                    (np.mean([run[place] for run in each]), [run[column] for run in each])
                    for each in found
                )
                if points:
                    places, values = zip(*points)
                    panels[title][f"{label} · {kind}"] = (places, np.transpose(values))
    if not any(panels.values()):
        return None
    return viz.robustness_figure(panels, "share of the 48 starts solved after training")


TABLES = {"table": table}
FIGURES = {"curves": figure}
