"""Train the presets `dense` and `transformer` on recorded data with one part changed.

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
    "whole": ("dense", "dense", ()),
    "squared": ("dense, squared error loss", "dense", SQUARED),
    "one-noise": ("dense, noise scale 1, not chosen by playing", "dense", ("--noise-scales",)),
    "no-advantages": ("dense, no advantage weights", "dense", ("--advantage-power=0",)),
    "even-returns": (
        "dense, no return weights in sampling",
        "dense",
        ("--sampling=steps",),
    ),
    "no-starts": ("dense, no extra windows at the start", "dense", ("--start-fraction=0",)),
    "no-return-input": ("dense, no return input", "dense", ("--no-return-conditioned",)),
    "return-to-go": ("dense, return-to-go as input", "dense", ("--condition=return_to_go",)),
    "one-network": (
        "dense, one network, batch size 256",
        "dense",
        ("--members=1", "--batch-size=256"),
    ),
    "transformer": ("transformer", "transformer", ()),
    "transformer-episode": (
        "transformer, embedding of the episode step",
        "transformer",
        ("--positions=episode",),
    ),
    "transformer-squared": ("transformer, squared error loss", "transformer", SQUARED),
    "transformer-no-advantages": (
        "transformer, no advantage weights",
        "transformer",
        ("--advantage-power=0",),
    ),
    "transformer-return-to-go": (
        "transformer, return-to-go as input",
        "transformer",
        ("--condition=return_to_go",),
    ),
    "transformer-one-step": (
        "transformer, K = 1, batch size 256",
        "transformer",
        ("--context-length=1", "--batch-size=256"),
    ),
}


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Select the data and the runs."""

    data: tuple[str, ...] = ()
    """Sources, as `train_scripts.train_decision_transformer` accepts them."""

    def __post_init__(self):
        super().__post_init__()
        if self.train and not self.data:
            raise InvalidInput("data must name recorded episodes, as minari:FOLDER; received none")


def trainings(config):
    """Return a `Training` for every dataset and variant."""
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
    """Return the return with the last weights for every dataset and variant."""
    groups, order = offline.grouped(results), list(VARIANTS)
    rows = []
    for key in sorted(groups, key=lambda key: (*key[::2], order.index(key[1]))):
        found = groups[key]
        noises = {each["chosen_noise"] for each in found if "chosen_noise" in each}
        rows.append(
            {
                "data (environment)": f"{key[0]} ({found[0]['environment']})",
                "recorded return: mean, best": offline.recorded(found[0]),
                "variant": VARIANTS[key[1]][0],
                "updates": f"{found[0]['step']:,}",
                "seeds": len(found),
                "return": spread(
                    [next(iter(each["last"].values()))["return"] for each in found], ",.4g"
                ),
                "chosen noise scales": ", ".join(f"{noise:g}" for noise in sorted(noises)),
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
