"""Parse the command lines of the scripts, and print errors in one line."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import itertools
import os
import pathlib
import shlex
import signal
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NoReturn, get_type_hints

import tyro

from rrl_tf.errors import InvalidInput
from train_scripts.seeds import train_seeds

GROUPS = {
    "run": "preset seed name runs logger profile steps epochs stop_after_perfect patience "
    "log_every checkpoint_every draw_every keep_best export_best",
    "agent": "network num_heads key_size num_rounds hidden_units hidden_activation bound_entities "
    "dtype target_period target_rate n_step discount select_at_t use_return_lower_bound burn_in "
    "unroll_length stored_state",
    "environment": "env test_env curriculum environment loop num_envs",
    "replay": "replay_capacity learning_starts priority_exponent positive_copies sequence_period "
    "priority_max_weight",
    "exploration": "epsilon_start epsilon_end epsilon_steps epsilon_exponent exploration",
    "optimiser": "optimizer loss batch_size updates_per_step learning_rate schedule warmup_steps "
    "learning_rate_end learning_rate_updates learning_rate_hold weight_decay clip_norm jit_compile",
    "evaluation": "evaluation_episodes progress_episodes evaluate_every targets noise_scales "
    "held_out held_out_seed test_seed test_graphs test_pictures validation_pictures "
    "evaluation_questions",
    "distribution": "devices cluster actors",
}
"""Groups of options in `--help`. Other options are of the environment or, without one, the task."""
ALIASES = {
    "discount": "--gamma",
    "learning_rate": "--lr",
    "steps": "--total-timesteps",
    "target_rate": "--tau",
}
"""Names of options in other libraries."""
SEEDS: dict[str, tuple[Any, Any]] = {
    "seeds": (
        Annotated[
            tuple[int, ...],
            tyro.conf.arg(help="Train each of these seeds in its own run and draw their curves."),
        ],
        (),
    ),
    "jobs": (Annotated[int, tyro.conf.arg(help="Number of `--seeds` to train at a time.")], 1),
}
"""Options that are not part of a configuration: name -> (type, default)."""


def run_preset(
    main: Callable[[Any], Any],
    presets: Mapping[str, Any],
    default: str,
    about: Mapping[str, str] | None = None,
    implied: Mapping[str, Callable[[str], str]] | None = None,
) -> None:
    """Parse `--preset NAME` and options that override the preset, then call `main(config)`.

    Args:
        main: function of the configuration.
        presets: dict name -> configuration dataclass, whose field `preset` is that name.
        default: name of the default preset.
        about: dict name -> one line about the preset, for `--help`.
        implied: dict option -> function of its value that returns the preset to use if the command
            line has the option without `--preset`.

    Example:
        >>> from unittest import mock
        >>> from rrl_tf.training import RunConfig
        >>> presets = {name: RunConfig(preset=name) for name in ("fast", "book")}
        >>> with mock.patch("sys.argv", ["train", "--preset=book", "--seed=3"]):
        ...     run_preset(lambda config: print(config.path), presets, default="fast")
        runs/book-seed3
    """
    parser = argparse.ArgumentParser(
        prog=program(), usage="%(prog)s [OPTIONS]", add_help=False, allow_abbrev=False
    )
    parser.add_argument("--preset", choices=presets)
    for option in implied or {}:
        parser.add_argument(f"--{option}")
    given = parser.parse_known_args()[0]
    for option, preset in (implied or {}).items():
        if value := getattr(given, option):
            default = preset(value)
    name, width = given.preset or default, max(map(len, presets))
    lines = [f"  {each:{width}}  {(about or {}).get(each, '')}".rstrip() for each in presets]
    title = f"Presets (the defaults below are of {name}):"
    listed = "\n".join([f"{main.__doc__}\n", title, *lines])
    run(main, type(presets[name]), default=presets[name], description=listed)


def run(main: Callable[[Any], Any], config_class: type, **options: Any) -> None:
    """Parse the command line, then call `main(config)`.

    After a mistake of the user, the process prints one line on standard error and ends with exit
    code 1. For a wrong option, it prints tyro's message and ends with exit code 2. Any other
    exception is a bug and keeps its traceback.

    Args:
        main: function of the configuration; its docstring is the description.
        config_class: dataclass of all options.
        **options: `default`, `description` and `prog` of `tyro.cli`.
    """
    # By default TensorFlow reserves all memory of a GPU when it starts.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    options = {"description": main.__doc__, "prog": program(), **options}
    try:
        try:
            config, seeds, jobs = _parse(config_class, **options)
            if seeds:
                train_seeds(config, seeds, jobs)
            else:
                main(config)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of standard output has ended, as after `| head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None
    except (InvalidInput, OSError, MemoryError) as error:
        fail(error)
    except KeyboardInterrupt:
        resumes = "; the same command resumes from the last checkpoint"
        print(f"stopped{resumes if hasattr(config_class, 'preset') else ''}", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None


def _parse(
    config_class: type, default: Any = None, **options: Any
) -> tuple[Any, tuple[int, ...], int]:
    """Return the configuration on the command line, the seeds and the number of jobs.

    `--help` shows the options of a run in groups.
    """
    if not hasattr(config_class, "preset"):  # not a `RunConfig`
        return tyro.cli(config_class, default=default, **options), (), 1
    rest = "environment" if hasattr(config_class, "num_envs") else "task"
    groups: dict[str, list[Any]] = {name: [] for name in (*GROUPS, rest)}
    groups["run"] += [(name, *option) for name, option in SEEDS.items()]
    kinds, texts = get_type_hints(config_class), _field_docs(config_class)
    for name in (field.name for field in dataclasses.fields(config_class)):
        group = next((each for each, names in GROUPS.items() if name in names.split()), rest)
        if group == "agent" and rest == "task":  # the network of a supervised script
            group = rest
        aliases = [ALIASES[name]] if name in ALIASES else None
        kind: Any = Annotated[kinds[name], tyro.conf.arg(help=texts.get(name), aliases=aliases)]
        groups[group].append((name, kind, getattr(default or config_class, name)))
    parts = {name: dataclasses.make_dataclass(name, each) for name, each in groups.items() if each}

    def merge(self):
        fields = dict(part for group in vars(self).values() for part in vars(group).items())
        several = tuple(fields.pop(name) for name in SEEDS)
        self.parsed = (config_class(**fields), *several)

    grouped = dataclasses.make_dataclass(
        "Options",
        [(name, part, dataclasses.field(default_factory=part)) for name, part in parts.items()],
        namespace={"__post_init__": merge},
    )
    return tyro.cli(grouped, config=(tyro.conf.OmitArgPrefixes,), **options).parsed


def _field_docs(config_class: type) -> dict[str, str]:
    """Return the docstring of every field of a dataclass, inherited from its base classes."""
    docs = {}
    for base in filter(dataclasses.is_dataclass, reversed(config_class.__mro__)):
        (definition,) = ast.parse(inspect.getsource(base)).body
        for field, doc in itertools.pairwise(ast.iter_child_nodes(definition)):
            match field, doc:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    docs[name] = " ".join(text.split())
    return docs


def program() -> str:
    """Return the command that the user typed, without its options."""
    typed, options = sys.orig_argv, sys.argv[1:]
    first = len(typed) - len(options)
    if typed[first:] != options or first < 2:  # called from Python
        return pathlib.Path(sys.argv[0]).name
    interpreter, *words = typed[:first]
    if words[0].startswith("-") or words[0].endswith(".py"):
        return shlex.join([pathlib.Path(interpreter).name, *words])
    return shlex.join([pathlib.Path(words[0]).name, *words[1:]])  # a command in bin/


def fail(message: object, code: int = 1) -> NoReturn:
    """Print one line on standard error and end the process."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)
