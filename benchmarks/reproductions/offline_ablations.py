"""Parts of the presets `dense` and `transformer` for recorded data, changed one at a time.

    python -m benchmarks reproductions/offline_ablations --data minari:FOLDER --seeds 20 21 22

The target return of all runs is the best return of the data.
"""

import dataclasses

from benchmarks import runner
from benchmarks.reproduction import Reproduction, Training, spread
from benchmarks.reproductions import offline
from rrl_tf.errors import InvalidInput
from rrl_tf.offline import load_episodes

SQUARED = ("--distribution=point", "--noise-scales")
VARIANTS = {
    # variant: label, preset, further options
    "whole": ("dense: all of it", "dense", ()),
    "squared": ("dense: a squared error of the actions", "dense", SQUARED),
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
    "transformer-squared": ("transformer: a squared error of the actions", "transformer", SQUARED),
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


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Which data and runs."""

    data: tuple[str, ...] = ()
    """Sources, as `train_scripts.train_decision_transformer` accepts them."""

    def __post_init__(self):
        super().__post_init__()
        if self.train and not self.data:
            raise InvalidInput("data must name recorded episodes, as minari:FOLDER; received none")


def trainings(config):
    """Return a training for every data set and variant."""
    found = {}
    for data in config.data:
        best = f"--targets={load_episodes(data).returns().max():.0f}"
        for variant, (label, preset, options) in VARIANTS.items():
            training = Training(label, offline.SCRIPT, preset, (f"--data={data}", best, *options))
            found[offline.run_name(f"{variant}-{preset}", data)] = training
    return found


def measure(run):
    """Return the variant and the name of the data of a run."""
    variant = max((name for name in VARIANTS if run.name.startswith(f"{name}-")), key=len)
    return offline.measure(run) | {"preset": variant}


def table(results):
    """Return the return with the last weights for every data set and variant."""
    groups, order = offline.grouped(results), list(VARIANTS)
    rows = []
    for key in sorted(groups, key=lambda key: (*key[::2], order.index(key[1]))):
        found = groups[key]
        noises = {each["chosen_noise"] for each in found if "chosen_noise" in each}
        rows.append(
            {
                "data (environment)": f"{key[0]} ({found[0]['environment']})",
                "mean return, best": offline.recorded(found[0]),
                "agent": VARIANTS[key[1]][0],
                "updates": f"{found[0]['step']:,}",
                "seeds": len(found),
                "return": spread(
                    [next(iter(each["last"].values()))["return"] for each in found], ",.4g"
                ),
                "noise played": ", ".join(f"{noise:g}" for noise in sorted(noises)),
            }
        )
    return rows


REPRODUCTION = Reproduction(
    page="offline_ablations",
    trainings=trainings,
    tables={"table": table},
    measure=measure,
    config_class=Config,
)
