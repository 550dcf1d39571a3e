"""`rrl-train TASK ...`, or `python -m train_scripts TASK ...`: the training script of a task."""

from __future__ import annotations

import ast
import difflib
import pathlib
import runpy
import sys

from train_scripts.command_line import fail, program, quiet_when_nobody_reads

PREFIX = "train_"


def main() -> None:
    """Runs the script of the task that the command line names; without one, lists all."""
    name, *arguments = sys.argv[1:] or ["--help"]
    scripts = tasks()
    if name in ("-h", "--help"):
        with quiet_when_nobody_reads():
            print(_usage(scripts))
    elif name not in scripts:
        fail(_unknown(name, scripts), code=2)
    else:
        sys.argv[1:] = arguments
        sys.path.append("")  # a user's own module lies in the current folder, as for python -m
        runpy.run_module(f"train_scripts.{scripts[name].stem}", run_name="__main__", alter_sys=True)


def tasks() -> dict[str, pathlib.Path]:
    """Task → its script, a file `train_<task>.py` beside this one.

    Example:
        >>> tasks()["doorkey"].name
        'train_doorkey.py'
    """
    files = sorted(pathlib.Path(__file__).parent.glob(f"{PREFIX}*.py"))
    return {file.stem.removeprefix(PREFIX).replace("_", "-"): file for file in files}


def _usage(scripts):
    width = max(map(len, scripts))
    lines = [f"  {name:{width}}  {_first_line(file)}" for name, file in scripts.items()]
    end = f"{program()} TASK --help lists the options of a task."
    return "\n".join((f"usage: {program()} TASK [OPTIONS]", "", "Tasks:", *lines, "", end))


def _first_line(script):
    """What the script's docstring begins with; importing it would take seconds."""
    return (ast.get_docstring(ast.parse(script.read_text())) or "").partition("\n")[0]


def _unknown(name, scripts):
    close = difflib.get_close_matches(name, scripts, n=1)
    hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(scripts)}"
    return f"unknown task {name!r}; {hint}"


if __name__ == "__main__":
    main()
