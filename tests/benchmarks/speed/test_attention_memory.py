"""A column of the table ends after the first step above the limit."""

import pytest

from benchmarks.speed import attention_memory

pytestmark = pytest.mark.tf_only


def test_a_column_ends_above_the_limit(monkeypatch):
    measured = []

    def measure(entities, chunk):
        measured.append((entities, chunk))
        return (entities if chunk else entities**2), 0.5

    monkeypatch.setattr(attention_memory, "in_new_process", measure)
    config = attention_memory.Config(smallest=8, largest=64, chunk_size=4, limit_mib=100)
    rows = attention_memory.main(config).rows
    assert [row.get("all queries: MiB") for row in rows] == [64, 256, None, None]
    assert [row["chunks: MiB"] for row in rows] == [8, 16, 32, 64]
    assert len(measured) == 6


def test_a_step_has_a_gradient():
    mib, seconds = attention_memory.measure_step(64, 16)
    assert mib >= 0 and seconds > 0
