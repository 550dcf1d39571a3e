"""What every script's command line does alike: presets, overrides, and errors in one line."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import functools
import io
import itertools
import os
import pathlib
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import tyro

from rrl_tf.errors import InvalidInput


def run_preset(main: Callable[[Any], Any], presets: Mapping[str, Any], default: str) -> None:
    """Parses `--preset NAME` and overrides of that preset's numbers, then calls `main(config)`.

    Args:
        main: function of the configuration.
        presets: dict name → configuration dataclass, whose field `preset` is that name.
        default: name of the preset used when none is given.

    Example:
        >>> from unittest import mock
        >>> from rrl_tf.training import RunConfig
        >>> presets = {name: RunConfig(preset=name) for name in ("fast", "book")}
        >>> with mock.patch("sys.argv", ["train", "--preset=book", "--seed=3"]):
        ...     run_preset(lambda config: print(config.path), presets, default="fast")
        runs/book-seed3
    """
    name = _requested_preset(sys.argv[1:]) or default
    if name not in presets:
        fail(f"unknown preset {name!r}; expected one of {', '.join(presets)}")
    listed = f"{main.__doc__}\n\nPresets: {', '.join(presets)}. The defaults below are of {name}."
    run(main, type(presets[name]), default=presets[name], description=listed)


def run(main: Callable[[Any], Any], config_class: type, **options: Any) -> None:
    """Parses the command line, then calls `main(config)`.

    A user's mistake is one line on standard error and exit code 1, an unknown option exit code 2;
    any other exception is a bug and keeps its traceback. A warning is one line, too.

    Args:
        main: function of the configuration; its docstring is the description.
        config_class: dataclass of all options.
        **options: `default`, `description` and `prog`, as `tyro.cli` takes them.
    """
    config: Any = None
    # Otherwise TensorFlow takes all of a GPU's memory when it begins, whatever it needs.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    with quiet_when_nobody_reads(), _warnings_in_a_line():
        try:
            told = {"description": main.__doc__, "prog": program(), **options}
            config = _parsed(config_class, told)
            main(config)
        except BrokenPipeError:
            raise
        except (InvalidInput, OSError) as error:
            fail(error)
        except _out_of_memory() as error:
            fail(
                f"not enough memory ({_first_line(error)}); a number is too large; received "
                f"{_largest(config)}, ..."
            )
        except KeyboardInterrupt:
            print("stopped; the same command goes on from the last checkpoint", file=sys.stderr)
            raise SystemExit(130) from None


@contextlib.contextmanager
def quiet_when_nobody_reads() -> Iterator[None]:
    """Ends the process quietly when standard output has lost its reader, as after `| head -1`."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # What is still to be written goes nowhere, or Python would complain at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None


@contextlib.contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Where in the code a warning was given says nothing to who runs a script."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def _out_of_memory():
    """What NumPy raises, and TensorFlow, if it is there."""
    tensorflow = sys.modules.get("tensorflow")
    return (MemoryError, tensorflow.errors.ResourceExhaustedError) if tensorflow else MemoryError


def _largest(config):
    """The three largest sizes in a configuration, among which the reason is to be found."""
    values = vars(config) if dataclasses.is_dataclass(config) else {}
    sizes = {k: v for k, v in values.items() if type(v) is int and k != "seed"}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    return ", ".join(f"{name} {sizes[name]:,}" for name in largest)


def _first_line(error):
    """What could not be allocated; TensorFlow says it somewhere among other things."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line.strip() for line in lines if "allocat" in line), lines[0])


def _parsed(config_class, options):
    """The configuration; what tyro reports in a box is told in one line."""
    parse = functools.partial(tyro.cli, config_class, return_unknown_args=True, **options)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            config, unknown = parse()
    except SystemExit as ended:
        if ended.code:
            message = _sentence(_box(parse))
            # What a configuration says of itself when it is made.
            own = re.sub(r"^error parsing \w+: ", "", message)
            fail(own, code=2 if own == message else 1)
        raise
    if unknown:
        fail(_unknown(unknown[0], config_class), code=2)
    return config


def _box(parse):
    """What tyro says of a command line that it refuses, in a box so wide that nothing is wrapped.

    Where it wraps it cuts words and numbers, and adds spaces; help keeps the terminal's width.
    """
    said, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100000"
    try:
        with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
            parse()
    finally:
        del os.environ["COLUMNS"]
        os.environ.update({} if before is None else {"COLUMNS": before})
    return said.getvalue()


def program() -> str:
    """The command that runs this script, whichever was used to call it."""
    spec = sys.modules["__main__"].__spec__
    name = spec.name.removesuffix(".__main__") if spec else ""
    return f"python -m {name}" if name else pathlib.Path(sys.argv[0]).name


def _sentence(box):
    """The message in a box of tyro's, drawn with lines or, where there are none, with dashes."""
    lines = [line.strip("│╭╮╰╯ ") for line in box.splitlines()[1:]]  # the first is a title
    lines = [line if line.strip("─-") else "" for line in lines]
    message = " ".join(itertools.takewhile(bool, itertools.dropwhile(lambda line: not line, lines)))
    message = message[:1].lower() + message[1:] or box.strip()
    if found := re.fullmatch(r"error parsing (--\S+): .*?(\[.*\]|'.*'|\".*\")\.?", message):
        option, given = found[1], ast.literal_eval(found[2])
        [kind, *_] = [line.removeprefix(option) for line in lines if line.startswith(f"{option} ")]
        words = given if isinstance(given, str) else " ".join(given)
        return f"{option} must be {_kind_in_words(kind)}; received {words!r}"
    if found := re.match(
        r"invalid choice (.+) for argument '(.+)'\. Expected one of \((.+)\)", message
    ):
        return f"{found[2]} must be one of {found[3]}; received {found[1]}"
    if found := re.match(r"missing value for argument '(.+)'\.", message):
        return f"{found[1]} must have a value; received none"
    return message


def _kind_in_words(kind):
    """`a whole number or None` for tyro's `{None}|INT`."""
    one, many = ("a whole number", "whole numbers") if "INT" in kind else ("a number", "numbers")
    return (many if "..." in kind else one) + (" or None" if "None" in kind else "")


def _unknown(argument, config_class):
    options = [
        f"--{prefix}{field.name.replace('_', '-')}"
        for field in dataclasses.fields(config_class)
        for prefix in (("", "no-") if field.type in (bool, "bool") else ("",))
    ]
    name = argument.partition("=")[0]
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.7)
    hint = f"did you mean {close[0]}?" if close else "--help lists all"
    return f"unknown option {name!r}; {hint}"


def fail(message: object, code: int = 1) -> NoReturn:
    """Ends the process with one line on standard error."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)


def _requested_preset(arguments):
    """The preset named last, as of every option the last value counts; or None."""
    requested = None
    for position, argument in enumerate(arguments):
        if argument.startswith("--preset="):
            requested = argument.partition("=")[2]
        if argument == "--preset" and position + 1 < len(arguments):
            requested = arguments[position + 1]
    return requested
