"""Train a relational double DQN on Box-World, and test it on several kinds of new levels.

python -m train_scripts.train_box_world                          # ours, 8x8, one to three boxes
python -m train_scripts.train_box_world --network zambaldi       # the paper's architecture
python -m train_scripts.train_box_world --network convolutional  # no relations, as many parameters
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

import rrl_tf
from rrl_tf._arguments import natural, positive_int
from rrl_tf.agents.config import DoubleDQNConfig, NetworkConfig
from rrl_tf.errors import InvalidInput
from train_scripts import agents, command_line

if TYPE_CHECKING:  # `--help` is shown without Keras
    import keras


@dataclasses.dataclass(frozen=True)
class Config(NetworkConfig, DoubleDQNConfig):
    """Set the options of a run. Steps are counted over all environments together."""

    runs: str = "runs/box_world"
    size: int = 8
    """Side of the room in cells."""
    boxes: int = 3
    """Maximum number of boxes on the way to the gem."""
    distractors: int = 2
    """Maximum number of distractor branches."""
    distractor_length: int = 1
    """Number of boxes in a distractor branch."""
    stages: tuple[tuple[int, int, int], ...] = ()
    """A curriculum of easier levels: the maximum number of boxes and of distractor branches, and
    the side of the part of the room that contains them. Empty trains on the whole task at once."""
    max_steps: int = 120
    """Time limit of an episode."""
    pool: int = 100_000
    """Number of levels that are drawn in advance with `--loop graph`."""
    network: Literal["fast", "fast-relative", "zambaldi", "book", "convolutional"] = "fast"
    """Architecture of `RelationalQNetwork`, or a convolutional network."""

    @property
    def default_name(self) -> str:
        """The preset, the network and the seed."""
        return f"{self.preset}-{self.network}-seed{self.seed}"


BOX_WORLD = Config(
    preset="box-world",
    loop="graph",  # many times as fast
    use_return_lower_bound=True,  # Box-World is deterministic
    steps=3_000_000,
    num_envs=128,
    updates_per_step=1 / 64,  # few large updates, because steps are cheap and there are many levels
    batch_size=128,
    replay_capacity=800_000,
    learning_starts=20_000,
    n_step=1,
    discount=0.9,
    loss="mse",  # errors reach 10, where the Huber loss learns a median instead of the mean
    optimizer="muon",
    learning_rate=2e-3,
    learning_rate_updates=46_000,
    epsilon_end=0.25,
    epsilon_steps=500_000,
    log_every=20_000,
    evaluate_every=100_000,
    checkpoint_every=500_000,
)
PRESETS = {
    "box-world": BOX_WORLD,
    "one-box": dataclasses.replace(
        BOX_WORLD,
        preset="one-box",
        boxes=1,
        distractors=0,
        steps=200_000,
        learning_rate_updates=7_500,
        epsilon_steps=100_000,
    ),
    "paper": dataclasses.replace(
        BOX_WORLD,
        preset="paper",
        size=12,
        boxes=4,
        distractors=4,
        stages=((2, 1, 7), (3, 2, 8), (4, 3, 10)),
        steps=4_000_000,
        learning_rate_updates=62_000,
        evaluate_every=50_000,
    ),
}
ABOUT = {
    "box-world": "8x8 rooms, one to three boxes on the way to the gem",
    "one-box": "8x8 rooms with one box, for a first try",
    "paper": "12x12 rooms, one to four boxes on the way to the gem",
}
KINDS = ("new levels", "held-out pairs", "one box longer")
"""Kinds of levels in the final evaluation."""


def main(config: Config):
    """Train a relational double DQN on Box-World. Repeat the command to resume the run."""
    return agents.train(
        config,
        make_task,
        make_network,
        extra_evaluation=lambda agent: {"generalization": generalization(agent, config)},
    )


def make_task(config: Config, **changes: Any) -> rrl_tf.envs.Task:
    """Return the task of a configuration; training never shows the held-out pairs of colours.

    Raises:
        InvalidInput: if a number is out of range.
    """
    arguments: dict[str, Any] = {
        # Levels of all lengths from the start, because one lock requires no comparison of colours.
        "levels": [
            (
                tuple(range(1, positive_int("boxes", boxes) + 1)),
                tuple(range(natural("distractors", distractors) + 1)),
                area,
            )
            for boxes, distractors, area in (
                *config.stages,
                (config.boxes, config.distractors, None),
            )
        ],
        "distractor_length": config.distractor_length,
        "max_steps": config.max_steps,
        "pool": config.pool,
    }
    return rrl_tf.envs.box_world_task(config.size, **arguments | changes)


def make_network(config: Config, task: rrl_tf.envs.Task, **overrides: Any) -> keras.Model:
    """Return a Q network with new weights; `overrides` are arguments of a relational one."""
    sizes = config.network_sizes(config.network != "convolutional")
    if config.network == "convolutional":
        # As many parameters as `fast` in the rooms of the presets.
        return rrl_tf.models.grid_q_network(
            task.num_actions,
            (32, 32, 32, 8),
            (152 if config.size < 12 else 91,),
            dtype=config.dtype,
        )
    arguments: dict[str, Any] = {"num_actions": task.num_actions, "dtype": config.dtype}
    if config.network == "fast":
        arguments |= {
            # A lock's cell includes the content to its left; linearly, so that attention can
            # compare both colours.
            "conv_filters": (64,),
            "conv_kernel_size": 2,
            "conv_padding": "top_left",
            "conv_activation": None,
            # With coordinates, the direction to a cell is learned for all cells at once.
            "coordinates": {},
            # Attention goes from a lock to the key behind it, to the lock of this key, and so on.
            # This needs a round per box, plus one.
            "num_rounds": max(4, config.boxes + 1),
            "block": {
                "key_size": 32,
                "units": (64, 66),  # channels and coordinates
                "activation": "relu",
                "norm": "entity",
                "qkv_norm": "entity",
            },
            "hidden_units": (128,),
            "max_entities": max_entities(config),
        }
    block = {**arguments.get("block", {}), **sizes.get("block", {})}
    return rrl_tf.models.RelationalQNetwork.from_preset(
        config.network, task.preprocessor, **arguments | sizes | {"block": block} | overrides
    )


def max_entities(config: Config) -> int:
    """Return the maximum number of occupied cells, also in levels one box longer than in training.

    Example:
        >>> max_entities(Config(boxes=3, distractors=2))
        14
    """
    boxes = max(
        boxes + distractors * config.distractor_length
        for boxes, distractors, *_ in (*config.stages, (config.boxes + 1, config.distractors))
    )
    return 2 + 2 * boxes  # the agent, the loose key, and each box's lock and content


def generalization(agent: Any, config: Config) -> dict[str, float]:
    """Print and return the success on each kind of levels, greedy and with random actions.

    A kind whose boxes do not fit into the room is skipped.
    """
    from rrl_tf.agents.evaluation import NOISE, make_play

    changes: list[dict[str, Any]] = [
        {},
        {"test_part": "test"},
        {"test_goal_length": config.boxes + 1},
    ]
    results = {}
    for kind, change in zip(KINDS, changes, strict=True):
        if kind == "held-out pairs" and config.boxes == 1:
            continue  # pairs of colours need at least two boxes
        try:
            task = make_task(dataclasses.replace(config, stages=()), **change)
        except InvalidInput as error:
            print(f"{kind}: skipped, {error}")
            continue
        play = make_play(agent, task, config.evaluation_episodes)
        for name, epsilon in ((kind, 0.0), (f"{kind}, ε = {NOISE}", NOISE)):
            found = play(0, epsilon)
            results[name] = found.summary()["success"]
            print(f"{name}: {results[name]:.1%} of {len(found.length)} solved")
    return results


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="box-world", about=ABOUT)
