"""What every script's command line does alike: presets, overrides, and errors in one line."""

import sys

import tyro


def run(main, presets, default):
    """Parses `--preset NAME` and overrides of that preset's numbers, then calls `main(config)`.

    A mistake of the user's (a `ValueError` or `OSError`) is printed as one line on standard error,
    and the process exits with 1.

    Args:
        main: function of the configuration.
        presets: dict name → configuration dataclass, whose field `preset` is that name.
        default: name of the preset used when none is given.

    Example:
        >>> run(main, PRESETS, default="fast")
    """
    name = _requested_preset(sys.argv[1:]) or default
    if name not in presets:
        fail(f"unknown preset {name!r}, expected one of {', '.join(presets)}")
    config = tyro.cli(type(presets[name]), default=presets[name], description=main.__doc__)
    try:
        main(config)
    except (ValueError, OSError) as error:
        fail(error)
    except KeyboardInterrupt:
        fail("stopped; the same command goes on from the last checkpoint", code=130)


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
