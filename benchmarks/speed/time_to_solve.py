"""Compare the CPU time to solve tasks with Stable-Baselines3 and with PPO with an LSTM.

A run ends when 95 % of 100 greedy episodes are successful, or at the CPU limit of its task. Each
run has its own process and one thread. The CPU time counts from the start of the process, without
evaluations. `--variants 'doorkey-5x5-*' --seeds 0` selects runs; stored results are not repeated.
"""

import dataclasses
import importlib.util
import os
import subprocess
import sys

import numpy as np
from matplotlib.ticker import NullFormatter, PercentFormatter, StrMethodFormatter

from benchmarks.reproduction import Reproduction, spread
from benchmarks.solving.trial import TASKS
from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style

NEEDED = ["stable_baselines3", "sb3_contrib", "torch"]
INSTALL = "pip install stable-baselines3==2.9.2 sb3-contrib==2.9.2 torch==2.13.0"
OURS = {
    "doorkey-5x5-ours": "quick",
    "doorkey-5x5-ours-fast": "fast",
    "memory-s7-ours": "recurrent:memory-s7",
    "cartpole-ours": "cartpole",
    "doorkey-8x8-ours": "recurrent:doorkey-8x8",
}
AGENTS = {
    "ours": "ours",
    "ours-fast": "ours, preset fast",
    "sb3-dqn": "SB3 DQN",
    "sb3-ppo": "SB3 PPO",
    "lstm-ppo": "PPO with an LSTM",
    "sb3-recurrent-ppo": "RecurrentPPO",
}


@dataclasses.dataclass(frozen=True)
class Race:
    """One agent on one task, with the interface of `Training`."""

    task: str
    agent: str
    seeds: tuple[int, ...] = (0, 1, 2)
    options: tuple[str, ...] = ()

    def run(self, runs, name, seed, threads=1):
        """Train in a child process, which writes its results into `runs/name`.

        Raises:
            InvalidInput: if a package is missing, or the process fails.
        """
        agent = OURS.get(f"{self.task}-{self.agent}", self.agent)
        module = {"lstm-ppo": "lstm_ppo"}.get(agent, "sb3" if agent == self.agent else "ours")
        if module != "ours" and not all(map(importlib.util.find_spec, NEEDED)):
            raise InvalidInput(f"{self.agent} needs other packages. Use `{INSTALL}`.")
        command = [sys.executable, "-m", f"benchmarks.solving.{module}", self.task, agent]
        limits = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
        print(f"{name} ...", file=sys.stderr)
        result = subprocess.run(
            [*command, str(seed), str(runs / name), *self.options],
            env={**os.environ, **dict.fromkeys(limits, str(threads))},
            stderr=subprocess.PIPE,
            text=True,
        )
        if result.returncode:
            raise InvalidInput(f"{name} failed: {result.stderr.strip().splitlines()[-1]}")


class TimeToSolve(Reproduction):
    """Runs whose stored results are not repeated, because they are measurements of one machine."""

    def wanted(self, config):
        stored = self.results.evaluations
        return [run for run in super().wanted(config) if f"{run[0]}-seed{run[2]}" not in stored]


def agents_of(task):
    """Return the label of every agent that is trained on a task."""
    ours = {name.removeprefix(f"{task}-") for name in OURS}
    return {a: label for a, label in AGENTS.items() if a in ours or not a.startswith("ours")}


def table(results):
    """Return a row for each measured agent, for each task on which ours was measured."""
    rows = []
    for task in TASKS:
        ours = results.of(f"{task}-ours")
        for agent, label in agents_of(task).items():
            found = results.of(f"{task}-{agent}")
            if not (ours and found):
                continue
            numbers = {key: [each[key] for each in found] for key in ("cpu_seconds", "step")}
            means = [np.mean([each["cpu_seconds"] for each in runs]) for runs in (found, ours)]
            speeds = np.divide(numbers["step"], numbers["cpu_seconds"])
            bound = "" if all(each["solved"] for each in found) else "more than "
            row = {
                "task": task,
                "agent": label,
                "solved": f"{sum(each['solved'] for each in found)} of {len(found)} seeds",
                "CPU seconds": bound + spread(numbers["cpu_seconds"], ".0f"),
                "theirs / ours": "" if agent == "ours" else f"{bound}{means[0] / means[1]:.1f}",
                "environment steps": spread(numbers["step"], ",.0f"),
                "steps per CPU second": spread(speeds, ",.0f"),
                "greedy success": spread([100 * each["success"] for each in found], ".0f", " %"),
            }
            if "sampled_success" in found[0]:
                sampled = [100 * each["sampled_success"] for each in found]
                row["with sampled actions"] = spread(sampled, ".0f", " %")
            rows.append(row)
    return rows


def figure(results):
    """Draw greedy success against CPU time, a panel for each task and a line for each seed."""
    drawing = style.new_figure(style.FIGURE_WIDTH, 6.0)
    entries = {}
    for axes, task in zip(drawing.subplots(2, 2).flat, TASKS):
        style.plain(axes)
        axes.set_title(task, fontsize=style.LABEL_SIZE, color=style.TEXT)
        style.name_axes(axes, "CPU seconds", "greedy success")
        axes.set_xscale("log")
        axes.set_xlim(3, max(each.seconds for each in TASKS.values()))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylim(-0.03, 1.03)
        for index, (agent, label) in enumerate(AGENTS.items()):
            for each in results.of(f"{task}-{agent}"):
                run = f"{task}-{agent}-seed{each['seed']}"
                rows = [row for row in results.log if row["run"] == run]
                points = [[float(row[c]) for c in ("cpu_seconds", "success")] for row in rows]
                axes.plot(*np.transpose(points), color=style.colour(index), lw=1.3)
                entries[label] = style.line(style.colour(index), lw=2)
        axes.set_visible(bool(axes.lines))
    if entries:
        style.legend(drawing, entries)
    return drawing


REPRODUCTION = TimeToSolve(
    page="time_to_solve",
    trainings={f"{task}-{agent}": Race(task, agent) for task in TASKS for agent in agents_of(task)},
    tables={"table": table},
    figures={"success": figure},
    curves=("cpu_seconds", "success", "sampled_success"),
)
