"""Package a finished run as a pretrained model: network, exported policy and model card.

python -m train_scripts.make_preset --run runs/doorkey/fast-seed0 --name doorkey-5x5
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import pathlib
from typing import Any

import gymnasium

from rrl_tf.errors import InvalidInput
from rrl_tf.pretrained import POLICY
from rrl_tf.training import RunConfig
from train_scripts import command_line

HIDDEN = {"draw_every", *RunConfig().mutable_fields()}
"""Settings that a model card leaves out."""
CARD = """# {name}

{description}

```python
{usage}
```

`rrl-serve --preset={name}` serves it. The Keras model, of {parameters:,} parameters, is
`rrl_tf.models.{class_name}.from_preset("{name}")`.

## Training

{command}, seed {seed}{minutes}.
{source}

## Evaluation

The weights of the last step, in the run's final evaluation:

```json
{outcome}
```

This is one seed; the documentation's tables have the others.

## Limits

{limits}

## Licence

MIT, as the package.

## Settings

```json
{settings}
```
"""
CLASSIFY = """import numpy as np
import rrl_tf

policy = rrl_tf.load_policy("{name}")
{input} = np.zeros({shape}, "{dtype}")  # replace by your raw input
label = policy.classify({input})"""
PLAY = """import gymnasium
import rrl_tf.envs  # registers its environments{imports}

policy = rrl_tf.load_policy("{name}")
env = gymnasium.make("{environment}")
observation, _ = env.reset(seed=0)
{start}total, done = 0.0, False
while not done:
    action = {act}
    observation, reward, terminated, truncated, _ = env.step(action)
    total, done = total + reward, terminated or truncated
print(total)"""


@dataclasses.dataclass(frozen=True)
class Config:
    """Select the run to package, and set the texts of its model card."""

    run: str
    """Folder of a finished run."""
    name: str
    """Name of the pretrained model."""
    folder: str = "presets"
    """Parent folder of the new folder."""
    description: str = ""
    """One sentence about the model."""
    command: str = ""
    """Command that trained the run; if empty, the model card refers to its settings instead."""
    limits: str = "It was trained for that environment alone."
    """Known limits."""


def main(config: Config) -> pathlib.Path:
    """Package a finished run without `--export-best` as a pretrained model."""
    import keras

    import rrl_tf.models  # noqa: F401 - Keras finds the classes of stored networks
    from rrl_tf.export import newest_version

    run = pathlib.Path(config.run)
    settings, outcome = read(run / "config.json"), read(run / "evaluation.json")
    if settings.get("export_best"):
        raise InvalidInput(
            "`run` must export the weights of its last step; received a run with --export-best, "
            f"{config.run!r}"
        )
    checkpoint = max((run / "checkpoints").glob("*/model.keras"))
    model = keras.models.load_model(checkpoint, compile=False)
    version = newest_version(run / "export")
    details = version / "assets.extra" / "policy.json"
    policy = read(details)
    files: dict[str, Any] = {
        f"{POLICY}/1/{path.relative_to(version).as_posix()}": path.read_bytes()
        for path in sorted(version.rglob("*"))
        if path.is_file()
    }
    documents = {
        f"{POLICY}/1/{details.relative_to(version).as_posix()}": policy,
        "evaluation.json": outcome,
    }
    files |= {name: json.dumps(each, indent=2) + "\n" for name, each in documents.items()}
    description = config.description or f"{policy.get('environment', run.name)}, {run.name}."
    sources = {"Environment": environment_id(policy), "Data": policy.get("data")}
    files["README.md"] = CARD.format(
        name=config.name,
        description=description,
        usage=usage(config.name, policy, settings.get("targets") or []),
        parameters=model.count_params(),
        class_name=type(model).__name__,
        command=f"`{config.command}`" if config.command else "Settings below",
        seed=settings.get("seed"),
        minutes=cpu_minutes(run / "metrics.csv"),
        source="\n".join(f"{name}: {value}." for name, value in sources.items() if value),
        outcome=json.dumps(outcome, indent=2),
        limits=config.limits,
        settings=json.dumps(
            {
                name: value
                for name, value in settings.items()
                # Paths on the machine of the run are of no use elsewhere.
                if name not in HIDDEN and not pathlib.Path(str(value)).is_absolute()
            },
            indent=2,
        ),
    )
    folder = model.save_to_preset(pathlib.Path(config.folder) / config.name, description, files)
    print(f"written: {folder}")
    return folder


def read(file: pathlib.Path) -> dict[str, Any]:
    """Read a JSON file of a run, and replace the path of its data by their name.

    Raises:
        InvalidInput: if the run is not finished.
    """
    try:
        return without_path(json.loads(file.read_text()))
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"run must be the folder of a finished run; {str(file)!r} cannot be read "
            f"({type(error).__name__})"
        ) from error


def without_path(document: dict[str, Any]) -> dict[str, Any]:
    """Shorten the path in `data` to the name of the dataset.

    Example:
        >>> without_path({"data": "minari:/home/me/rrl/doorkey/mixed-v0", "seed": 1})
        {'data': 'rrl/doorkey/mixed-v0', 'seed': 1}
    """
    source = document.get("data")
    if not isinstance(source, str):
        return document
    kind, _, path = source.rpartition(":")
    parts = {"minari": 3, "tfds": 2}.get(kind, 1)  # NAMESPACE/NAME-vN, with one part or two before
    return {**document, "data": "/".join(pathlib.PurePath(path).parts[-parts:])}


def cpu_minutes(metrics: pathlib.Path) -> str:
    """Return the CPU time of a run as part of a sentence, or "" if the log does not contain it."""
    rows = csv.DictReader(metrics.read_text().splitlines())
    minutes = [row["time/cpu_minutes"] for row in rows if row.get("time/cpu_minutes")]
    return f", {float(minutes[-1]):.0f} CPU minutes" if minutes else ""


def usage(name: str, policy: dict[str, Any], targets: list[float]) -> str:
    """Return Python code that classifies an input or plays an episode."""
    inputs = policy["signatures"]["serving_default"]["inputs"]
    if "classify" in policy["signatures"]:
        ((raw, spec),) = inputs.items()
        shape = tuple(spec["shape"][1:])
        return CLASSIFY.format(name=name, input=raw, shape=shape, dtype=spec["dtype"])
    play = functools.partial(PLAY.format, name=name, environment=environment_id(policy))
    if not {"returns_to_go", "memory"} & inputs.keys():
        return play(imports="", start="", act="policy.act(observation)")
    session = "WindowSession" if "returns_to_go" in inputs else "MemorySession"
    target = f", target_return={max(targets)}" if "returns_to_go" in inputs and targets else ""
    return play(
        imports=f"\nfrom serving.sessions import {session}",
        start=f"session = {session}(policy{target})  # one for each episode\nreward = 0.0\n",
        act="session.act(observation, reward)",
    )


def environment_id(policy: dict[str, Any]) -> str:
    """Return Gymnasium's id of a policy's environment."""
    name = policy.get("environment", "")
    ours = f"rrl_tf/{name}-v0"
    return ours if ours in gymnasium.registry else name


if __name__ == "__main__":
    command_line.run(main, Config)
