"""`rrl-train` runs the script of a task."""

import pathlib
import subprocess
import sys

import pytest

from train_scripts import __main__ as console

ROOT = pathlib.Path(__file__).parents[2]


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["rrl-train", *arguments])
    monkeypatch.setattr(sys, "orig_argv", ["bin/python", "bin/rrl-train", *arguments])
    console.main()


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_every_training_script(monkeypatch, capsys, arguments):
    with pytest.raises(SystemExit):
        command(monkeypatch, *arguments)
    output = capsys.readouterr().out
    assert output.startswith("usage: rrl-train TASK [OPTIONS]\n")
    assert "rrl-train TASK --help lists the options of a task." in output
    scripts = {path.stem for path in (ROOT / "train_scripts").glob("train_*.py")}
    lines = [line.split() for line in output.splitlines() if ". " in line or line.endswith(".")]
    described = {f"train_{words[0].replace('-', '_')}" for words in lines if len(words) > 3}
    assert scripts <= described


def test_unknown_task_lists_the_tasks(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        command(monkeypatch, "dorkey")
    assert ended.value.code == 2
    assert "invalid choice: 'dorkey' (choose from 'atari', " in capsys.readouterr().err


@pytest.mark.tf_only
def test_task_runs_like_its_module():
    script = subprocess.run(
        [sys.executable, "-m", "train_scripts", "text", "--help"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    name = pathlib.Path(sys.executable).name
    assert script.stdout.startswith(f"usage: {name} -m train_scripts text [-h]")
    assert "--preset" in script.stdout


@pytest.mark.tf_only
def test_module_of_the_user_is_found_in_the_current_folder(monkeypatch, capsys, tmp_path):
    (tmp_path / "not_a_world.py").write_text("raise ImportError('found')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.delitem(sys.modules, "train_scripts.train_dqn", raising=False)
    with pytest.raises(SystemExit):
        command(monkeypatch, "dqn", "--env", "not_a_world:World-v0")
    assert "found" in capsys.readouterr().err
