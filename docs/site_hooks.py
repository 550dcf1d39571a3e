"""What mkdocs does with these pages beside Markdown: the reference, and links out of the folder.

The pages of the reference are not files: each is made of a package's `__all__`, so that whatever
is public is in it.
"""

import importlib
import inspect
import re

from mkdocs.structure.files import File

from rrl_tf.quiet import load_tensorflow

load_tensorflow()

PACKAGES = (
    *("layers", "models", "convert", "envs", "data", "agents", "training", "export"),
    *("presets", "viz"),
)
_OUT_OF_DOCS = re.compile(r"\[([^\]\[]+)\]\(\.\./(?!docs/)[^)]*\)")


def public(package):
    """Where every public name of a package is defined, `module.name`, in the order of `__all__`.

    Example:
        >>> public("viz")[0].startswith("rrl_tf.viz.")
        True
    """
    module = importlib.import_module(f"rrl_tf.{package}")
    return [_place(module, name) for name in getattr(module, "__all__", None) or _own(module)]


def _own(module):
    """The public functions and classes of a module without `__all__`."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def _place(module, name):
    value = getattr(module, name)
    if inspect.ismodule(value):
        return value.__name__
    home = getattr(value, "__module__", None)
    if not str(home).startswith("rrl_tf") or not hasattr(value, "__qualname__"):
        return f"{module.__name__}.{name}"  # a constant
    return f"{home}.{value.__qualname__}"


def page(package):
    """The Markdown of a package's page."""
    module = importlib.import_module(f"rrl_tf.{package}")
    blocks = "\n\n".join(f"::: {place}" for place in public(package))
    return f"# rrl_tf.{package}\n\n{inspect.getdoc(module)}\n\n{blocks}\n"


def on_files(files, config):
    """Adds the reference."""
    for package in PACKAGES:
        name = f"reference/{package}.md"
        files.append(File.generated(config, name, content=page(package)))
    return files


def on_page_markdown(markdown, **_):
    """Links to files of the repository outside of docs stay as their text."""
    return _OUT_OF_DOCS.sub(r"\1", markdown)
