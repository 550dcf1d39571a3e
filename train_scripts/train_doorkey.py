"""Train a relational double DQN on MiniGrid DoorKey.

python -m train_scripts.train_doorkey                    # ours, 5x5
python -m train_scripts.train_doorkey --preset quick     # the same, until it solves every start
python -m train_scripts.train_doorkey --preset few-steps # with more updates per step
python -m train_scripts.train_doorkey --preset fast-6x6  # a curriculum, tested on new layouts
python -m train_scripts.train_doorkey --preset book      # the book's agent, as its text says
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import rrl_tf
from rrl_tf.agents.config import DoubleDQNConfig, NetworkConfig
from train_scripts import agents, command_line


@dataclasses.dataclass(frozen=True)
class Config(NetworkConfig, DoubleDQNConfig):
    """Set the options of a run. Steps are counted over all environments together."""

    runs: str = "runs/doorkey"
    sizes: tuple[int, ...] = (5,)
    """Sides of the grid, a curriculum from first to last; the last one is evaluated."""
    held_out: bool = False
    """Hold out a third of the last size's layouts for evaluation."""
    held_out_seed: int = 0
    """Seed that selects this third."""
    observation: Literal["view", "compass"] = "compass"
    """The egocentric view alone, or with the agent's direction."""
    frames: int = 1
    """Observations stacked."""
    preprocessor: Literal["one_hot", "constant", "frame_maximum"] = "one_hot"
    """Preprocessing of raw observations."""
    reward: Literal["env", "success", "book"] = "success"
    """Reward for learning (`make_doorkey`)."""
    max_steps: int | None = None
    """Time limit of an episode; 10 * size² by default."""
    network: Literal["book", "zambaldi", "fast", "fast-relative", "grid", "atari"] = "fast"
    """Architecture of `RelationalQNetwork`."""
    bound_entities: bool = False
    """Process only as many cells as can be visible in the largest room. The Q values are the same
    and cost less, but the network cannot be used in larger rooms. Only the network `fast` with
    one-hot cells, in rooms of up to 7x7, has this option; others ignore it."""


FAST = Config(
    preset="fast",
    bound_entities=True,
    jit_compile=False,  # XLA makes updates slower on a CPU
    use_return_lower_bound=True,  # DoorKey is deterministic
)
BOOK = dataclasses.replace(
    FAST,
    preset="book",
    bound_entities=False,  # its norms need all cells
    observation="view",
    preprocessor="frame_maximum",
    reward="book",
    max_steps=400,
    network="book",
    learning_rate=5e-4,
    learning_rate_end=5e-4,
    clip_norm=1.0,
    loss="mse",
    target_period=100,
    target_rate=1.0,
    steps=50_000,
    num_envs=1,
    updates_per_step=1.0,
    batch_size=50,
    learning_starts=50,
    replay_capacity=9000,
    n_step=1,
    discount=0.99,
    priority_exponent=0.0,
    positive_copies=50,
    use_return_lower_bound=False,
    epsilon_start=0.5,
    epsilon_end=0.5,
    epsilon_steps=0,
    evaluate_every=2500,
)
# Like `fast`, but tuned for a short time; ends when every start is solved.
QUICK = dataclasses.replace(
    FAST,
    preset="quick",
    learning_rate=2e-3,
    learning_rate_updates=4000,
    updates_per_step=0.5,  # twice as many updates as `fast`, of half the size
    batch_size=32,
    learning_starts=500,
    n_step=5,
    discount=0.9,  # larger differences between actions, so that fewer starts end in a loop
    epsilon_steps=5000,
    stop_after_perfect=1,
)
PRESETS = {
    "fast": FAST,
    "fast-6x6": dataclasses.replace(
        FAST,
        preset="fast-6x6",
        sizes=(5, 6),
        held_out=True,
        steps=60_000,
        learning_rate_updates=12_000,
    ),
    "quick": QUICK,
    "few-steps": dataclasses.replace(
        QUICK,
        preset="few-steps",
        updates_per_step=1.0,
        batch_size=64,
        learning_rate_updates=8000,
    ),
    "zambaldi": dataclasses.replace(
        FAST, preset="zambaldi", network="zambaldi", bound_entities=False
    ),
    "book": BOOK,
    "book-published": dataclasses.replace(
        BOOK,
        preset="book-published",
        max_steps=None,
        ignore_time_limit=True,
        select_at_t=True,
    ),
}

ABOUT = {
    "fast": "5x5; solves every start",
    "fast-6x6": "5x5, then 6x6; evaluated on new layouts",
    "quick": "5x5 in a short time; stops when every start is solved",
    "few-steps": "5x5 in few environment steps; stops when every start is solved",
    "zambaldi": "5x5 with the architecture of the Box-World paper",
    "book": "5x5 with the book's agent as it was meant",
    "book-published": "5x5 with the book's agent as published, including its errors",
}


def main(config: Config):
    """Train a relational double DQN on MiniGrid DoorKey. Repeat the command to resume the run."""
    return agents.train(config, make_task, make_network)


def make_task(config: Config) -> rrl_tf.envs.Task:
    """Return the task of a configuration."""
    return rrl_tf.envs.doorkey_task(
        config.sizes,
        observation=config.observation,
        frames=config.frames,
        preprocessor=config.preprocessor,
        reward=config.reward,
        max_steps=config.max_steps,
        held_out=config.held_out,
        held_out_seed=config.held_out_seed,
    )


def make_network(
    config: Config, task: rrl_tf.envs.Task, **overrides: Any
) -> rrl_tf.models.RelationalQNetwork:
    """Return a Q network with new weights; `overrides` are its arguments."""
    visible = rrl_tf.envs.most_in_sight(max(config.sizes))
    height, width, _ = task.preprocessor.shape
    masks_cells = config.network == "fast" and task.preprocessor.unseen_feature is not None
    is_bounded = config.bound_entities and masks_cells and visible < height * width
    arguments = {
        "num_actions": task.num_actions,
        "max_entities": visible if is_bounded else None,
        "dtype": config.dtype,
        **config.network_sizes(),
    }
    return rrl_tf.models.RelationalQNetwork.from_preset(
        config.network, task.preprocessor, **arguments | overrides
    )


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="fast", about=ABOUT)
