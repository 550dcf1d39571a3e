"""Users' mistakes are one line; bugs keep their traceback."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import warnings
from typing import Literal

import pytest

from rrl_tf.errors import InvalidInput
from train_scripts import command_line


@dataclasses.dataclass(frozen=True)
class Config:
    """Numbers."""

    preset: str = "fast"
    """Where the numbers come from."""
    steps: int = 3
    """How many."""
    kind: Literal["a", "b"] = "a"
    """Which."""
    draw: bool = True
    """Whether to draw."""
    rate: float = 0.1
    """How fast."""
    max_steps: int | None = None
    """How many at most."""
    sizes: tuple[int, ...] = ()
    """How large."""

    def __post_init__(self):
        if self.steps < 1:
            raise InvalidInput(f"steps must be at least 1; received {self.steps}")
        if -1 in self.sizes:
            raise InvalidInput(f"sizes must be greater than 0; received {self.sizes}")


PRESETS = {"fast": Config(), "slow": Config("slow", steps=30)}


def run(monkeypatch, *arguments, main=lambda config: None):
    main.__doc__ = "Does it."
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    command_line.run_preset(main, PRESETS, default="fast")


def test_a_preset_is_overridden(monkeypatch):
    seen = []
    run(monkeypatch, "--preset", "slow", "--kind=b", "--no-draw", main=lambda c: seen.append(c))
    assert seen == [Config("slow", 30, "b", False)]


def test_of_two_presets_the_last_one_counts(monkeypatch):
    seen = []
    run(monkeypatch, "--preset=slow", "--preset", "fast", main=lambda c: seen.append(c))
    run(monkeypatch, "--preset", "fast", "--preset=slow", main=lambda c: seen.append(c))
    assert seen == [PRESETS["fast"], PRESETS["slow"]]


@pytest.mark.parametrize(("before", "after"), [(None, "true"), ("false", "false")])
def test_a_script_takes_of_a_gpu_what_it_needs_unless_told_otherwise(monkeypatch, before, after):
    name = "TF_FORCE_GPU_ALLOW_GROWTH"
    monkeypatch.setenv(name, "")  # so that it is put back
    monkeypatch.delenv(name)
    if before:
        monkeypatch.setenv(name, before)
    run(monkeypatch, main=lambda c: None)
    assert os.environ[name] == after


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--preset=slwo"], 1, "unknown preset 'slwo'; expected one of fast, slow"),
        (["--stesp=3"], 2, "unknown option '--stesp'; did you mean --steps?"),
        (["--no-darw"], 2, "unknown option '--no-darw'; did you mean --no-draw?"),
        (["--qqqqqq"], 2, "unknown option '--qqqqqq'; --help lists all"),
        (["--steps=many"], 2, "--steps must be a whole number; received 'many'"),
        (["--steps", "it's"], 2, """--steps must be a whole number; received "it's\""""),
        (["--steps"], 2, "--steps must have a value; received none"),
        (["--rate=x"], 2, "--rate must be a number; received 'x'"),
        (["--max-steps", "x"], 2, "--max-steps must be a whole number or None; received 'x'"),
        (["--sizes", "5", "b"], 2, "--sizes must be whole numbers; received '5 b'"),
        (["--steps=0"], 1, "steps must be at least 1; received 0"),
        (["--kind=c"], 2, "--kind must be one of 'a', 'b'; received 'c'"),
    ],
)
def test_a_mistake_is_one_line(monkeypatch, capsys, arguments, code, message):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *arguments)
    assert ended.value.code == code
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("error: ") and len(said.splitlines()) == 1


@pytest.mark.parametrize("columns", [*range(40, 80), 200])
def test_a_mistake_is_told_as_it_was_raised_however_narrow_the_terminal(
    monkeypatch, capsys, columns
):
    """Once, -5 at the beginning of a wrapped line was 5, and tuples were cut in two."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for arguments, received in (
        (["--steps=-5"], "steps must be at least 1; received -5"),
        (
            ["--sizes", "-1", "23"],
            "sizes must be greater than 0; received (-1, 23)",
        ),
    ):
        with pytest.raises(SystemExit):
            run(monkeypatch, *arguments)
        assert capsys.readouterr().err == f"error: {received}\n"
    assert os.environ["COLUMNS"] == str(columns)


def test_help_lists_the_presets(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--preset=slow", "--help")
    assert not ended.value.code
    said = capsys.readouterr().out
    assert "Presets: fast, slow. The defaults below are of slow." in said
    assert "default: 30" in said


SCRIPT = """
import dataclasses
from train_scripts import command_line

@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 3

def main(config):
    '''Does it.'''
    for step in range(100_000):
        print(step)

command_line.run(main, Config)
"""


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        (["-c", SCRIPT, "--help"], ""),
        (["-c", SCRIPT, "--help"], "1"),
        (["-c", SCRIPT], ""),
        (["-c", SCRIPT], "1"),
        (["-m", "train_scripts", "--help"], ""),
    ],
)
def test_a_reader_that_has_gone_is_no_traceback(without_tensorflow, command, unbuffered):
    """As after `| head -1`."""
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=pathlib.Path(__file__).parents[2],
        env={**without_tensorflow, "PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode in (1, 141)  # 1 is rich's, which writes --help


def raising(error):
    def main(config):
        raise error

    return main


@pytest.mark.parametrize("error", [InvalidInput("a wrong number; received 3"), OSError("no room")])
def test_what_the_user_can_mend_is_one_line(monkeypatch, capsys, error):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, main=raising(error))
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"error: {error}\n"


def test_a_warning_is_one_line_as_long_as_a_script_runs(monkeypatch, capsys):
    """Once, file and source line of who warned stood around it."""
    before = warnings.formatwarning

    def main(config):
        print(warnings.formatwarning("a number is odd", UserWarning, "file.py", 3, "x = 3"), end="")

    run(monkeypatch, main=main)
    assert capsys.readouterr().out == "warning: a number is odd\n"
    assert warnings.formatwarning is before


@pytest.mark.parametrize("error", [ValueError("a bug in Keras"), KeyError("missing")])
def test_a_bug_keeps_its_traceback(monkeypatch, error):
    with pytest.raises(type(error)):
        run(monkeypatch, main=raising(error))


@pytest.mark.tf_only
def test_what_does_not_fit_in_memory_is_one_line_with_the_largest_numbers(monkeypatch, capsys):
    import tensorflow as tf

    for error in (
        MemoryError("Unable to allocate 7 TiB"),
        tf.errors.ResourceExhaustedError(
            None, None, "Graph execution error:\n\nUnable to allocate 7 TiB\n"
        ),
    ):
        with pytest.raises(SystemExit) as ended:
            run(monkeypatch, "--steps=1000000000000", main=raising(error))
        assert ended.value.code == 1
        said = capsys.readouterr().err
        assert said.startswith("error: not enough memory (Unable to allocate 7 TiB); ")
        assert said.endswith("received steps 1,000,000,000,000, ...\n")


def test_an_interrupted_run_says_that_it_goes_on(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, main=raising(KeyboardInterrupt()))
    assert ended.value.code == 130
    assert "the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["train_scripts.train_doorkey", "benchmarks", "serving.server"])
def test_a_command_that_still_imports_is_stopped_without_a_traceback(tmp_path, module):
    (tmp_path / "tensorflow.py").write_text(
        "import time; print('importing', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-m", module, "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell starts behind its back ignores it, and so would the child.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert errors == "stopped\n"
    assert process.returncode in (-signal.SIGINT, 130)


def test_who_imports_the_commands_keeps_pythons_hook():
    code = "import sys; before = sys.excepthook; import serving; assert sys.excepthook is before"
    subprocess.run([sys.executable, "-c", code], check=True)
