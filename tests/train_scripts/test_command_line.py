"""Errors of the user are printed in one line; bugs keep their traceback."""

import contextlib
import dataclasses
import importlib
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
from train_scripts import command_line, interpret


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


def run(monkeypatch, *arguments, main=lambda config: None, **options):
    main.__doc__ = "Does it."
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    command_line.run_preset(main, PRESETS, default="fast", **options)


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
    monkeypatch.setenv(name, "")  # makes pytest restore the variable after the test
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


def test_help_lists_the_presets_with_one_line_each(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--preset=slow", "--help", about={"slow": "takes ten times as long"})
    assert not ended.value.code
    output = capsys.readouterr().out
    assert "Presets (the defaults below are of slow):\n" in output
    assert "\n  fast\n  slow  takes ten times as long\n" in output
    assert "default: 30" in output


@pytest.mark.parametrize(
    ("arguments", "preset"),
    [
        (["--kind=b"], "slow"),
        (["--kind", "b", "--preset", "fast"], "fast"),
        ([], "fast"),
    ],
)
def test_option_implies_a_preset_unless_one_is_given(monkeypatch, arguments, preset):
    configs, implied = [], {"kind": lambda kind: {"b": "slow"}[kind]}
    run(monkeypatch, *arguments, main=lambda config: configs.append(config), implied=implied)
    assert configs[0].preset == preset and configs[0].steps == PRESETS[preset].steps


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


@dataclasses.dataclass(frozen=True)
class Agent(RunConfig):
    discount: float = 0.9
    learning_rate: float = 0.5
    steps: int = 10
    target_rate: float = 0.1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--gamma=0.5", "--lr", "0.1"], Agent(discount=0.5, learning_rate=0.1)),
        (["--total-timesteps=7", "--tau=1"], Agent(steps=7, target_rate=1.0)),
        (["--total_timesteps", "7"], Agent(steps=7)),
    ],
)
def test_names_of_other_libraries_are_accepted(monkeypatch, arguments, expected):
    configs = []
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    command_line.run(configs.append, Agent, description="x")
    assert configs == [expected]


@pytest.mark.parametrize(("typo", "meant"), [("--gama", "--gamma"), ("--stesp", "--steps")])
def test_unknown_option_suggests_the_nearest(monkeypatch, capsys, typo, meant):
    monkeypatch.setattr(sys, "argv", ["script", typo, "3"])
    with pytest.raises(SystemExit):
        command_line.run(print, Agent, description="x")
    shown = capsys.readouterr().err
    assert "Perhaps you meant" in shown and meant in shown.partition("Perhaps")[2]


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (["/usr/bin/python3", "-m", "train_scripts", "dqn"], "python3 -m train_scripts dqn"),
        (["python", "train_scripts/train_dqn.py"], "python train_scripts/train_dqn.py"),
        (["/venv/bin/python", "/venv/bin/rrl-train", "dqn"], "rrl-train dqn"),
    ],
)
def test_usage_shows_the_command_that_was_typed(monkeypatch, capsys, typed, shown):
    monkeypatch.setattr(sys, "orig_argv", [*typed, "--help"])
    with pytest.raises(SystemExit):
        run(monkeypatch, "--help")
    assert capsys.readouterr().out.startswith(f"usage: {shown} [-h]")


HELP = """
import contextlib, runpy, sys
for command in sys.argv[1:]:
    sys.argv = ["-m", "--help"]
    with contextlib.suppress(SystemExit):
        runpy.run_module(command, None, "__main__", alter_sys=True)
    loaded = {"keras", "tensorflow", "matplotlib"} & set(sys.modules)
    assert not loaded, (command, loaded)
"""


def test_help_of_every_command_does_not_load_keras():
    files = pathlib.Path(command_line.__file__).parent.glob("*.py")
    helpers = {"__init__", "__main__", "agents", "command_line", "seeds"}
    names = {file.stem for file in files} - helpers
    assert len(names) > 10
    scripts = [f"train_scripts.{name}" for name in sorted(names)]
    commands = [*scripts, "train_scripts.__main__", "serving.server", "serving.bench"]
    code = [sys.executable, "-c", HELP, *commands]
    shown = subprocess.run(code, check=True, capture_output=True, text=True).stdout
    assert shown.count("usage:") == len(commands)
    assert shown.count("--total-timesteps") == len(names) - 5  # text and four other scripts lack it


SCRIPTS = "atari box_world decision_transformer doorkey graphs mnist nth_farthest recurrent"


@pytest.mark.tf_only
@pytest.mark.parametrize("name", [*SCRIPTS.split(), "sort_of_clevr", "text"])
def test_every_preset_has_a_line(name):
    script = importlib.import_module(f"train_scripts.train_{name}")
    assert list(script.ABOUT) == list(script.PRESETS)
    assert all(len(line) < 75 for line in script.ABOUT.values())


def test_groups_have_no_option_twice():
    names = " ".join(command_line.GROUPS.values()).split()
    assert len(names) == len(set(names))


SCRIPT = """
import dataclasses
from train_scripts import command_line, interpret

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
    """`| head -1` closes the pipe before all output is written."""
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
    assert process.returncode in (1, 141)  # rich writes --help and exits with 1


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
    with pytest.raises(SystemExit):  # a command without a run
        monkeypatch.setattr(sys, "argv", ["rrl-interpret", "doorkey-5x5"])
        command_line.run(raising(KeyboardInterrupt()), interpret.Config)
    assert capsys.readouterr().err == "stopped\n"


def test_interrupt_during_imports_is_no_traceback(tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "import time; print('importing', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A background process of a shell ignores SIGINT, and its child would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout.readline() == "importing\n", process.communicate()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert errors == "stopped\n"
    assert process.returncode in (-signal.SIGINT, 130)


def test_importing_serving_keeps_the_excepthook():
    code = "import sys; before = sys.excepthook; import serving; assert sys.excepthook is before"
    subprocess.run([sys.executable, "-c", code], check=True)
