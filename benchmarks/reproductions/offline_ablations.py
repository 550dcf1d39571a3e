"""What each part of the presets `dense` and `transformer` is worth.

    python -m benchmarks reproductions/offline_ablations --data minari:FOLDER --variants whole

All are asked for the best return of the data. What is finished is not trained again, and what was
stopped goes on.
"""

import dataclasses
import functools
import pathlib

from benchmarks import runs
from benchmarks.reproductions import offline
from benchmarks.runs import spread
from benchmarks.tables import markdown_table
from rrl_tf.errors import InvalidInput
from rrl_tf.offline import load_episodes

RESULTS = pathlib.Path("docs/results/offline_ablations")
VARIANTS = {
    "whole": ("dense: all of it", "dense", ()),
    "squared": (
        "dense: a squared error of the actions",
        "dense",
        ("--distribution=point", "--noise-scales"),
    ),
    "one-noise": ("dense: played as recorded, no share chosen", "dense", ("--noise-scales",)),
    "no-advantages": ("dense: no advantages", "dense", ("--advantage-power=0",)),
    "even-returns": (
        "dense: returns do not count in what is drawn",
        "dense",
        ("--sampling=steps",),
    ),
    "no-starts": ("dense: no more of the first steps", "dense", ("--start-fraction=0",)),
    "not-told": ("dense: told no return", "dense", ("--no-return-conditioned",)),
    "return-to-go": ("dense: told the return to come", "dense", ("--condition=return_to_go",)),
    "one-network": (
        "dense: one network, a quarter of a batch",
        "dense",
        ("--members=1", "--batch-size=256"),
    ),
    "transformer": ("transformer: all of it", "transformer", ()),
    "transformer-episode": (
        "transformer: an embedding of the time in the episode",
        "transformer",
        ("--positions=episode",),
    ),
    "transformer-squared": (
        "transformer: a squared error of the actions",
        "transformer",
        ("--distribution=point", "--noise-scales"),
    ),
    "transformer-no-advantages": (
        "transformer: no advantages",
        "transformer",
        ("--advantage-power=0",),
    ),
    "transformer-return-to-go": (
        "transformer: told the return to come",
        "transformer",
        ("--condition=return_to_go",),
    ),
    "transformer-one-step": (
        "transformer: one step, four times as many windows",
        "transformer",
        ("--context-length=1", "--batch-size=256"),
    ),
}
"""What is otherwise: in the table's words, the preset it begins from, and options of the script."""


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    data: tuple[str, ...] = ()
    """Sources as `train_scripts.train_decision_transformer` takes them."""
    variants: runs.any_of(VARIANTS) = tuple(VARIANTS)
    """What is otherwise in a run."""
    runs: str = "runs/offline_ablations"

    def __post_init__(self):
        super().__post_init__()
        if self.train and not self.data:
            raise InvalidInput("data must name recorded episodes, as minari:FOLDER; received none")


def main(config):
    """Trains with one part otherwise at a time and writes the table of the docs."""
    wanted = [(d, v, s) for s in config.seeds for d in config.data for v in config.variants]
    runs.train_all(config, train, wanted)
    runs.publish(RESULTS, {"table": table}, {})


def train(config, data, variant, seed):
    """Trains one agent, and keeps what the table needs."""
    _, preset, options = VARIANTS[variant]
    name = f"{variant}-{offline.training(config, data, preset, seed).default_name}"
    asked = (f"--data={data}", f"--targets={best_return(data):.0f}")
    script = "train_decision_transformer"
    run = runs.train(config, script, preset, seed, *asked, *options, name=name)
    runs.keep(run, RESULTS, preset=variant, seed=seed, data=offline.data_name(data))


@functools.cache
def best_return(data):
    """The highest return in the data."""
    return load_episodes(data).returns().max()


def table(results):
    """One line for every data set and variant: what is played with the last weights."""
    order = list(VARIANTS)
    rows = []
    for (data, variant, _), agents in sorted(
        offline.loaded(results).items(), key=lambda item: (*item[0][::2], order.index(item[0][1]))
    ):
        label, *_ = VARIANTS[variant]
        returns = [next(iter(run["last"].values()))["return"] for run in agents]
        noises = {run["chosen_noise"] for run in agents if "chosen_noise" in run}
        rows.append(
            {
                "data (environment)": f"{data} ({agents[0]['environment']})",
                "mean return, best": offline.recorded(agents[0]),
                "agent": label,
                "updates": f"{agents[0]['step']:,}",
                "seeds": len(agents),
                "return": spread(returns, ",.4g"),
                "noise played": ", ".join(f"{noise:g}" for noise in sorted(noises)),
            }
        )
    return markdown_table(rows)
