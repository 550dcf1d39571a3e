"""What the reference does with docstrings: examples become blocks of code."""

import re

import griffe

_EXAMPLE = re.compile(r"^( *)>>> (?:.*\n?)(?:\1.*\S.*\n?)*", re.MULTILINE)


def fenced(text):
    """A docstring whose examples, each up to an empty line, stand between fences.

    Example:
        >>> print(fenced("Example:"))
        Example:
    """

    def block(match):
        indent, code = match[1], match[0].rstrip("\n")
        return f"{indent}```pycon\n{code}\n{indent}```\n"

    return _EXAMPLE.sub(block, text)


class Examples(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_object(self, *, obj, **_):
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
