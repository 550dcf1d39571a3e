"""The table of flags in docs/reference/server.md agrees with the server."""

import dataclasses
import re

from code_blocks import ROOT

from serving.server.flags import Flags

PAGE = (ROOT / "docs" / "reference" / "server.md").read_text()
ROW = re.compile(r"^\| `--(\w+)` \| ([^|]+) \| [^|]+ \| [^|]+ \|$", re.MULTILINE)


def written(default):
    """Return a default value as the table shows it."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str):
        return default or "none"
    return f"{default:,.0f}"


def test_table_has_every_flag_with_its_default():
    documented = {name: default.strip("` ") for name, default in ROW.findall(PAGE)}
    flags = {field.name: written(field.default) for field in dataclasses.fields(Flags)}
    del flags["process_of"]  # the server sets it for its own processes
    documented["port"] = f"{int(documented['port']):,}"  # a port has no thousands separator
    assert documented == flags
