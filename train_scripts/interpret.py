"""Explain what a trained policy computes: attribution, ablation, patching, probes, curves.

Examples:
  rrl-interpret doorkey-5x5 --method patching --states 200 --out explained
  rrl-interpret runs/doorkey/fast-seed0                           # every method, on a run
  rrl-interpret model.keras --task DoorKey-6x6 --method probes    # a saved Keras model
"""

from __future__ import annotations

import csv
import dataclasses
import importlib
import pathlib
import re
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro

import rrl_tf
from rrl_tf import interpret, viz
from rrl_tf._arguments import path_of, positive_int
from rrl_tf.errors import InvalidInput
from rrl_tf.pretrained import (
    METADATA,
    is_on_hub,
    pretrained_folder,
    pretrained_models,
    read_metadata,
)
from train_scripts import command_line

if TYPE_CHECKING:  # `--help` is shown without Keras
    import keras

TASKS: dict[str, Callable[..., Any]] = {
    r"DoorKey-(\d+)x\1": lambda size: rrl_tf.envs.doorkey_task((size,)),
    r"BoxWorld-(\d+)x\1": rrl_tf.envs.box_world_task,
    r"MemoryS(\d+)": lambda size: rrl_tf.envs.memory_task((size,)),
    r"MemoryS(\d+)Random": lambda size: rrl_tf.envs.memory_task((size,), random_length=True),
    r"ComparisonS(\d+)": lambda size: rrl_tf.envs.comparison_task((size,)),
    r"KeyCorridorS3R(\d)": lambda rows: rrl_tf.envs.key_corridor_task((rows,)),
}
"""Pattern of a task's name -> function that returns the task; others are Gymnasium's names."""
# An Atari configuration has only fields that one of `train_dqn` has, too, and thus comes last.
SCRIPTS = ("train_doorkey", "train_recurrent", "train_box_world", "train_dqn", "train_atari")
SUPPORTED = f"a run or a pretrained policy of {', '.join(SCRIPTS)}, or a .keras file of a Q network"
SHOWN = 5
"""Number of states in the figure of attributions."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Set what is explained."""

    model: Annotated[str, tyro.conf.Positional]
    """A pretrained policy, the folder of a run, or a `.keras` file."""
    method: Literal["attribution", "ablation", "patching", "probes", "curves", "all"] = "all"
    """Method, with one figure and one table each."""
    states: int = 200
    """Number of states, from almost greedy episodes."""
    out: str = "interpretation"
    """Folder of the figures, the tables and `report.html`."""
    task: str = ""
    """Task of a `.keras` file: DoorKey-5x5, BoxWorld-8x8, MemoryS17, MemoryS17Random,
    ComparisonS14, KeyCorridorS3R3, or a Gymnasium environment."""
    seed: int = 0
    """Seed of the states, the donors and the random orders."""


def explain(config: Config) -> pathlib.Path:
    """Write figures, tables and a report about what a trained policy computes."""
    from rrl_tf.training.report import write_page

    count = positive_int("states", config.states)
    model, task = load(config.model, config.task)
    out, sections = pathlib.Path(config.out), {}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):  # an error before the work if the folder is not writable
        states = interpret.collect_states(model, task, count, seed=config.seed)
    for name, method in METHODS.items():
        if config.method in (name, "all"):
            try:
                rows, figure = method(model, task, states, config.seed)
            except InvalidInput as error:
                if config.method == name:
                    raise
                print(f"left out: {name}, because {error}")
                continue
            picture = viz.save_figure(figure, out / f"{name}.png")
            with (out / f"{name}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            sections[name] = picture, rows
    sentence = f"{config.model} on {task.name}: {len(states.episodes)} states"
    page = write_page(out / "report.html", pathlib.Path(config.model).stem, sentence, sections)
    print(f"written: {page}")
    return page


def load(name: str, task: str = "") -> tuple[keras.Model, Any]:
    """Return a model and its task.

    Args:
        name: a pretrained policy, the folder of a run, or a `.keras` file.
        task: name of the task, required for a `.keras` file.

    Raises:
        InvalidInput: if there is no such model, it cannot be read, or its task is not known.
    """
    from rrl_tf.models.base import read_pretrained
    from rrl_tf.training.run_folder import read_object

    path = path_of("model", name)
    if path.suffix == ".keras" and path.is_file():
        if not task:
            raise InvalidInput(f"`--task` must be given for a .keras file; received {name!r}")
        return read_keras(path), named_task(task)
    if name in pretrained_models() or is_on_hub(name) or (path / METADATA).is_file():
        folder = pretrained_folder(name)
        if not (kind := read_metadata(folder)["class"]).endswith("QNetwork"):
            raise InvalidInput(f"`model` must be {SUPPORTED}; received {name!r}, a {kind}")
        policies = sorted(folder.glob("policy/*/assets.extra/policy.json"))
        details = read_object(policies[-1], "restore the file") if policies else {}
        return read_pretrained(name), named_task(task or details.get("environment", ""))
    if not (config := path / "config.json").is_file():
        raise InvalidInput(
            f"`model` must be {SUPPORTED}; received {name!r}. Pretrained policies are "
            f"{', '.join(pretrained_models())}."
        )
    made = named_task(task) if task else run_task(read_object(config, "restore the file"))
    files = sorted(path.glob("checkpoints/[0-9]*/model.keras"))
    if not files:
        raise InvalidInput(f"the run must have a checkpoint; received {name!r} without one")
    return read_keras(files[-1]), made


def read_keras(file: pathlib.Path) -> keras.Model:
    """Return the model in a `.keras` file.

    Raises:
        InvalidInput: if Keras cannot read it.
    """
    import keras

    try:
        return keras.models.load_model(file, compile=False)
    except (ValueError, TypeError, LookupError, OSError, zipfile.BadZipFile) as error:
        raise InvalidInput(
            f"`model` must be a file that Keras can read; received {str(file)!r} "
            f"({[*str(error).strip().splitlines(), ''][0]})"
        ) from error


def named_task(name: str) -> Any:
    """Return the task of this name, or of this Gymnasium environment.

    Raises:
        InvalidInput: if there is none.
    """
    for pattern, make in TASKS.items():
        if match := re.fullmatch(pattern, name):
            return make(int(match[1]))
    if not name:
        raise InvalidInput(f"`model` must be {SUPPORTED}; received one without an environment")
    return rrl_tf.envs.gymnasium_task(name)


def run_task(settings: dict[str, Any]) -> Any:
    """Return the task of a run, from its `config.json`."""
    for script in SCRIPTS:
        module: Any = importlib.import_module(f"train_scripts.{script}")
        names = {field.name for field in dataclasses.fields(module.Config)}
        if names <= settings.keys():
            values = {
                n: tuple(settings[n]) if isinstance(settings[n], list) else settings[n]
                for n in names
            }
            config = module.Config(**values)
            if hasattr(module, "make_task"):
                return module.make_task(config)
            return rrl_tf.DQN.from_config(config).task
    raise InvalidInput(f"`model` must be {SUPPORTED}; received another run. Use `--task`.")


def images(task: Any, values: np.ndarray) -> np.ndarray:
    """Return values `(..., N)` of entities as images `(..., rows, columns)`, or as one row."""
    shape = interpret.tracing.grid_shape(task)
    if len(shape) != 2 or shape[0] * shape[1] != values.shape[-1]:
        return values[..., None, :]
    grid = values.reshape(*values.shape[:-1], *shape)
    return grid if task.rows_first else grid.swapaxes(-1, -2)


def attribution(model, task, states, seed):
    """Return the mean attribution to labelled cells by each method, and maps of some states."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        found = interpret.attributions(model, states.inputs)
    cells = [interpret.episode.labelled_cells(task, each) for each in states.observations]
    maps = {method: images(task, values) for method, values in found.items()}
    rows = []
    for method, values in maps.items():
        received: dict[str, list[float]] = {}
        for image, marked in zip(values, cells):
            for label, (x, y) in marked.items():
                if image.shape[0] > y and image.shape[1] > x:
                    received.setdefault(label, []).append(image[y, x])
        labels = {label: float(np.mean(each)) for label, each in received.items()}
        rows.append({"method": method, "all entities": float(values.mean()), **labels})
    columns = dict.fromkeys(column for row in rows for column in row)
    rows = [{column: row.get(column, "") for column in columns} for row in rows]
    shown = np.unique(np.linspace(0, len(cells) - 1, SHOWN).astype(int))
    names = np.array(task.action_names)[interpret.trace(model, states.inputs)["output"].argmax(-1)]
    marked = [cells[i] if len(maps["rollout"][i]) > 1 else {} for i in shown]
    shown_maps = {method: values[shown] for method, values in maps.items()}
    return rows, viz.attribution_figure(shown_maps, marked, list(names[shown]))


def ablation(model, task, states, seed):
    """Return the effect of each removed part."""
    rows = interpret.ablate(model, states.inputs, seed=seed).rows()
    dots = {r["change"]: {"drop": (r["drop of the output"], r["low"], r["high"])} for r in rows}
    caption = "Drop of the Q value of the chosen action without a part, with 95 % intervals."
    return rows, viz.dots_figure(dots, "drop of Q", caption=caption)


def patching(model, task, states, seed):
    """Return the effect of patching each entity at each place from a random other state."""
    import keras

    count = len(states.episodes)
    donors = np.roll(np.random.default_rng(seed).permutation(count), 1)
    donated = keras.tree.map_structure(lambda x: x[donors], states.inputs)
    found = interpret.patch(model, states.inputs, donated)
    maps = dict(zip(found.names, images(task, found.table)))
    return found.rows(), viz.patching_figure(maps, "change of Q")


def probes(model, task, states, seed):
    """Return how well each fact is decoded at each place."""
    if not states.facts:
        raise InvalidInput(f"probes need facts that vary; {task.name} has none in these states")
    entity, places = (
        interpret.attribution.read_entity(model, states.inputs),
        interpret.trace(model, states.inputs),
    )
    names = [name for name in places if name.endswith("/after") and name.startswith("round")]
    arguments: dict[str, Any] = {"folds": min(5, len(set(states.episodes))), "seed": seed}
    rows = interpret.probe_places(
        *(model, states.inputs, states.facts, states.episodes),
        places=names or None,
        entity=entity,
        **arguments,
    )
    series = ("accuracy", "shuffled labels", "untrained network")
    dots = {f"{r['label']}, {r['place']}": {name: r[name] for name in series} for r in rows}
    caption = "Balanced accuracy of linear probes on held-out episodes; the line is chance."
    return rows, viz.dots_figure(dots, "balanced accuracy", 0.5, caption)


def curves(model, task, states, seed):
    """Return the areas under the curves of rollout and occlusion, and draw the curves."""
    inputs, rows, panels = states.inputs, [], {"deletion": {}, "insertion": {}}
    found = interpret.trace(model, inputs)
    rounds = [found[place] for place in interpret.places.attention_places(found)]
    rollout = interpret.attention_rollout(rounds, interpret.attribution.read_entity(model, inputs))
    orders = {"rollout": rollout, "occlusion": interpret.occlusion(model, inputs)}
    for name, relevance in orders.items():
        result = interpret.removal_curves(model, inputs, relevance, seed=seed)
        rows += [{"order": name, **row} for row in result.rows()]
        for curve, values in result.curves.items():
            kind, _, control = curve.partition(", ")
            interval = interpret.interval(values)
            panels[kind][control or name] = (values.mean(axis=-1), *interval)
    return rows, viz.removal_figure(result.fractions, panels, "Q of the chosen action")


METHODS = {each.__name__: each for each in (attribution, ablation, patching, probes, curves)}


def main() -> None:
    """Run the command on the command line."""
    command_line.run(explain, Config, description=__doc__)


if __name__ == "__main__":
    main()
