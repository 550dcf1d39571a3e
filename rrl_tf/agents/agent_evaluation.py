"""How well an agent plays: from every evaluation start, greedily and with a few random actions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from rrl_tf.agents import DoubleDQN, RecurrentDoubleDQN
from rrl_tf.agents.evaluation import Evaluation, evaluate
from rrl_tf.agents.graph_evaluation import GraphEvaluation
from rrl_tf.envs import Task

if TYPE_CHECKING:
    from rrl_tf.agents.run import AgentConfig

Player: TypeAlias = Callable[[int, float], Evaluation]
"""`play(level, epsilon)`: what came of one episode from each evaluation start of that level."""

NOISE = 0.05
"""Share of random actions that takes an agent out of a loop."""


def make_player(agent: DoubleDQN | RecurrentDoubleDQN, task: Task, config: AgentConfig) -> Player:
    """Plays the policy of an agent where the configuration trains it: in Python or in the graph.

    Args:
        agent, task, config: as in `train_agent`.
    """

    player = agent.greedy_player()

    def resets(level):
        return task.evaluation_resets(level, config.evaluation_episodes)

    def play(level: int, epsilon: float) -> Evaluation:
        make = functools.partial(task.make_test_env, level)
        return evaluate(player, make, resets(level), epsilon)

    @functools.cache
    def in_graph(level):
        env = task.make_test_env(level)
        starts = []
        for reset in resets(level):
            env.reset(**reset)
            starts.append(env.get_wrapper_attr("start"))
        return GraphEvaluation(agent, task.levels[level].make_test_graph(), starts)

    def play_in_graph(level: int, epsilon: float) -> Evaluation:
        return in_graph(level)(epsilon)

    return play_in_graph if config.loop == "graph" else play


def scores(play: Player, level: int, levels: int) -> dict[str, float]:
    """Metrics of greedy play and of play with 5 % random actions, from every evaluation start.

    Args:
        play: what `make_player` returned.
        level: number of the level that is played.
        levels: how many there are.
    """
    greedy, noisy = (play(level, epsilon).summary() for epsilon in (0.0, NOISE))
    measure = "return"
    if "success" in {*greedy, *noisy} or levels > 1:
        measure = "success"  # who never told of one had none
        greedy.setdefault(measure, 0.0)
        noisy.setdefault(measure, 0.0)
    return {
        **{f"eval/{name}": value for name, value in greedy.items()},
        f"eval/{measure}_epsilon_{NOISE}": noisy[measure],
        "eval/level": level + 1,
    }


def untrained_scores(play: Player, level: int, levels: int) -> dict[str, float]:
    """Successes on levels before they are trained on, as `scores` has them, under `zero_shot/`.

    Args:
        play: what `make_player` returned.
        level: number of the level that training comes to now; of the last one, which the run is
            about, the greedy success is told as well, `zero_shot/last_success`.
        levels: how many there are.
    """
    last = scores(play, levels - 1, levels)
    told = last if level == levels - 1 else scores(play, level, levels)
    kept = ("success", f"success_epsilon_{NOISE}", "level")
    return {
        **{f"zero_shot/{name}": told[f"eval/{name}"] for name in kept},
        "zero_shot/last_success": last["eval/success"],
    }


def in_words(scores: dict[str, float], episodes: int, levels: int) -> str:
    """The outcome on the last level in a sentence."""
    said = f"greedily a mean return of {scores['eval/return']:.4g} in {episodes} episodes"
    if levels > 1:  # whether or not the training came there
        said += f" of the last of {levels} levels"
    if "eval/success" not in scores:
        return f"{said}, {scores['eval/return_epsilon_0.05']:.4g} with 5 % of random actions"
    loops = f" ({scores['eval/loops']:.1%} ended in a loop)" if "eval/loops" in scores else ""
    return (
        f"{said}; {scores['eval/success']:.1%} of them solved{loops}, "
        f"{scores['eval/success_epsilon_0.05']:.1%} with 5 % of random actions"
    )


def first_perfect(rows: list[dict[str, float]], levels: int) -> int | None:
    """The first step at which every start of the last level was solved greedily, or `None`."""
    for row in rows:
        if row.get("eval/success") == 1 and row["eval/level"] == levels:
            return int(row["step"])
    return None


def is_solved(rows: list[dict[str, float]], levels: int, evaluations: int) -> bool:
    """Whether so many last evaluations, of the last level, were without a failure."""
    last = [row for row in rows if "eval/success" in row][-evaluations:]
    return 0 < evaluations <= len(last) and all(
        row["eval/success"] == 1 and row["eval/level"] == levels for row in last
    )
