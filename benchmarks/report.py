"""What every benchmark leaves behind: a table to read, and its numbers with the machine's."""

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform

from rrl_tf.training import atomic_file

RESULTS = pathlib.Path(__file__).parent / "results"
_PACKAGES = ("tensorflow", "keras", "torch", "numpy", "gymnasium", "minigrid")
_CPU_FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")


@dataclasses.dataclass(frozen=True)
class Report:
    """A benchmark's outcome.

    Attributes:
        name: file name without a suffix.
        title: heading.
        columns: column titles.
        rows: list of dicts with a key for each column, strings or numbers; JSON-able.
        notes: sentences below the table.
        settings: the benchmark's configuration, a dict.
    """

    name: str
    title: str
    columns: tuple
    rows: list
    notes: tuple
    settings: dict

    def markdown(self):
        """The table as Markdown, with the command that makes it again."""
        lines = [
            f"# {self.title}",
            "",
            f"`python -m benchmarks.{self.name}` on {machine_in_words()}.",
            "",
            f"| {' | '.join(self.columns)} |",
            f"|{'---|' * len(self.columns)}",
            *(f"| {' | '.join(_cell(row[c]) for c in self.columns)} |" for row in self.rows),
            "",
            *(f"- {note}" for note in self.notes),
        ]
        return "\n".join(lines) + "\n"

    def write(self, folder=RESULTS):
        """Prints the table and writes it as `<name>.md`, and all numbers as `<name>.json`."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        document = {"machine": machine(), "settings": self.settings, "rows": self.rows}
        with atomic_file(folder / f"{self.name}.json") as draft:
            draft.write_text(json.dumps(document, indent=2) + "\n")
        with atomic_file(folder / f"{self.name}.md") as draft:
            draft.write_text(self.markdown())
        print(f"\n{self.markdown()}\nwritten: {folder / self.name}.md, .json", flush=True)


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


def machine_in_words():
    """One line about the machine."""
    facts = machine()
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


def _cell(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return "" if value is None else str(value)
