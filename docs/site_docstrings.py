"""Griffe extension that turns the examples in docstrings into fenced code blocks."""

import re

import griffe

_EXAMPLE = re.compile(r"^( *)>>> (?:.*\n?)(?:\1.*\S.*\n?)*", re.MULTILINE)


def fenced(text):
    """Return a docstring with fences around each example, which ends at an empty line.

    Example:
        >>> print(fenced("Example:"))
        Example:
    """

    def block(match):
        indent, code = match[1], match[0].rstrip("\n")
        return f"{indent}```pycon\n{code}\n{indent}```\n"

    return _EXAMPLE.sub(block, text)


class Examples(griffe.Extension):
    """Puts fences around the examples of every docstring."""

    def on_object(self, *, obj, **_):
        """Change the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
