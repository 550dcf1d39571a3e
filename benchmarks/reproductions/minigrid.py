"""Train one recurrent agent on each of MiniGrid's harder environments, with the same options.

    python -m benchmarks reproductions/minigrid --variants Unlock

A variant is the id of an environment without `MiniGrid-` and `-v0`.
"""

from benchmarks.reproduction import (
    Reproduction,
    Training,
    last_step,
    load_network,
    percent,
    read_config,
    spread,
)
from rrl_tf.agents import make_agent
from rrl_tf.agents.evaluation import NOISE, evaluate
from train_scripts import train_recurrent

EASY = ("DoorKey-5x5", "DoorKey-6x6")
LOCKED = (*EASY, "Unlock")
CORRIDORS = ("KeyCorridorS3R1", "KeyCorridorS3R2", "KeyCorridorS3R3")
TASKS = {
    # environment: millions of steps, easier environments to begin with, target in per cent.
    "Unlock": (0.2, (), None),
    "GoToDoor-5x5": (0.2, (), None),
    "GoToDoor-8x8": (1, ("GoToDoor-5x5", "GoToDoor-6x6"), None),
    "GoToObject-6x6-N2": (0.2, (), None),
    "GoToObject-8x8-N2": (1, ("GoToObject-6x6-N2",), None),
    "PutNear-6x6-N2": (1, (), None),
    "RedBlueDoors-6x6": (0.5, (), None),
    "RedBlueDoors-8x8": (1, ("RedBlueDoors-6x6",), None),
    "MultiRoom-N6": (2, ("MultiRoom-N2-S4", "MultiRoom-N4-S5"), None),
    "UnlockPickup": (1, CORRIDORS[:1], None),
    "BlockedUnlockPickup": (4, (), None),
    "LockedRoom": (4, (), None),
    "KeyCorridorS4R3": (2, CORRIDORS, 95),
    "KeyCorridorS5R3": (4, (*CORRIDORS, "KeyCorridorS4R3"), 80),
    "KeyCorridorS6R3": (4, (*CORRIDORS, "KeyCorridorS4R3", "KeyCorridorS5R3"), 80),
    "ObstructedMaze-1Dl": (1, LOCKED, 95),
    "ObstructedMaze-1Dlh": (2, (*LOCKED, "ObstructedMaze-1Dl"), 95),
    "ObstructedMaze-1Dlhb": (4, (*LOCKED, "ObstructedMaze-1Dl", "ObstructedMaze-1Dlh"), 95),
    "ObstructedMaze-2Dlh": (4, (*LOCKED, "ObstructedMaze-1Dl", "ObstructedMaze-1Dlh"), 80),
}
EPISODES = 300
"""Evaluation episodes of the last level, whose seeds training does not use."""


def environment_id(name):
    """Return the id of an environment that `TASKS` names."""
    return f"MiniGrid-{name}-v0"


def training(name):
    """Return the training on an environment.

    The learning rate decays over the last 40 %. There are at most 50 evaluations, because those
    that fail last until the time limit.
    """
    millions, easier, _ = TASKS[name]
    steps = int(millions * 1e6)
    updates = int(steps * train_recurrent.PRESETS["minigrid"].updates_per_step)
    options = [f"--env={environment_id(name)}", f"--steps={steps}"]
    options += [f"--learning-rate-updates={updates}", f"--learning-rate-hold={updates * 6 // 10}"]
    options += [f"--evaluate-every={max(20_000, steps // 50)}"]
    if easier:
        options += ["--curriculum", *map(environment_id, easier)]
    return Training(name, "train_recurrent", "minigrid", tuple(options))


TRAININGS = {name: training(name) for name in TASKS}


def measure(run):
    """Return the success of a run with greedy and with 5 % random actions."""
    config = read_config(run, train_recurrent.Config)
    task = train_recurrent.make_task(config)
    policy = make_agent(task, load_network(run), config).greedy_policy()
    resets = task.evaluation_resets(at_most=EPISODES)
    greedy, noisy = (
        float(evaluate(policy, task.make_test_env, resets, epsilon).success.mean())
        for epsilon in (0.0, NOISE)
    )
    return {"eval/success": greedy, f"eval/success_epsilon_{NOISE}": noisy}


def table(results):
    """Return one row per environment, with empty cells if none of its runs was measured."""
    rows = []
    for name, (millions, easier, target) in TASKS.items():
        names = ("seeds", "CPU hours", "greedy success", f"success, ε = {NOISE}")
        row = {"environment": name, "begins with": ", ".join(easier), "steps": f"{millions} M"}
        row |= dict.fromkeys(names, "") | {"target": f"{target} %" if target else ""}
        if found := results.of(name):
            row |= {
                "steps": last_step(found),
                "seeds": len(found),
                "CPU hours": spread([each["cpu_minutes"] / 60 for each in found], ".2f"),
                "greedy success": percent(found, "eval/success"),
                f"success, ε = {NOISE}": percent(found, f"eval/success_epsilon_{NOISE}"),
            }
        rows.append(row)
    return rows


REPRODUCTION = Reproduction(
    page="minigrid",
    trainings=TRAININGS,
    tables={"table": table},
    measure=measure,
    runs="runs/minigrid",
)
