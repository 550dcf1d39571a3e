"""Trains every DoorKey agent that the docs report, several seeds each, and writes their tables.

    python -m benchmarks.doorkey             # trains what is missing (hours on two cores)
    python -m benchmarks.doorkey --no-train  # tables and figure from docs/results/doorkey alone

What a run leaves for the tables (its metrics and its last evaluation) is copied to
`docs/results/doorkey`; the table and the figure beside them are made from those copies.
"""

import concurrent.futures
import dataclasses
import json
import pathlib
import shutil

import keras
import numpy as np

from benchmarks import tables, training_runs
from rrl_tf import viz
from rrl_tf.training import atomic_file, evaluate
from train_scripts import command_line, train_doorkey

RESULTS = pathlib.Path("docs/results/doorkey")
LABELS = {
    "fast": "ours, 5x5",
    "fast-6x6": "ours, 6x6, new layouts",
    "book": "book, as meant, 5x5",
    "book-published": "book, as published, 5x5",
}
STEPS = {"book": 30_000, "book-published": 20_000}
"""Fewer than the chapter's 50,000: at some 40 steps a second that is what a CPU affords."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Which runs, and how many at a time."""

    presets: tuple[str, ...] = tuple(LABELS)
    """Presets of `train_scripts.train_doorkey`."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of each. The table takes in whatever seeds lie in the results folder."""
    runs: str = "runs/doorkey"
    """Where runs are kept; those that are there already are not trained again."""
    jobs: int = 1
    """Runs at a time, one thread each."""
    train: bool = True
    """Train what is missing, or only draw up the table again."""


def main(config):
    """Trains the DoorKey agents that the docs report and writes their table and figure."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    if config.train:
        wanted = [(preset, seed) for seed in config.seeds for preset in config.presets]
        with concurrent.futures.ThreadPoolExecutor(config.jobs) as pool:
            list(pool.map(lambda run: train(config.runs, *run), wanted))
    with atomic_file(RESULTS / "table.md") as draft:
        draft.write_text(table(RESULTS))
    for name, make in (("shares", shares), ("layouts", layouts), ("seeds", seeds_of_fast)):
        with atomic_file(RESULTS / f"{name}.md") as draft:
            draft.write_text(make(RESULTS))
    viz.save_figure(curves(RESULTS), RESULTS / "curves.png")
    tables.main()
    print((RESULTS / "table.md").read_text())


def train(folder, preset, seed):
    """Trains one agent in a process of its own, and keeps what the table needs."""
    steps = [f"--steps={STEPS[preset]}"] if preset in STEPS else []
    arguments = [f"--preset={preset}", f"--seed={seed}", f"--runs={folder}", *steps]
    training_runs.train("train_doorkey", *arguments)
    run = pathlib.Path(folder) / f"{preset}-seed{seed}"
    training_runs.keep(run, RESULTS)
    if seed == 0:
        for picture in ("attention.png", "episode.gif"):
            shutil.copy(run / "figures" / picture, RESULTS / f"{preset}-{picture}")
    summary = json.loads((run / "evaluation.json").read_text())
    if preset.startswith("fast"):
        summary["uniform_attention"] = success_with_uniform_attention(run)
    if preset == "fast-6x6":
        summary["solved_of_layouts"] = solved_of_layouts(run)
    with atomic_file(RESULTS / f"{run.name}.json") as draft:
        draft.write_text(json.dumps(summary, indent=2) + "\n")


def trained(run):
    """Configuration and network of a finished run."""
    stored = json.loads((run / "config.json").read_text())
    config = train_doorkey.Config(**{**stored, "sizes": tuple(stored["sizes"])})
    [file] = (run / "checkpoints").glob("*/model.keras")
    return config, keras.models.load_model(file)


def play(config, network, resets):
    """The `Evaluation` of greedy play."""
    prepare = train_doorkey.preparation(config)
    return evaluate(
        lambda o: keras.ops.convert_to_numpy(network(prepare(o))).argmax(-1),
        lambda: train_doorkey.make_env(config),
        resets,
    )


def success_with_uniform_attention(run):
    """Greedy success when every cell attends to all cells in sight alike: what attention is worth.

    With queries of zero all scores are equal, whatever the keys are.
    """
    config, network = trained(run)
    for block in network.relations.rounds:
        silence_queries(block.attention)
    return play(config, network, train_doorkey.evaluation_resets(config)).summary()["success"]


def solved_of_layouts(run):
    """By part, trained on or held out: [wall, door, key, solved starts, starts] of each layout."""
    config, network = trained(run)
    answer = {}
    for part, starts in zip(("trained on", "held out"), train_doorkey.split_starts(config)):
        result = play(config, network, [{"options": {"start": start}} for start in starts])
        layouts = {start.layout: [0, 0] for start in starts}
        for start, success in zip(starts, result.success):
            layouts[start.layout][0] += int(success)
            layouts[start.layout][1] += 1
        answer[part] = [[*layout[1:], *counts] for layout, counts in layouts.items()]
    return answer


def silence_queries(attention):
    """Sets the queries of a self-attention layer to zero; its columns are `[head][q | k | v]`."""
    for variable in attention.query_key_value.variables:
        columns = variable.numpy().reshape(*variable.shape[:-1], attention.num_heads, -1)
        columns[..., : attention.key_size] = 0
        variable.assign(columns.reshape(variable.shape))


def table(results):
    """The runs' last evaluations as a Markdown table."""
    lines = [
        "| agent | seeds | steps | greedy success | ended in a loop | success, ε = .05 | "
        "first step without a failure | greedy, attention made uniform |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for preset, label in LABELS.items():
        agents = training_runs.summaries(results, preset)
        if not agents:
            continue
        first = [agent["first_perfect"] for agent in agents]
        cells = [
            label,
            str(len(agents)),
            f"{max(agent['step'] for agent in agents):,}",
            spread(agents, "eval/success"),
            spread(agents, "eval/loops"),
            spread(agents, "eval/success_epsilon_0.05"),
            ", ".join("never" if step is None else f"{step:,}" for step in first),
            spread(agents, "uniform_attention"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def spread(agents, name):
    """Mean and range over the seeds, in percent."""
    if name not in agents[0]:
        return "not measured"
    return training_runs.spread([100 * agent[name] for agent in agents], unit=" %")


def layouts(results):
    """How the 6x6 runs do on both parts of the layouts, as a Markdown table."""
    lines = [
        "| seed | layouts trained on | layouts held out | held-out layouts with failures: "
        "wall x, door y, key (x, y): solved of starts |",
        "|---|---|---|---|",
    ]
    for seed, run in enumerate(training_runs.summaries(results, "fast-6x6")):
        parts = run["solved_of_layouts"]
        shares = [
            f"{100 * sum(row[3] for row in rows) / sum(row[4] for row in rows):.1f} %"
            for rows in (parts["trained on"], parts["held out"])
        ]
        failures = "; ".join(
            f"{wall}, {door}, ({key[0]}, {key[1]}): {solved} of {starts}"
            for wall, door, key, solved, starts in parts["held out"]
            if solved < starts
        )
        lines.append(f"| {seed} | {' | '.join(shares)} | {failures or 'none'} |")
    return "\n".join(lines) + "\n"


def seeds_of_fast(results):
    """Every run of `fast` by itself, as a Markdown table."""
    lines = [
        "| `fast`, seed | greedy success at the last evaluation | first step without a failure |",
        "|---|---|---|",
    ]
    for path in training_runs.files(results, "fast", "json"):
        run = json.loads(path.read_text())
        first = "never" if run["first_perfect"] is None else f"{run['first_perfect']:,}"
        seed = path.stem.removeprefix("fast-seed")
        lines.append(f"| {seed} | {100 * run['eval/success']:.1f} % | {first} |")
    return "\n".join(lines) + "\n"


def shares(results):
    """Where the training loop's time went, as a Markdown table: medians over rows and seeds."""
    parts = ("environment", "act", "replay", "update")
    lines = [
        "| agent | environment | acting | replay: storing and sampling | update |",
        "|---|---|---|---|---|",
    ]
    for preset, label in LABELS.items():
        files = training_runs.files(results, preset, "csv")
        learning = [
            row for path in files for row in training_runs.metrics(path) if "train/loss" in row
        ]
        if learning:
            medians = [np.median([row[f"time/{p}_share"] for row in learning]) for p in parts]
            lines.append(f"| {label} | {' | '.join(f'{100 * m:.1f} %' for m in medians)} |")
    return "\n".join(lines) + "\n"


def curves(results):
    """Greedy success against environment steps: a line an agent on 5x5, a band over its seeds."""
    lines = {}
    for preset, label in LABELS.items():
        series = [success_curve(path) for path in training_runs.files(results, preset, "csv")]
        if series and label.endswith("5x5"):
            steps = sorted(set.intersection(*(set(each) for each in series)))
            values = np.array([[each[step] for step in steps] for each in series])
            lines[label.removesuffix(", 5x5")] = np.array(steps), values
    return viz.learning_curves(lines, "share of the 48 starts solved greedily", ylim=(-0.02, 1.02))


def success_curve(path):
    """Step → greedy success, from a run's metrics."""
    rows = [row for row in training_runs.metrics(path) if "eval/success" in row]
    return {int(row["step"]): row["eval/success"] for row in rows}


if __name__ == "__main__":
    command_line.run(main, Config)
