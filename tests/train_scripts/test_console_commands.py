"""`rrl-train` finds the scripts by their files, and says in one line what it does not know."""

import pathlib
import subprocess
import sys

import pytest

from train_scripts import __main__ as console

ROOT = pathlib.Path(__file__).parents[2]


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["rrl-train", *arguments])
    console.main()


def test_every_training_script_is_a_task(monkeypatch, capsys):
    scripts = {path.stem for path in (ROOT / "train_scripts").glob("train_*.py")}
    assert {"train_doorkey", "train_decision_transformer"} <= scripts
    for arguments in ([], ["--help"]):
        command(monkeypatch, *arguments)
        listed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
        tasks = {line.split()[0] for line in listed}
        assert {f"train_{task.replace('-', '_')}" for task in tasks} == scripts
        assert all(len(line.split()) > 3 for line in listed)  # says what it does


@pytest.mark.parametrize(
    ("name", "message"),
    [("dorkey", "did you mean doorkey?"), ("xyz", "expected one of atari, box-world, ")],
)
def test_an_unknown_task_is_one_line(monkeypatch, capsys, name, message):
    with pytest.raises(SystemExit) as ended:
        command(monkeypatch, name)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: unknown task {name!r}; {message}") and error.count("\n") == 1


def test_the_usage_names_the_command_that_was_given(monkeypatch, capsys, without_tensorflow):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)  # as in a file in bin/
    command(monkeypatch)
    module = [sys.executable, "-m", "train_scripts"]
    options = {"env": without_tensorflow, "check": True, "capture_output": True, "text": True}
    as_module = subprocess.run(module, cwd=ROOT, **options)
    for name, said in (
        ("rrl-train", capsys.readouterr().out),
        ("python -m train_scripts", as_module.stdout),
    ):
        assert said.startswith(f"usage: {name} TASK [OPTIONS]\n")
        assert said.endswith(f"\n{name} TASK --help lists the options of a task.\n")


@pytest.mark.tf_only
def test_a_task_runs_as_its_module_does():
    script = subprocess.run(
        [sys.executable, "-m", "train_scripts", "text", "--help"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert script.stdout.startswith("usage: python -m train_scripts.train_text [-h]")
    assert "--preset" in script.stdout


@pytest.mark.tf_only
def test_a_users_module_lies_in_the_current_folder(monkeypatch, capsys, tmp_path):
    (tmp_path / "not_a_world.py").write_text("raise ImportError('found')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.delitem(sys.modules, "train_scripts.train_dqn", raising=False)
    with pytest.raises(SystemExit):
        command(monkeypatch, "dqn", "--env", "not_a_world:World-v0")
    assert "found" in capsys.readouterr().err
