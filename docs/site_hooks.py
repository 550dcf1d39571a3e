"""Hooks of mkdocs: reference pages, formulas, the playground, links that leave `docs`.

Reference pages are generated from the `__all__` of each package, so that they list every public
name.
"""

import html
import importlib
import inspect
import pathlib
import posixpath
import re

from latex2mathml.converter import convert
from mkdocs.structure.files import File

from rrl_tf._tf_logging import load_tensorflow
from serving.playground.static_page import page_files

load_tensorflow()

PACKAGES = (
    *("layers", "models", "convert", "envs", "data", "export", "training", "agents"),
    *("offline", "interpret", "presets", "viz"),
)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# The playground's page in the repository, and in the site, where networks run in the browser.
_PLAYGROUND = "../serving/playground/static/index.html"
_SITE_PLAYGROUND = "play/index.html"
SHOWN = (
    *("doorkey-5x5", "doorkey-6x6", "doorkey-8x8", "doorkey-16x16"),
    *("dt-doorkey", "mnist-relational"),
)
_LINK = re.compile(r"(!?)\[([^\]\[]*)\]\((\.\./[^)\s]+)\)")


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
    """Add reference pages, the playground, and images that pages show from outside `docs`."""
    root = pathlib.Path(config.docs_dir).parent
    images = set()
    for file in files.documentation_pages():
        for is_image, _, target in _LINK.findall(file.content_string):
            path = _path_in_docs(file.src_uri, target)
            if is_image and path.startswith("../"):
                images.add(path.removeprefix("../"))
    for image in sorted(images):
        files.append(File.generated(config, image, abs_src_path=str(root / image)))
    for package in PACKAGES:
        name = f"reference/{package}.md"
        files.append(File.generated(config, name, content=page(package)))
    for name, content in page_files(SHOWN, about="../how_to/playground/").items():
        files.append(File.generated(config, f"play/{name}", content=content))
    return files


def on_page_markdown(markdown, page, **_):
    """Redirect links that leave `docs`: to the site's playground, to copied images, or to text."""
    return links_inside_site(markdown, page.file.src_uri)


def links_inside_site(markdown, page):
    """Return the Markdown of a page without links to files outside the site.

    Args:
        markdown: text of the page.
        page: path of the page in `docs`.
    """

    def redirected(link):
        is_image, text, target = link.groups()
        path = _path_in_docs(page, target)
        if not path.startswith("../"):
            return link[0]
        if not is_image and path != _PLAYGROUND:
            return text
        path = _SITE_PLAYGROUND if path == _PLAYGROUND else path.removeprefix("../")
        return f"{is_image}[{text}]({posixpath.relpath(path, posixpath.dirname(page) or '.')})"

    return _LINK.sub(redirected, markdown)


def _path_in_docs(page, target):
    """Return the target of a page's link relative to `docs`."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def on_page_content(content, **_):
    """Formulas become MathML, which browsers draw without fetching anything."""

    def drawn(found):
        display = "block" if found[1] == "div" else "inline"
        return convert(html.unescape(found[2]), display=display)

    return _FORMULA.sub(drawn, content)
