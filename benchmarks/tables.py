"""Markdown tables, and their places in the README and the docs: no number is typed by hand.

A line `<!-- table: PATH -->` is followed by the tables that stand in that file, up to the line
`<!-- end -->`; whatever was between the two is replaced. `python -m benchmarks tables` does it.
"""

import os
import pathlib
import re

from rrl_tf.errors import InvalidInput
from rrl_tf.training import atomic_file

_SLOT = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown_table(rows):
    """A Markdown table.

    Args:
        rows: list of dicts column → cell, a string or a number; what a row leaves out is empty.

    Example:
        >>> print(markdown_table([{"who": "ours", "ms": 0.12345}, {"who": "theirs"}]), end="")
        | who | ms |
        |---|---|
        | ours | 0.123 |
        | theirs |  |
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [" | ".join(_cell(row.get(column)) for column in columns) for row in rows]
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
    return head + "".join(f"| {line} |\n" for line in lines)


def fill():
    """Fills every slot of the README and of the pages in docs, or none of them."""
    for page, text in [(page, filled(page.read_text())) for page in pages()]:
        write_text(page, text)


def pages():
    """The README, and the pages in docs."""
    return pathlib.Path("README.md"), *sorted(pathlib.Path("docs").glob("*.md"))


def check_slots():
    """Raises an `InvalidInput` that names what slots of the pages need and is not there."""
    if not pathlib.Path("README.md").exists():
        raise InvalidInput(
            f"expected to run in the project's folder, beside its README.md; received {os.getcwd()}"
        )
    sources = {source for page in pages() for _, source, _ in _SLOT.findall(page.read_text())}
    missing = sorted(source for source in sources if not pathlib.Path(source).exists())
    if missing:
        raise InvalidInput(f"expected the tables that pages show; missing {', '.join(missing)}")


def filled(text):
    """A page with the tables its slots name.

    Raises:
        FileNotFoundError: if a slot names a file that is not there.
    """

    def insert(slot):
        begin, source, end = slot.groups()
        return begin + tables_of(pathlib.Path(source).read_text()) + end

    return _SLOT.sub(insert, text)


def tables_of(text):
    """The Markdown tables in a text, without the prose around them."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("|"))


def write_text(path, text):
    """Writes a file that appears complete or not at all, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as draft:
        draft.write_text(text)


def _cell(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
    return "" if value is None else str(value)
