"""The table of agents that remember: every row can be trained."""

import itertools

import pytest
import tyro

from train_scripts import train_recurrent

pytestmark = pytest.mark.tf_only


def test_each_row_has_environments_for_the_loop_it_asks_for():
    from benchmarks.reproductions import memory

    options = {options for _, _, options in memory.VARIANTS.values()}
    asked = {}
    for task, more in itertools.product(memory.TASKS, options):
        preset = train_recurrent.PRESETS[task]
        config = tyro.cli(train_recurrent.Config, default=preset, args=list(more))
        asked[task, config.loop, config.frames] = config
    in_graph = [config for (_, loop, _), config in asked.items() if loop == "graph"]
    assert in_graph
    for config in in_graph:
        task = train_recurrent.make_task(config)
        assert all(level.make_graph for level in task.levels), config
