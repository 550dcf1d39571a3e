"""The size and structure of the code: statements per package, import cycles, import closures.

    python tests/structure.py                           # statements, and import cycles
    python tests/structure.py --closure rrl_tf.agents   # what `import rrl_tf.agents` loads

A statement is an `ast.stmt` node that is no docstring, so formatting and documentation do not
count. For cycles, every import counts, also under `TYPE_CHECKING` and inside functions. A closure
follows the imports at the top level of modules, including those of `__init__` files.
"""

import argparse
import ast
import collections
import dataclasses
import functools
import graphlib
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = ("rrl_tf", "serving", "train_scripts", "benchmarks")


@dataclasses.dataclass(frozen=True)
class Module:
    """A module of this repository.

    Attributes:
        path: its file.
    """

    path: pathlib.Path

    @functools.cached_property
    def name(self):
        """Dotted name; for an `__init__` file, the name of the package."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @functools.cached_property
    def tree(self):
        """Syntax tree."""
        return ast.parse(self.path.read_text())

    @property
    def statements(self):
        """Number of statements without docstrings."""
        nodes = list(ast.walk(self.tree))
        constants = [
            n for n in nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
        ]
        return sum(isinstance(node, ast.stmt) for node in nodes) - len(constants)

    def imports(self, top_level=False):
        """Return the imported names: `package.module` or `package.module.name`."""
        nodes = self.tree.body if top_level else list(ast.walk(self.tree))
        imports = [node for node in nodes if isinstance(node, ast.Import)]
        froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        names = {alias.name for node in imports for alias in node.names}
        return names | {f"{node.module}.{alias.name}" for node in froms for alias in node.names}

    def long_functions(self, limit):
        """Return the names of functions with more than `limit` lines without their docstring."""
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        return [
            f"{self.name}.{node.name}"
            for node in ast.walk(self.tree)
            if isinstance(node, functions)
            and node.end_lineno - node.lineno + 1 - docstring_lines(node) > limit
        ]


def docstring_lines(function):
    """Return the number of lines of a function's docstring."""
    first = function.body[0]
    return 0 if ast.get_docstring(function) is None else first.end_lineno - first.lineno + 1


def read_modules(folders=FOLDERS):
    """Return dict name → `Module` of all modules in folders of this repository."""
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {module.name: module for module in map(Module, paths)}


def imported_modules(module, modules, top_level=False):
    """Return the names in `modules` that a module imports."""
    names = module.imports(top_level)
    return {name if name in modules else name.rpartition(".")[0] for name in names} & set(modules)


def import_cycle(modules):
    """Return the names of the modules in an import cycle, or an empty list.

    `__init__` files are ignored: they import their package's modules to make names public.
    """
    graph = {
        name: {
            each
            for each in imported_modules(module, modules) - {name}
            if modules[each].path.name != "__init__.py"
        }
        for name, module in modules.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def closure(name, modules):
    """Return the names of the modules that `import name` loads."""
    found, waiting = set(), {name}
    while waiting:
        current = waiting.pop()
        if current in modules and current not in found:
            found.add(current)
            waiting.add(current.rpartition(".")[0])
            waiting |= imported_modules(modules[current], modules, top_level=True)
    return found


def count_statements(modules):
    """Return a dict: statements per folder, per package in `rrl_tf`, and in total."""
    counts = collections.Counter()
    for module in modules.values():
        folder, package = (*module.name.split("."), "")[:2]
        counts.update(dict.fromkeys(("total", folder), module.statements))
        if folder == "rrl_tf" and package:
            counts[f"rrl_tf.{package}"] += module.statements
    return counts


def main():
    """Print the report that the options select."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--closure", nargs="*", default=[], metavar="MODULE")
    options, modules = parser.parse_args(), read_modules()
    if not options.closure:
        for name, count in sorted(count_statements(modules).items()):
            print(f"{count:7,}  {name}")
        print("import cycle:", " -> ".join(import_cycle(modules)) or "none")
    for start in options.closure:
        found = closure(start, modules)
        lines = sum(len(modules[name].path.read_text().splitlines()) for name in found)
        print(f"{start}: {len(found)} modules, {lines:,} lines")


if __name__ == "__main__":
    main()
