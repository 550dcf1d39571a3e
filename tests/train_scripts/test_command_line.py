"""Mistakes of a user are one line; bugs keep their traceback."""

import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import warnings
from typing import Literal

import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.training import RunConfig
from train_scripts import command_line


@dataclasses.dataclass(frozen=True)
class Config:
    preset: str = "fast"
    steps: int = 3
    kind: Literal["a", "b"] = "a"
    draw: bool = True

    def __post_init__(self):
        if self.steps < 1:
            raise InvalidInput(f"steps must be at least 1; received {self.steps}")


PRESETS = {"fast": Config(), "slow": Config("slow", steps=30)}


def run(monkeypatch, *arguments, main=lambda config: None):
    main.__doc__ = "Does it."
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    command_line.run_preset(main, PRESETS, default="fast")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--preset", "slow", "--kind=b", "--no-draw"], Config("slow", 30, "b", False)),
        (["--preset=slow", "--preset", "fast"], PRESETS["fast"]),
        (["--preset", "fast", "--preset=slow"], PRESETS["slow"]),
    ],
)
def test_options_override_the_last_preset(monkeypatch, arguments, expected):
    configs = []
    run(monkeypatch, *arguments, main=lambda config: configs.append(config))
    assert configs == [expected]


@pytest.mark.parametrize(("before", "after"), [(None, "true"), ("false", "false")])
def test_gpu_memory_grows_by_default(monkeypatch, before, after):
    name = "TF_FORCE_GPU_ALLOW_GROWTH"
    monkeypatch.setenv(name, "")  # restores the variable after the test
    monkeypatch.delenv(name)
    if before:
        monkeypatch.setenv(name, before)
    run(monkeypatch)
    assert os.environ[name] == after


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset=slwo"], "invalid choice: 'slwo' (choose from 'fast', 'slow')"),
        (["--stesp=3"], "--stesp=3"),
        (["--steps=many"], "many"),
        (["--steps=0"], "steps must be at least 1; received 0"),
        (["--kind=c"], "invalid choice 'c'"),
    ],
)
def test_wrong_option_is_named_and_exits_with_2(monkeypatch, capsys, arguments, message):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_help_lists_the_presets(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--preset=slow", "--help")
    assert not ended.value.code
    output = capsys.readouterr().out
    assert "Presets: fast, slow. The defaults below are of slow." in output
    assert "default: 30" in output


@dataclasses.dataclass(frozen=True)
class Training(RunConfig):
    learning_rate: float = 0.5
    """Peak learning rate."""
    shift: int = 6
    """Largest shift
    in pixels."""


def test_help_of_a_run_has_groups_with_docstrings_and_defaults(monkeypatch, capsys):
    configs, default = [], Training(preset="fast", shift=3)
    for arguments in (["--help"], ["--shift=2", "--devices=4"]):
        monkeypatch.setattr(sys, "argv", ["script", *arguments])
        with contextlib.suppress(SystemExit):
            command_line.run(configs.append, Training, default=default, description="x")
    assert configs == [dataclasses.replace(default, shift=2, devices=4)]
    shown = capsys.readouterr().out
    titles = re.findall(r"(\w+) options", shown)
    assert titles == ["run", "optimiser", "distribution", "task"]
    assert "Largest shift in pixels. (default: 3)" in shown


def test_groups_have_no_option_twice():
    names = " ".join(command_line.GROUPS.values()).split()
    assert len(names) == len(set(names))


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


@pytest.mark.parametrize("arguments", [[], ["--help"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_pipe_is_no_traceback(without_tensorflow, arguments, unbuffered):
    """As after `| head -1`."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
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


@pytest.mark.parametrize(
    "error",
    [InvalidInput("a wrong number; received 3"), OSError("no room"), MemoryError("7 TiB")],
)
def test_error_of_the_user_is_one_line(monkeypatch, capsys, error):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, main=raising(error))
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"error: {error}\n"


@pytest.mark.parametrize("error", [ValueError("a bug in Keras"), KeyError("missing")])
def test_bug_keeps_its_traceback(monkeypatch, error):
    with pytest.raises(type(error)):
        run(monkeypatch, main=raising(error))


def test_warning_is_one_line(monkeypatch, capsys):
    def main(config):
        print(warnings.formatwarning("a number is odd", UserWarning, "file.py", 3, "x = 3"), end="")

    run(monkeypatch, main=main)
    assert capsys.readouterr().out == "warning: a number is odd\n"


def test_interrupted_run_reports_that_it_can_resume(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, main=raising(KeyboardInterrupt()))
    assert ended.value.code == 130
    assert "the same command resumes" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["train_scripts.train_doorkey", "benchmarks", "serving.server"])
def test_interrupt_during_imports_is_no_traceback(tmp_path, module):
    (tmp_path / "tensorflow.py").write_text(
        "import time; print('importing', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-m", module, "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A background process of a shell ignores SIGINT, and its child would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert errors == "stopped\n"
    assert process.returncode in (-signal.SIGINT, 130)


def test_importing_serving_keeps_the_excepthook():
    code = "import sys; before = sys.excepthook; import serving; assert sys.excepthook is before"
    subprocess.run([sys.executable, "-c", code], check=True)
