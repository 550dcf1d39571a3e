"""What every benchmark leaves behind: a table to read, and its numbers with the machine's."""

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform

from benchmarks.tables import markdown_table, write_text
from rrl_tf.errors import InvalidInput

RESULTS = pathlib.Path(__file__).parent / "results"
_PACKAGES = ("tensorflow", "keras", "torch", "numpy", "gymnasium", "minigrid")
_CPU_FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")


@dataclasses.dataclass(frozen=True)
class Report:
    """A benchmark's outcome.

    Attributes:
        title: heading.
        rows: list of dicts column → cell, strings or numbers; JSON-able.
        notes: sentences below the table.
        apart_with_amx: whether what a CPU with AMX does goes to files of its own, `<file>_amx`.
    """

    title: str
    rows: list
    notes: tuple
    apart_with_amx: bool = False

    def write(self, name, config, folder=RESULTS):
        """Prints the table and writes it, and all numbers beside it.

        Args:
            name: `room/file` of the benchmark; it names `<file>.md` and `<file>.json`.
            config: its configuration, a dataclass.
            folder: where to.
        """
        document = {
            "name": name,
            "title": self.title,
            "machine": machine(),
            "settings": dataclasses.asdict(config),
            "rows": self.rows,
            "notes": self.notes,
        }
        own = "_amx" if self.apart_with_amx and has_amx() else ""
        file = pathlib.Path(folder) / f"{name.rpartition('/')[2]}{own}.json"
        write_text(file, json.dumps(document, indent=2) + "\n")
        write_text(file.with_suffix(".md"), markdown(document))
        print(f"\n{markdown(document)}\nwritten: {file.with_suffix('')}.md, .json", flush=True)


def markdown(document):
    """The page of a written report: its table, and the command that makes it again."""
    command = f"`python -m benchmarks {document['name']}`"
    notes = "".join(f"- {note}\n" for note in document["notes"])
    return (
        f"# {document['title']}\n\n{command} on {in_words(document['machine'])}.\n\n"
        f"{markdown_table(document['rows'])}\n{notes}"
    )


def draw_up(folder=RESULTS):
    """Writes the page of every report in the folder anew, from its numbers.

    Raises:
        InvalidInput: if a file is damaged; no page is written then.
    """
    pages = {}
    for file in sorted(pathlib.Path(folder).glob("*.json")):
        try:
            pages[file.with_suffix(".md")] = markdown(json.loads(file.read_text()))
        except (ValueError, LookupError, TypeError) as error:
            raise InvalidInput(f"expected a benchmark's report in {file}; {error!r}") from error
    for page, text in pages.items():
        write_text(page, text)


def machine():
    """CPU, its vector and matrix instructions, load and versions, as a JSON-able dict."""
    name, features = _cpu()
    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "features": sorted(set(_CPU_FEATURES) & features),
        "amx": has_amx(),
        "load": round(os.getloadavg()[0], 1),
        "versions": {name: _version(name) for name in ("python", *_PACKAGES)},
    }


def in_words(facts):
    """One line about a machine, from what `machine` returned."""
    features = ", ".join(
        f"{'with' if present else 'without'} {feature}"
        for feature, present in (
            ("AMX", facts["amx"]),
            ("AVX512-BF16", "avx512_bf16" in facts["features"]),
        )
    )
    versions = facts["versions"]
    frameworks = ", ".join(f"{n} {versions[n]}" for n in ("tensorflow", "torch") if versions[n])
    return f"{facts['cpu']}, {facts['cores']} cores, {features}; load {facts['load']}; {frameworks}"


def has_amx():
    """Whether the CPU multiplies bfloat16 matrices in tiles."""
    return {"amx_tile", "amx_bf16"} <= _cpu()[1]


def _cpu():
    """Name and instruction sets of the CPU; the sets are empty where the system does not tell."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown CPU", set()
    fields = dict(reversed([map(str.strip, line.split(":", 1)) for line in lines if ":" in line]))
    return fields.get("model name", platform.machine()), set(fields.get("flags", "").split())


def _version(package):
    if package == "python":
        return platform.python_version()
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
