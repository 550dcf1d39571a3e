"""Puts the measured tables into the README and the docs, so that no number is typed by hand.

    python -m benchmarks.tables

A line `<!-- table: PATH -->` is followed by the tables that stand in that file, up to the line
`<!-- end -->`; whatever was between the two is replaced.
"""

import pathlib
import re

from rrl_tf.training import atomic_file

_SLOT = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main():
    """Fills every slot of the README and of the pages in docs."""
    for page in (pathlib.Path("README.md"), *sorted(pathlib.Path("docs").glob("*.md"))):
        with atomic_file(page) as draft:
            draft.write_text(filled(page.read_text()))


def filled(text):
    """A page with the tables its slots name.

    Raises:
        FileNotFoundError: if a slot names a file that is not there.
    """

    def fill(slot):
        begin, source, end = slot.groups()
        return begin + tables_of(pathlib.Path(source).read_text()) + end

    return _SLOT.sub(fill, text)


def tables_of(text):
    """The Markdown tables in a text, without the prose around them."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("|"))


if __name__ == "__main__":
    main()
