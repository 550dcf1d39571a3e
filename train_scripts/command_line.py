"""What every script's command line does alike: presets, overrides, and errors in one line."""

import pathlib
import sys

import tyro


def run_preset(main, presets, default):
    """Parses `--preset NAME` and overrides of that preset's numbers, then calls `main(config)`.

    Args:
        main: function of the configuration.
        presets: dict name → configuration dataclass, whose field `preset` is that name.
        default: name of the preset used when none is given.

    Example:
        >>> run_preset(main, PRESETS, default="fast")
    """
    name = _requested_preset(sys.argv[1:]) or default
    if name not in presets:
        fail(f"unknown preset {name!r}, expected one of {', '.join(presets)}")
    run(main, tyro.cli(type(presets[name]), default=presets[name], description=main.__doc__))


def run_plain(main, config_class):
    """Parses the command line of a script without presets, then calls `main(config)`."""
    run(main, tyro.cli(config_class, description=main.__doc__))


def run(main, config):
    """Calls `main(config)`; a user's mistake is one line on standard error and exit code 1."""
    try:
        main(config)
    except (ValueError, OSError) as error:
        fail(error)
    except KeyboardInterrupt:
        fail("stopped; the same command goes on from the last checkpoint", code=130)


def run_path(config):
    """The run's folder: `runs`, and in it `name`, or else the preset and the seed."""
    return pathlib.Path(config.runs) / (config.name or f"{config.preset}-seed{config.seed}")


def fail(message, code=1):
    """Ends the process with one line on standard error."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)


def _requested_preset(arguments):
    for position, argument in enumerate(arguments):
        if argument.startswith("--preset="):
            return argument.partition("=")[2]
        if argument == "--preset" and position + 1 < len(arguments):
            return arguments[position + 1]
    return None
