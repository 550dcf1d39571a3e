"""The table of agents that remember: every row can be trained."""

import functools
import itertools

import pytest
import tyro

from train_scripts import train_recurrent

pytestmark = pytest.mark.tf_only


def test_each_row_has_environments_for_the_loop_it_asks_for():
    from benchmarks.reproductions import memory

    make_task = functools.cache(train_recurrent.make_task)
    for task, (network, options) in itertools.product(
        memory.TASKS, {(network, options) for _, network, options in memory.VARIANTS.values()}
    ):
        config = tyro.cli(
            train_recurrent.Config,
            default=train_recurrent.PRESETS[task],
            args=[f"--network={network}", *options],
        )
        if config.loop == "graph":
            assert all(level.make_graph for level in make_task(config).levels), (task, options)
