"""Run the training script of a task: `rrl-train TASK ...` or `python -m train_scripts TASK ...`."""

from __future__ import annotations

import argparse
import ast
import pathlib
import runpy
import sys

from train_scripts.command_line import program


def main() -> None:
    """Run the script of the task on the command line, or list all tasks if none is given."""
    files = sorted(pathlib.Path(__file__).parent.glob("train_*.py"))
    tasks = {file.stem.removeprefix("train_").replace("_", "-"): file for file in files}
    width = max(map(len, tasks))
    parser = argparse.ArgumentParser(
        prog=program(),
        usage="%(prog)s TASK [OPTIONS]",
        description="Tasks:\n"
        + "\n".join(f"  {task:{width}}  {_first_line(file)}" for task, file in tasks.items()),
        epilog="%(prog)s TASK --help lists the options of a task.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("task", choices=tasks, metavar="TASK", help=argparse.SUPPRESS)
    parser.add_argument("options", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments = parser.parse_args(sys.argv[1:] or ["--help"])
    sys.argv[1:] = arguments.options
    sys.path.append("")  # finds the user's modules in the current folder, like python -m
    module = f"train_scripts.{tasks[arguments.task].stem}"
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _first_line(script):
    """Return the first line of a script's docstring without importing TensorFlow."""
    return (ast.get_docstring(ast.parse(script.read_text())) or "").partition("\n")[0]


if __name__ == "__main__":
    main()
