"""Trains a relational double DQN on Box-World, and plays levels of kinds it never saw.

python -m train_scripts.train_box_world                          # ours, 8x8, one to three boxes
python -m train_scripts.train_box_world --network zambaldi       # the paper's architecture
python -m train_scripts.train_box_world --network convolutional  # no relations, as many parameters
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import keras

from rrl_tf._arguments import natural, one_of, positive_int
from rrl_tf.agents import DoubleDQNConfig, train_double_dqn
from rrl_tf.agents.evaluation import NOISE, make_play
from rrl_tf.envs import Task, box_world_task
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RelationalQNetwork, grid_q_network
from rrl_tf.training import make_replicas
from rrl_tf.training.optimizers import OptimizerName
from train_scripts import command_line


@dataclasses.dataclass(frozen=True)
class Config(DoubleDQNConfig):
    """The numbers of the training, and of Box-World."""

    preset: str = "box-world"
    """Where the numbers below come from."""
    name: str = ""
    """Folder under `runs`; by default the preset, the network and the seed."""
    runs: str = "runs/box_world"
    """Where runs are kept."""
    loop: Literal["python", "graph"] = "graph"
    """As of every agent; in the graph it is many times as fast."""
    use_return_lower_bound: bool = True
    """Raise targets to returns that were observed; Box-World is deterministic."""
    steps: int = 3_000_000
    """When to stop. The same command with a larger number goes on."""
    num_envs: int = 128
    updates_per_step: float = 1 / 64
    """Few, each of many transitions: steps cost little here, and there are many levels."""
    batch_size: int = 128
    replay_capacity: int = 800_000
    learning_starts: int = 20_000
    n_step: int = 1
    discount: float = 0.9
    loss: Literal["huber", "mse"] = "mse"
    """Errors are as large as 10: Huber's loss would learn a median of them, and not their mean."""
    optimizer: OptimizerName = "muon"
    learning_rate: float = 2e-3
    learning_rate_updates: int = 46_000
    epsilon_end: float = 0.25
    epsilon_steps: int = 500_000
    log_every: int = 20_000
    evaluate_every: int = 100_000
    checkpoint_every: int = 500_000

    size: int = 8
    """Side of the room in cells."""
    boxes: int = 3
    """At most so many lead to the gem."""
    distractors: int = 2
    """At most so many branches of distractors."""
    distractor_length: int = 1
    """Boxes of a branch."""
    max_steps: int = 120
    """Time limit of an episode."""
    pool: int = 100_000
    """Levels that are drawn beforehand, with `--loop graph`."""
    network: str = "fast"
    """fast, fast-relative, zambaldi or book, presets of `RelationalQNetwork`; or convolutional."""

    @property
    def default_name(self) -> str:
        """The folder under `runs` where no name is given: networks are there to be compared."""
        return f"{self.preset}-{self.network}-seed{self.seed}"


NETWORKS = ("fast", "fast-relative", "zambaldi", "book", "convolutional")
"""Without those that have weights already, or look at pictures."""
KINDS = ("new levels", "held-out pairs", "one box longer")
"""What an agent is tried on in the end."""

PRESETS = {
    "box-world": Config(),
    "one-box": Config(
        preset="one-box",
        boxes=1,
        distractors=0,
        steps=200_000,
        learning_rate_updates=7_500,
        epsilon_steps=100_000,
    ),
}


def main(config: Config):
    """Trains a relational double DQN on Box-World; the same command again continues."""
    replicas = make_replicas(config, config.batch_size)
    task = make_task(config)
    keras.utils.set_random_seed(config.seed)
    network = make_network(config, task)
    return train_double_dqn(
        task, network, config, replicas, extra_evaluation=lambda agent: further(agent, config)
    )


def further(agent: Any, config: Config) -> dict[str, dict[str, float]]:
    """What is told of an agent beside its evaluation, and said at once."""
    told = generalization(agent, config, make_tasks(config))
    for name, share in told.items():
        print(f"{name}: {share:.1%} solved")
    return {"generalization": told}


def make_task(config: Config, **changes: Any) -> Task:
    """Box-World as the configuration wants it, with the held-out pairs kept out of training.

    Raises:
        InvalidInput: if a number is not possible.
    """
    positive_int("boxes", config.boxes)
    natural("distractors", config.distractors)
    arguments: dict[str, Any] = {
        # Those that are harder are met from the start: where there is one lock alone, no colours
        # have to be compared.
        "levels": [(tuple(range(1, config.boxes + 1)), tuple(range(config.distractors + 1)))],
        "distractor_length": config.distractor_length,
        "max_steps": config.max_steps,
        "pool": config.pool,
    }
    return box_world_task(config.size, **{**arguments, **changes})


def make_network(config: Config, task: Task, **overrides: Any) -> keras.Model:
    """A Q network with new weights; `overrides` are those of a relational one."""
    if config.network == "convolutional":
        # Of as many parameters as `fast`.
        return grid_q_network(task.num_actions, (32, 32, 32, 8), (152,), dtype=config.dtype)
    one_of("network", config.network, NETWORKS)
    more: dict[str, Any] = {}
    if config.network == "fast":
        more = {
            # A lock's cell knows what is behind it, to its left; linearly, so that attention can
            # compare the colours of either.
            "conv_filters": (64,),
            "conv_kernel_size": 2,
            "conv_padding": "top_left",
            "conv_activation": None,
            # The way to a cell is learned for all cells at once; `zambaldi` has coordinates, too.
            "coordinates": {},
            # From a lock to the key behind it, to its lock, and so on: a round a box, and one more.
            "num_rounds": 4,
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
    return RelationalQNetwork.from_preset(
        config.network,
        task.preprocessor,
        num_actions=task.num_actions,
        dtype=config.dtype,
        **more | overrides,
    )


def max_entities(config: Config) -> int:
    """The most cells that hold something, in levels one box longer than those of training.

    Example:
        >>> max_entities(Config(boxes=3, distractors=2))
        14
    """
    boxes = config.boxes + 1 + config.distractors * config.distractor_length
    return 2 + 2 * boxes  # the agent, the loose key, and of each box a lock and what is behind it


def make_tasks(config: Config) -> dict[str, Task]:
    """The kinds of levels that an agent is tried on, but for those that have no room.

    A kind for whose boxes the room is too small is left out, and said so.
    """
    tasks = {}
    for kind, changes in kinds(config).items():
        try:
            tasks[kind] = make_task(config, **changes)
        except InvalidInput as error:
            print(f"{kind}: left out, as {error}")
    return tasks


def trials(tasks: Iterable[str]) -> list[tuple[str, str, float]]:
    """(name of a share that is told, the kind of levels, the share of random actions) each.

    An agent plays greedily, and with a share of random actions, as DoorKey's are evaluated.
    """
    return [
        trial
        for kind in tasks
        for trial in ((kind, kind, 0.0), (f"{kind}, ε = {NOISE}", kind, NOISE))
    ]


def generalization(agent: Any, config: Config, tasks: Mapping[str, Task]) -> dict[str, float]:
    """Shares of levels that are solved: as in training, and of kinds never seen there."""
    episodes = config.evaluation_episodes
    play = {kind: make_play(agent, task, episodes) for kind, task in tasks.items()}
    return {
        name: play[kind](len(tasks[kind].levels) - 1, epsilon).summary()["success"]
        for name, kind, epsilon in trials(tasks)
    }


def kinds(config: Config) -> dict[str, dict[str, Any]]:
    """Which kinds of levels an agent is tried on: their names, and what is changed in the task."""
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"test_part": "test"},
        {"test_goal_length": config.boxes + 1},
    )
    found = dict(zip(KINDS, changes))
    if config.boxes == 1:
        del found[KINDS[1]]  # one box has no pair of colours to hold out
    return found


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="box-world")
