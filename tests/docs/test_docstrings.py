"""The examples in docstrings run in the namespace of their module."""

import doctest
import importlib
import pkgutil

import pytest

import rrl_tf
import serving
import train_scripts

SLOW = {
    "rrl_tf.agents.loop",
    "rrl_tf.agents.train",
}
"""Modules whose examples train. Their own tests train too, so the fast tests skip the examples."""


def _modules():
    for package in (rrl_tf, serving, train_scripts):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                marks = [pytest.mark.slow] if module.name in SLOW else []
                yield pytest.param(module.name, marks=marks)


@pytest.mark.parametrize("name", _modules())
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some of them write files
    failures, _ = doctest.testmod(importlib.import_module(name), report=True)
    assert failures == 0
