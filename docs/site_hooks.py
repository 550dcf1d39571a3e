"""What mkdocs does beside Markdown: the reference, formulas, the playground, links out of docs.

The pages of the reference are not files: each is made of a package's `__all__`, so that whatever
is public is in it.
"""

import html
import importlib
import inspect
import pathlib
import re

from latex2mathml.converter import convert
from mkdocs.structure.files import File

from rrl_tf._tf_logging import load_tensorflow
from serving.playground.static_page import page_files

load_tensorflow()

PACKAGES = (
    *("layers", "models", "convert", "envs", "data", "export", "training", "agents"),
    *("offline", "interpret", "pretrained", "viz"),
)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# The playground's page in the repository, and in the site, where networks run in the browser.
_PAGE, _PLAY = "../serving/playground/static/index.html", "play/index.html"
SHOWN = (
    *("doorkey-5x5", "doorkey-6x6", "doorkey-8x8", "doorkey-16x16"),
    *("dt-doorkey", "mnist-relational"),
)
_IMAGE_OUT_OF_DOCS = re.compile(r"(!\[[^\]\[]*\]\()\.\./(?!docs/)([^)\s]+)")
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
        return f"{_home_of_constant(module, name)}.{name}"
    return f"{home}.{value.__qualname__}"


def _home_of_constant(module, name):
    """The module that a package takes a constant from."""
    lazy = getattr(module, "_MODULES", {})
    homes = [home for home, names in lazy.items() if name in names.split()]
    return ".".join([module.__name__, *homes])


def page(package):
    """The Markdown of a package's page."""
    module = importlib.import_module(f"rrl_tf.{package}")
    blocks = "\n\n".join(f"::: {place}" for place in public(package))
    return f"# rrl_tf.{package}\n\n{inspect.getdoc(module)}\n\n{blocks}\n"


def on_files(files, config):
    """Adds the reference, the playground, and images that pages show from out of docs."""
    root = pathlib.Path(config.docs_dir).parent
    shown = [
        _IMAGE_OUT_OF_DOCS.findall(page.content_string) for page in files.documentation_pages()
    ]
    for image in sorted({image for images in shown for _, image in images}):
        files.append(File.generated(config, image, abs_src_path=str(root / image)))
    for package in PACKAGES:
        name = f"reference/{package}.md"
        files.append(File.generated(config, name, content=page(package)))
    for name, content in page_files(SHOWN, about="../playground/").items():
        files.append(File.generated(config, f"play/{name}", content=content))
    return files


def on_page_markdown(markdown, **_):
    """Links to the playground lead to the site's, as images; to other files they stay as text."""
    markdown = _IMAGE_OUT_OF_DOCS.sub(r"\1\2", markdown.replace(_PAGE, _PLAY))
    return _OUT_OF_DOCS.sub(r"\1", markdown)


def on_page_content(content, **_):
    """Formulas become MathML, which browsers draw without fetching anything."""

    def drawn(found):
        display = "block" if found[1] == "div" else "inline"
        return convert(html.unescape(found[2]), display=display)

    return _FORMULA.sub(drawn, content)
