"""Configurations validate their numbers and declare which fields may change."""

import dataclasses
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import (
    EVALUATION,
    MUTABLE,
    FitConfig,
    RunConfig,
    require_fraction,
    require_not_negative,
    require_positive,
)

pytestmark = pytest.mark.tf_only


@dataclasses.dataclass(frozen=True)
class Numbers:
    first: float
    second: float = 1


numbers = st.floats(-3, 3) | st.integers(-3, 3)


@pytest.mark.parametrize(
    ("require", "is_right"),
    [
        (require_positive, lambda value: value > 0),
        (require_not_negative, lambda value: value >= 0),
        (require_fraction, lambda value: 0 <= value <= 1),
    ],
)
@given(value=numbers | st.just(float("nan")))
def test_number_out_of_bounds_is_named_with_its_value(require, is_right, value):
    if is_right(value):
        require(Numbers(1, value), "first", "second")
        return
    with pytest.raises(InvalidInput, match=r"^`second` must .*; received ") as raised:
        require(Numbers(1, value), "first", "second")
    assert str(raised.value).endswith(f"received {value}")


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"seed": 2**32},
        {"learning_rate": 0.0},
        {"learning_rate_end": -1.0},
        {"warmup_steps": -1},
        {"clip_norm": 0.0},
        {"learning_rate": "1e-3"},
        {"seed": "0"},
    ],
)
def test_fit_config_validates_its_numbers(wrong):
    (name,) = wrong
    with pytest.raises(InvalidInput, match=f"^`{name}` must .*; received"):
        FitConfig(**wrong)


def test_default_folder_is_preset_and_seed():
    assert RunConfig(preset="fast", seed=3).path == pathlib.Path("runs/fast-seed3")
    assert RunConfig(preset="fast", name="mine", runs="there").path == pathlib.Path("there/mine")


def test_roles_of_fields_survive_a_new_default():
    @dataclasses.dataclass(frozen=True)
    class Base(RunConfig):
        steps: int = dataclasses.field(default=1, metadata=MUTABLE)
        episodes: int = dataclasses.field(default=1, metadata=EVALUATION)

    @dataclasses.dataclass(frozen=True)
    class Config(Base):
        runs: str = "runs/task"
        steps: int = 5
        episodes: int = 6
        width: int = 7

    unchanged = {"name", "runs", "logger", "keep_best", "profile", "devices", "cluster", "steps"}
    assert Config().mutable_fields() == unchanged
    assert Config().evaluation_fields() == {"episodes"}
