"""Command lines of the scripts: presets, options, and errors in one line."""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import tyro

from rrl_tf.errors import InvalidInput


def run_preset(main: Callable[[Any], Any], presets: Mapping[str, Any], default: str) -> None:
    """Parse `--preset NAME` and options that override the preset, then call `main(config)`.

    Args:
        main: function of the configuration.
        presets: dict name -> configuration dataclass, whose field `preset` is that name.
        default: name of the default preset.

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
    parser.add_argument("--preset", choices=presets, default=default)
    name = parser.parse_known_args()[0].preset
    listed = f"{main.__doc__}\n\nPresets: {', '.join(presets)}. The defaults below are of {name}."
    run(main, type(presets[name]), default=presets[name], description=listed)


def run(main: Callable[[Any], Any], config_class: type, **options: Any) -> None:
    """Parse the command line, then call `main(config)`.

    A mistake of the user is one line on standard error and exit code 1; a wrong option is tyro's
    message and exit code 2. Any other exception is a bug and keeps its traceback.

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
            main(tyro.cli(config_class, **options))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of standard output has ended, as after `| head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None
    except (InvalidInput, OSError, MemoryError) as error:
        fail(error)
    except KeyboardInterrupt:
        print("stopped; the same command resumes from the last checkpoint", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None


def program() -> str:
    """Return the command that runs this script, as the user called it."""
    spec = sys.modules["__main__"].__spec__
    name = spec.name.removesuffix(".__main__") if spec else ""
    return f"python -m {name}" if name else pathlib.Path(sys.argv[0]).name


def fail(message: object, code: int = 1) -> NoReturn:
    """End the process with one line on standard error."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)
