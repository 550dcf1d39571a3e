"""Format Markdown tables, and write files that appear only when they are complete."""

from rrl_tf.training import atomic_file


def markdown_table(rows):
    """Return a Markdown table.

    Args:
        rows: list of dicts column → cell, a string or a number; a missing cell is empty.

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


def write_text(path, text):
    """Write a file that appears only when it is complete; missing folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as draft:
        draft.write_text(text)


def _cell(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
    return "" if value is None else str(value)
