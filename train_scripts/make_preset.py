"""Makes a trained preset of a finished run: its network, its policy, and a card that tells of it.

python -m train_scripts.make_preset --run runs/doorkey/fast-seed0 --name doorkey-5x5
"""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
from typing import Any

import gymnasium
import keras

import rrl_tf.envs
import rrl_tf.models  # noqa: F401 - stored networks are of these classes
from rrl_tf.errors import InvalidInput
from rrl_tf.export.versions import newest_version
from rrl_tf.models.trained import write_preset
from rrl_tf.presets import POLICY
from rrl_tf.training import RunConfig
from train_scripts import command_line

LICENCE = "MIT"
HIDDEN = {"draw_every", *RunConfig().mutable_fields()}
"""Settings that a model card leaves out."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Which run, and what is to be said of it."""

    run: str
    """Folder of a finished run."""
    name: str
    """Of the preset."""
    folder: str = "presets"
    """Where the preset's own folder is made."""
    description: str = ""
    """What it is, in one sentence."""
    command: str = ""
    """Which made the run; by default the card points to the settings."""
    limits: str = ""
    """What it cannot do, for the card."""


def main(config: Config) -> pathlib.Path:
    """Makes a trained preset of a finished run."""
    run = pathlib.Path(config.run)
    model, version = network(run), newest_version(run / "export")
    told = pathlib.PurePosixPath("assets.extra/policy.json")
    settings, outcome, policy = (
        without_folder(document)
        for document in (
            read(run, "config.json"),
            read(run, "evaluation.json"),
            read(version, told),
        )
    )
    description = config.description or f"{policy.get('environment', run.name)}, {run.name}."
    beside: dict[str, Any] = {
        f"{POLICY}/1/{path.relative_to(version).as_posix()}": path.read_bytes()
        for path in sorted(version.rglob("*"))
        if path.is_file()
    }
    beside[f"{POLICY}/1/{told}"] = json.dumps(policy, indent=2) + "\n"
    beside["preprocessor.json"] = json.dumps(preprocessor(policy), indent=2) + "\n"
    beside["evaluation.json"] = json.dumps(outcome, indent=2) + "\n"
    beside["README.md"] = card(
        config, description, model, settings, outcome, policy, time_taken(run)
    )
    folder = write_preset(model, pathlib.Path(config.folder) / config.name, description, beside)
    print(f"written: {folder}")
    return folder


def read(run: pathlib.Path, name: str | pathlib.PurePath) -> dict[str, Any]:
    """A JSON file of a run folder.

    Raises:
        InvalidInput: if the run is not finished.
    """
    try:
        return json.loads((run / name).read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"run must be the folder of a finished run; received {str(run)!r}, whose {name} cannot "
            f"be read ({type(error).__name__})"
        ) from error


def network(run: pathlib.Path) -> keras.Model:
    """The network of the run's last checkpoint.

    Raises:
        InvalidInput: if there is none.
    """
    files = sorted((run / "checkpoints").glob("*/model.keras"))
    if not files:
        raise InvalidInput(f"run must hold a checkpoint; received {str(run)!r}")
    return keras.models.load_model(files[-1], compile=False)


def time_taken(run: pathlib.Path) -> str:
    """What a run took, as the card goes on with it; nothing where the log does not tell."""
    with (run / "metrics.csv").open(newline="") as file:
        told = [row.get("time/cpu_minutes") for row in csv.DictReader(file)]
    known = [float(cell) for cell in told if cell]
    return f", {known[-1]:.0f} CPU minutes" if known else ""


def preprocessor(policy: dict[str, Any]) -> dict[str, Any]:
    """What goes into the policy and comes out: shapes and dtypes of raw values, action names."""
    signature = policy["signatures"]["serving_default"]
    names = ("environment", "action_names", "data", "class_names")
    return {
        "inputs": signature["inputs"],
        "outputs": signature["outputs"],
        **{name: policy[name] for name in names if name in policy},
        "preparation": f"inside {POLICY}/1, which takes raw values",
    }


def usage(name: str, policy: dict[str, Any], targets: list[float]) -> str:
    """Lines of Python, whole as they stand, that classify an input or play an episode."""
    load = f'policy = rrl_tf.load_policy("{name}")'
    takes = policy["signatures"]["serving_default"]["inputs"]
    if "classify" in policy["signatures"]:
        ((raw, spec),) = takes.items()
        empty = f'{raw} = np.zeros({tuple(spec["shape"][1:])}, "{spec["dtype"]}")  # yours, raw'
        label = f"label = policy.classify({raw})"
        return f"import numpy as np\nimport rrl_tf\n\n{load}\n{empty}\n{label}"
    session, target = "", ""
    if "returns_to_go" in takes:
        session = "WindowSession"
        target = f", target_return={max(targets)}" if targets else ""
    elif "memory" in takes:
        session = "MemorySession"
    imports = f"\nfrom serving.sessions import {session}" if session else ""
    begin = f"session = {session}(policy{target})  # for each episode a new one\nreward, "
    act = "session.act(observation, reward)  # raw, and what the last action earned"
    return f"""import gymnasium
import rrl_tf.envs  # its environments are known to Gymnasium now{imports}

{load}
env = gymnasium.make("{environment_id(policy.get("environment", ""))}")
observation, _ = env.reset(seed=0)
{begin + "total, over = 0.0, 0.0, False" if session else "total, over = 0.0, False"}
while not over:
    action = {act if session else "policy.act(observation)  # raw"}
    observation, reward, terminated, truncated, _ = env.step(action)
    total, over = total + reward, terminated or truncated
print(total)"""


def environment_id(name: str) -> str:
    """Gymnasium's name of an environment; our tasks go by the middle of theirs."""
    ours = f"rrl_tf/{name}-v0"
    return ours if ours in gymnasium.registry else name


def data_name(source: str) -> str:
    """What data are called, without the folder that they lay in."""
    kind, _, place = source.rpartition(":")
    parts = {"minari": 3, "tfds": 2}.get(kind, 1)  # NAMESPACE/NAME-vN, with one part or two before
    return "/".join(pathlib.PurePath(place).parts[-parts:])


def without_folder(document: dict[str, Any]) -> dict[str, Any]:
    """A run's document that tells what its data are called, and not where they lay."""
    source = document.get("data")
    return {**document, "data": data_name(source)} if isinstance(source, str) else document


def table(what: str, cells: dict[str, str]) -> str:
    """A Markdown table of names and values."""
    rows = "".join(f"| `{name}` | {value} |\n" for name, value in cells.items())
    return f"| {what} | value |\n|---|---|\n{rows}"


def numbers(outcome: Any, name: str = "") -> dict[str, float]:
    """The numbers in an outcome, by their path."""
    if isinstance(outcome, dict | list):
        parts = outcome.items() if isinstance(outcome, dict) else enumerate(outcome)
        within = [numbers(value, f"{name}/{key}".lstrip("/")) for key, value in parts]
        return {path: value for each in within for path, value in each.items()}
    return {name: outcome} if isinstance(outcome, int | float) else {}


def card(
    config: Config,
    description: str,
    model: keras.Model,
    settings: dict[str, Any],
    outcome: dict[str, Any],
    policy: dict[str, Any],
    took: str,
) -> str:
    """The model card."""
    class_name, count = type(model).__name__, model.count_params()
    command = config.command or "see the settings below"
    measured = {
        k: format(v, "d" if isinstance(v, int) else ".6g") for k, v in numbers(outcome).items()
    }
    told = {"environment": environment_id, "data": data_name}
    learnt = "\n".join(
        f"{name.capitalize()}: {say(policy[name])}." for name, say in told.items() if name in policy
    )
    asked = "asks" if "classify" in policy["signatures"] else "plays"
    trained = {
        name: json.dumps(value)
        for name, value in settings.items()
        # Where files lay on the machine that made it is nobody's business.
        if name not in HIDDEN and not pathlib.Path(str(value)).is_absolute()
    }
    return f"""# {config.name}

{description}

```python
{usage(config.name, policy, settings.get("targets") or [])}
```

`rrl-serve --preset={config.name}` serves it. The Keras model, of {count:,} parameters, is
`rrl_tf.models.{class_name}.from_preset("{config.name}")`.

## Training

`{command}`, seed {settings.get("seed")}{took}.
{learnt}

## Evaluation

With the weights of the last step, on what the run's evaluation always {asked}:

{table("metric", measured)}
This is one seed; what others reach is in the documentation's tables.

## Limits

{config.limits or "It was trained for that environment alone."}

## Licence

{LICENCE}, as the package.

## Settings

{table("name", trained)}"""


if __name__ == "__main__":
    command_line.run(main, Config)
