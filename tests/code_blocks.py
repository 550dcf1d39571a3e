"""Find the Python blocks and shell commands in the documentation."""

import dataclasses
import pathlib
import re
import shlex
import textwrap

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced code block and the number of its first line."""

    page: pathlib.Path
    line: int
    language: str
    text: str

    @property
    def file(self):
        """The file name if the first line is `# name.py`, otherwise `None`."""
        named = re.match(r"# (\w+\.py)$", self.text.partition("\n")[0])
        return named and named[1]


@dataclasses.dataclass(frozen=True)
class Command:
    """A shell command: programs with their arguments, joined by pipes or other operators."""

    page: pathlib.Path
    line: int
    text: str
    programs: tuple[tuple[str, ...], ...]

    def __str__(self):
        return f"{self.page.name}:{self.line}"


def blocks(page):
    """Return all code blocks of a page in order."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, match.start()) + 2, match[2], textwrap.dedent(match[3]))
        for match in FENCE.finditer(text)
    ]


def commands(block):
    """Return the commands of a block. A newline ends a command unless it is quoted or escaped."""
    found, pending = [], ""
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        pending += f"{line}\n"
        try:
            words = _words(pending.replace("\\\n", ""))
        except ValueError:  # a quote is still open
            continue
        if pending.endswith("\\\n"):
            continue
        if words:
            text = textwrap.dedent(pending).strip()
            first = number - pending.count("\n") + 1
            found.append(Command(block.page, first, text, _split(words)))
        pending = ""
    assert not pending, f"{block.page.name}:{block.line}: a command without an end: {pending}"
    return found


def _words(text):
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|;&")
    lexer.whitespace_split = True
    return list(lexer)


def _split(words):
    programs = [[]]
    for word in words:
        if set(word) <= set("|;&"):
            programs.append([])
        else:
            programs[-1].append(word)
    return tuple(map(tuple, programs))
