"""A row of metrics is written whole or not at all, whatever the loggers beside do."""

import functools

import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.training import Logger, MetricsLog

pytestmark = pytest.mark.tf_only


def test_a_logger_of_ones_own(tmp_path):
    told = []

    class Mine(Logger):
        def write(self, step, metrics):
            told.append((step, metrics))

    log = MetricsLog(tmp_path, loggers=[Mine()])
    log.settings({"seed": 0})
    log.write(3, {"train/loss": 1.0})
    log.close()
    assert told == [(3, {"train/loss": 1.0})]


def test_a_resumed_run_sees_the_rows_that_it_saw_before(tmp_path):
    """Else what decides by them, as an early stop does, decides otherwise after a resume."""
    log = MetricsLog(tmp_path, loggers=())
    for step, loss in enumerate((0.12345674, 0.12345669, np.float32(0.65), 2), start=1):
        log.write(step, {"eval/loss": loss})
    assert log.rows == MetricsLog(tmp_path, loggers=()).rows
    assert log.rows[2] == {"step": 3, "eval/loss": 0.65}


def test_an_empty_file_is_said_to_be_empty(tmp_path):
    (tmp_path / "metrics.csv").touch()
    with pytest.raises(InvalidInput, match=r"metrics\.csv is not a log .*\(it is empty\); remove"):
        MetricsLog(tmp_path)


class Broken(Logger):
    """Raises at one thing, and notes what it was told."""

    def __init__(self, at):
        self.told = []
        for name in ("settings", "write", "image", "film", "close"):
            setattr(self, name, functools.partial(self._note, name, name == at))

    def _note(self, name, raises, *what):
        self.told.append(name)
        if raises:
            raise OSError("the disk is full\nand more")


@pytest.mark.parametrize("at", ["settings", "write", "image", "film", "close"])
def test_a_logger_that_raises_is_warned_of_once_and_told_no_more(tmp_path, at):
    first, second, sound = Broken(at), Broken(at), Broken(None)
    log = MetricsLog(tmp_path, loggers=[first, second, sound])
    everything = {
        "settings": lambda: log.settings({}),
        "write": lambda: log.write(1, {"train/loss": 0.5}),
        "image": lambda: log.image(1, "picture", np.zeros((6, 5, 3), "uint8")),
        "film": lambda: log.film(1, "film", "film.gif"),
        "close": log.close,
    }
    with pytest.warns(UserWarning) as warned:
        for tell in everything.values():
            tell()
    message = (
        "Broken is told nothing more, and the run goes on without it; received OSError: the disk "
        "is full"
    )
    assert [str(each.message) for each in warned] == [message] * 2
    names = list(everything)
    assert first.told == second.told == names[: names.index(at) + 1]
    assert sound.told == names
    assert (tmp_path / "metrics.csv").read_text() == "step,train/loss\n1,0.5\n"


@pytest.mark.parametrize(
    "value", ["x", None, [1, 2], 10**400], ids=["text", "none", "list", "huge"]
)
def test_a_metric_that_is_no_number_changes_nothing(tmp_path, value):
    log = MetricsLog(tmp_path, loggers=[])
    log.write(1, {"a": 0.5})
    with pytest.raises(InvalidInput, match=r"metric 'b' must be a number; received "):
        log.write(2, {"a": 1.0, "b": value})
    log.write(3, {"a": 2.0})
    assert (tmp_path / "metrics.csv").read_text() == "step,a\n1,0.5\n3,2\n"
    assert log.rows == [{"step": 1, "a": 0.5}, {"step": 3, "a": 2.0}]
