"""MkDocs hooks: API pages, formulas, the playground, and links to files outside `docs`.

The API page of a package lists all names in its `__all__`.
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
    *("offline", "interpret", "pretrained", "viz"),
)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# The playground relative to `docs`, and in the site, where the networks run in the browser.
_PLAYGROUND = "../serving/playground/static/index.html"
_SITE_PLAYGROUND = "play/index.html"
SHOWN = (
    *("doorkey-5x5", "doorkey-6x6", "doorkey-8x8", "doorkey-16x16"),
    *("dt-doorkey", "mnist-relational"),
)
_LINK = re.compile(r"(!?)\[([^\]\[]*)\]\((\.\./[^)\s]+)\)")


def public(package):
    """Return `module.name` for every public name of a package, in the order of `__all__`.

    Example:
        >>> public("viz")[0].startswith("rrl_tf.viz.")
        True
    """
    module = importlib.import_module(f"rrl_tf.{package}")
    return [_place(module, name) for name in getattr(module, "__all__", None) or _own(module)]


def _own(module):
    """Return the names of the public functions and classes of a module without `__all__`."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def _place(module, name):
    """Return the module that defines a public name, and the name."""
    value = getattr(module, name)
    if inspect.ismodule(value):
        return value.__name__
    home = getattr(value, "__module__", None)
    if not str(home).startswith("rrl_tf") or not hasattr(value, "__qualname__"):
        return f"{_home_of_constant(module, name)}.{name}"
    return f"{home}.{value.__qualname__}"


def _home_of_constant(module, name):
    """Return the module that defines a constant of a package."""
    lazy = getattr(module, "_MODULES", {})
    homes = [home for home, names in lazy.items() if name in names.split()]
    return ".".join([module.__name__, *homes])


def page(package):
    """Return the Markdown of a package's API page."""
    module = importlib.import_module(f"rrl_tf.{package}")
    blocks = "\n\n".join(f"::: {place}" for place in public(package))
    return f"# rrl_tf.{package}\n\n{inspect.getdoc(module)}\n\n{blocks}\n"


def on_files(files, config):
    """Add the API pages, the playground, and the images outside `docs` that pages show."""
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
    """Adapt the links of a page to the site, as `links_inside_site` does."""
    return links_inside_site(markdown, page.file.src_uri)


def links_inside_site(markdown, page):
    """Return the Markdown of a page in which every link has a target in the site.

    Images outside `docs` are linked to their copies, and the playground to the one in the site.
    Other links to files outside `docs` become plain text.

    Args:
        markdown: text of the page.
        page: path of the page relative to `docs`.
    """

    def adapt(link):
        is_image, text, target = link.groups()
        path = _path_in_docs(page, target)
        if not path.startswith("../"):
            return link[0]
        if not is_image and path != _PLAYGROUND:
            return text
        path = _SITE_PLAYGROUND if path == _PLAYGROUND else path.removeprefix("../")
        return f"{is_image}[{text}]({posixpath.relpath(path, posixpath.dirname(page) or '.')})"

    return _LINK.sub(adapt, markdown)


def _path_in_docs(page, target):
    """Return the path of a link's target relative to `docs`."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def on_page_content(content, **_):
    """Convert formulas to MathML, which browsers draw without a script or font."""

    def convert_formula(found):
        display = "block" if found[1] == "div" else "inline"
        return convert(html.unescape(found[2]), display=display)

    return _FORMULA.sub(convert_formula, content)
