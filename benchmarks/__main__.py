"""Run one benchmark, or update the tables of the docs.

python -m benchmarks                              # lists the benchmarks
python -m benchmarks speed/update --presets fast  # measures, and writes the table
python -m benchmarks reproductions/doorkey        # trains missing runs, and writes the tables
python -m benchmarks tables                       # updates all tables from the stored results
"""

import ast
import importlib
import pathlib
import sys

from benchmarks import measure, pages
from rrl_tf.errors import InvalidInput
from train_scripts import command_line

FOLDER = pathlib.Path(__file__).parent
GROUPS = ("speed", "reproductions")


def main():
    """Run the benchmark that the first argument names, with the options that follow."""
    name, *options = sys.argv[1:] or [""]
    if name == "tables":
        update_tables(options)
    elif name in names():
        sys.argv = [f"python -m benchmarks {name}", *options]
        run(name)
    else:
        print(__doc__, *(f"{each}: {summary(each)}" for each in names()), sep="\n")
        if name not in ("", "-h", "--help"):
            command_line.fail(f"unknown benchmark {name!r}; expected one of those above")


def update_tables(options):
    """Update all tables from the stored results; if one is missing, no page changes."""
    if options:
        command_line.fail(f"tables takes no options; received {' '.join(options)}")
    try:
        pages.fill()
    except (InvalidInput, OSError) as error:
        command_line.fail(error)


def names():
    """Return `group/file` of every benchmark."""
    files = (file for group in GROUPS for file in sorted((FOLDER / group).glob("[!_]*.py")))
    return [f"{file.parent.name}/{file.stem}" for file in files]


def summary(name):
    """Return the first line of a benchmark's docstring without importing it."""
    return ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())).partition("\n")[0]


def run(name):
    """Run a benchmark with the options in `sys.argv`, and update the tables of the docs."""
    try:
        module = importlib.import_module(f"benchmarks.{name.replace('/', '.')}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        command_line.fail(f"{name} needs PyTorch: pip install torch==2.13.0")
    if hasattr(module, "REPRODUCTION"):

        def main(config):
            module.REPRODUCTION.main(config)
            pages.fill()
    else:

        def main(config):
            measure.use_one_thread()
            module.main(config).write(name, config)

    config_class = module.Config if hasattr(module, "Config") else module.REPRODUCTION.config_class
    command_line.run(main, config_class, prog=sys.argv[0], description=module.__doc__)


if __name__ == "__main__":
    main()
