"""Train recurrent agents on six tasks of POPGym, each in its easy and its hard version.

    python -m benchmarks reproductions/popgym --variants "RepeatPreviousEasy-*" --seeds 0

It needs `pip install '.[popgym]'`. A variant is an environment and an agent, such as
`RepeatPreviousEasy-lstm-dense`. With larger `--steps`, the same command continues the runs.
"""

import dataclasses
import functools

from benchmarks import runner
from benchmarks.reproduction import Reproduction, Training, last_step, read_log, spread
from rrl_tf.training.config import require_positive

TASKS = {
    # task: discount. In the card games, no action changes a later observation, so a small discount
    # loses nothing.
    "RepeatFirst": 0.9,
    "RepeatPrevious": 0.9,
    "Autoencode": 0.9,
    "CountRecall": 0.9,
    "HigherLower": 0.9,
    "PositionOnlyCartPole": 0.97,
}
ENVIRONMENTS = {f"{task}{level}": task for task in TASKS for level in ("Easy", "Hard")}
AGENTS = {
    # architecture of `RecurrentQNetwork`: label
    "lstm-dense": "LSTM",
    "relational-memory-dense": "Relational Memory",
    "window-dense": "window of 16 steps",
}
OPTIONS = (
    "--learning-rate-updates=25000",
    "--evaluate-every=10000",
    "--evaluation-episodes=50",  # one has up to 831 steps
    "--log-every=5000",
    "--checkpoint-every=10000",
)
PUBLISHED = {
    "RepeatPreviousEasy": "GRU 99.9, SHM 88.9",
    "RepeatPreviousHard": "SHM -19.4",
    "AutoencodeEasy": "SHM 49.5, FFM -32.7",
}
"""Dict from an environment to the returns in table 1 of arXiv 2410.10132, after 15M steps."""


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Select the runs to train, and how long they train."""

    steps: int = 100_000
    """Environment steps of each run. A larger number continues finished runs."""

    def __post_init__(self):
        super().__post_init__()
        require_positive(self, "steps")


def trainings(config):
    """Return a `Training` for every environment and agent."""
    return {
        f"{environment}-{agent}": Training(
            f"{environment}, {label}",
            "train_recurrent",
            "gymnasium",
            (
                f"--env=popgym:popgym-{environment}-v0",
                f"--network={agent}",
                f"--steps={config.steps}",
                f"--discount={TASKS[task]}",
                *OPTIONS,
            ),
        )
        for environment, task in ENVIRONMENTS.items()
        for agent, label in AGENTS.items()
    }


def measure(run):
    """Return the largest mean return of all evaluations of a run."""
    return {"mmer": max(row["eval/return"] for row in read_log(run) if "eval/return" in row)}


def returns(metric, results):
    """Return a metric of every agent on every environment, x 100."""
    rows = []
    for environment in ENVIRONMENTS:
        found = {label: results.of(f"{environment}-{agent}") for agent, label in AGENTS.items()}
        runs = [each for agents in found.values() for each in agents]
        row = {"environment": environment, "steps": last_step(runs) if runs else ""}
        for label, agents in found.items():
            values = [100 * each[metric] for each in agents]
            row[label] = f"{spread(values)}, n = {len(values)}" if values else "not measured"
        rows.append(row)
    return rows


def mmer(results):
    """Return the MMER of every agent, and published returns."""
    published = "published return, 15,000,000 steps"
    return [
        row | {published: PUBLISHED.get(row["environment"], "")} for row in returns("mmer", results)
    ]


def budget(results):
    """Return the number of runs of every agent, and the CPU time of one of them."""
    rows = []
    for agent, label in AGENTS.items():
        found = [each for env in ENVIRONMENTS for each in results.of(f"{env}-{agent}")]
        minutes = spread([each["cpu_minutes"] for each in found], ".0f") if found else ""
        row = {"agent": label, "network": f"`{agent}`", "runs": len(found)}
        rows.append(row | {"CPU minutes of a run": minutes})
    return rows


REPRODUCTION = Reproduction(
    page="popgym",
    trainings=trainings,
    tables={
        "mmer": mmer,
        "last": functools.partial(returns, "eval/return"),
        "budget": budget,
    },
    curves=("eval/return",),
    measure=measure,
    config_class=Config,
)
