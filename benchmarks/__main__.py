"""Runs one benchmark: every claim of the docs has a command.

python -m benchmarks                              # names all of them
python -m benchmarks speed/update --presets fast  # measures, and writes the table
python -m benchmarks reproductions/doorkey        # trains what is missing, draws up the tables
python -m benchmarks tables                       # draws up the tables of the results anew
"""

import ast
import functools
import importlib
import pathlib
import sys

from benchmarks import headlines, measure, report, tables
from rrl_tf.errors import InvalidInput
from train_scripts import command_line

FOLDER = pathlib.Path(__file__).parent
ROOMS = ("speed", "reproductions")


def main():
    """Runs what the first argument names, with the options that follow."""
    name, *options = sys.argv[1:] or [""]
    if name == "tables":
        draw_up(options)
    elif name in names():
        run(name, options)
    else:
        print(__doc__, *(f"{each}: {sentence(each)}" for each in names()), sep="\n")
        if name not in ("", "-h", "--help"):
            command_line.fail(f"unknown benchmark {name!r}, expected one of those above")


def draw_up(options):
    """Draws up all tables from the results there are; where one is missing, nothing is written."""
    if options:
        command_line.fail(f"tables takes no options; received {' '.join(options)}")
    try:
        tables.check_slots()
        report.draw_up()
    except InvalidInput as error:
        command_line.fail(error)
    headlines.draw_up()
    tables.fill()


def names():
    """`room/file` of every benchmark."""
    files = (file for room in ROOMS for file in sorted((FOLDER / room).glob("[!_]*.py")))
    return [f"{file.parent.name}/{file.stem}" for file in files]


def sentence(name):
    """What a benchmark is about, without importing it: some need PyTorch."""
    return ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())).partition("\n")[0]


def run(name, options):
    """Runs a benchmark; if it returns a `Report`, writes it."""
    try:
        module = importlib.import_module(f"benchmarks.{name.replace('/', '.')}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        command_line.fail(f"{name} compares with PyTorch; pip install torch==2.13.0")
    sys.argv = [f"python -m benchmarks {name}", *options]

    @functools.wraps(module.main)
    def measured(config):
        if name.startswith("speed/"):
            measure.use_one_thread()
        outcome = module.main(config)
        if outcome is not None:
            outcome.write(name, config)

    command_line.run(measured, module.Config, prog=sys.argv[0])


if __name__ == "__main__":
    main()
