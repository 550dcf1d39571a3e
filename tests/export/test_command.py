"""`rrl-export` writes a policy, prints how to run it, and explains mistakes in one line."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.export import command, load_policy

pytestmark = [pytest.mark.tf_only, pytest.mark.filterwarnings("ignore::UserWarning")]

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def rrl_export(monkeypatch, capsys, tmp_path):
    """Function of the options that returns what the command prints."""
    monkeypatch.chdir(tmp_path)

    def run(*options):
        monkeypatch.setattr(sys, "argv", ["rrl-export", *options])
        command.main()
        return capsys.readouterr().out

    return run


def printed_outputs(text):
    """Run the printed program, and return what it prints."""
    program = text[text.index("import numpy") :].replace("print(", "outputs.append(")
    litert = "from ai_edge_litert.interpreter import Interpreter"
    outputs = []
    exec(program.replace(litert, ""), {"outputs": outputs, "Interpreter": tf.lite.Interpreter})
    return outputs[0]


@pytest.mark.parametrize("format", ["saved_model", "tflite"])
def test_printed_program_returns_the_outputs(rrl_export, format):
    text = rrl_export("doorkey-5x5", "--format", format)
    path = pathlib.Path("policy.tflite" if format == "tflite" else "policy")
    assert re.match(rf"wrote {path} \(\d+ kB\), signature serving_default\n", text)
    assert "input observation: uint8 (batch, 7, 7, 4)" in text
    assert "output q_values: float32 (batch, 5)" in text
    policy = load_policy("doorkey-5x5")
    expected = policy.predict({"observation": np.ones((1, 7, 7, 4), "uint8")})
    np.testing.assert_allclose(printed_outputs(text)["q_values"], expected["q_values"], atol=1e-5)


def test_a_run_folder_and_another_signature(rrl_export, tmp_path):
    export = load_policy("doorkey-6x6").directory.parent
    shutil.copytree(export, tmp_path / "run" / "export")
    text = rrl_export("run", "--format", "saved_model", "--signature", "initial_memory")
    assert "input batch_size: int32 (), tensor initial_memory_batch_size:0" in text
    assert printed_outputs(text)["memory"].shape == (1, 130)


def test_a_mistake_is_one_line(rrl_export, capsys, tmp_path):
    (tmp_path / "policy.tflite").touch()
    with pytest.raises(SystemExit) as ended:
        rrl_export("doorkey-5x5", "--format", "tflite")
    assert ended.value.code == 1
    assert re.fullmatch(
        r"error: `path` must not exist;.* Use `overwrite`\.\n", capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["policy/1", "--output=policy/1/copy"], "`path` must not be inside the policy 'policy/1'"),
        (["policy/1", "--output=no\udcffpe"], r"`path` must be a path; .*surrogates not allowed"),
        (["no\udcffpe"], r"`directory` must be a path; .*surrogates not allowed"),
        (
            ["nothing"],
            "`directory` must be the folder of a run or of an exported policy, or one of",
        ),
        (["policy/1", "--output=policy/1/saved_model.pb/copy"], "`path` must be a path"),
        (["damaged"], "`directory` must hold a policy .*'damaged', which cannot be loaded"),
    ],
)
def test_wrong_folders_are_one_line(rrl_export, capsys, tmp_path, options, message):
    shutil.copytree(load_policy("doorkey-5x5").directory, tmp_path / "policy" / "1")
    shutil.copytree(tmp_path / "policy" / "1", tmp_path / "damaged")
    graph = tmp_path / "damaged" / "saved_model.pb"
    graph.write_bytes(graph.read_bytes()[:1000])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as ended:
        rrl_export(*options, "--format=saved_model")
    assert ended.value.code == 1 and sorted(tmp_path.rglob("*")) == before
    [line] = capsys.readouterr().err.splitlines()
    assert re.match(f"error: {message}", line)


def test_help_does_not_load_tensorflow():
    script = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules));"
        "sys.argv = ['rrl-export', '--help'];"
        "from rrl_tf.export.command import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "--format {saved_model,onnx,tflite}" in result.stdout
    assert not {"tensorflow", "keras", "numpy"} & {*result.stdout.split()}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_c_program_prints_the_q_values(rrl_export, tmp_path):
    text = rrl_export("doorkey-5x5", "--format", "saved_model")
    tensors = [
        re.search(rf"{name}: .*, tensor (\S+)", text)[1] for name in ("observation", "q_values")
    ]
    tensorflow = os.path.dirname(tf.__file__)
    source = str(ROOT / "docs" / "how_to" / "run_policy.c")
    libraries = ("-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2")
    paths = (f"-I{tensorflow}/include", f"-L{tensorflow}", f"-Wl,-rpath,{tensorflow}")
    build = ["gcc", "-Wall", "-Wextra", "-Werror", source, *paths, *libraries, "-o", "run_policy"]
    subprocess.run(build, check=True)
    observation = np.random.default_rng(0).integers(0, 4, (1, 7, 7, 4), "uint8")

    def run(*arguments, given):
        return subprocess.run(["./run_policy", *arguments], input=given, capture_output=True)

    given = observation.tobytes()
    printed = [float(line) for line in run("policy", *tensors, given=given).stdout.split()]
    expected = load_policy("doorkey-5x5").predict({"observation": observation})["q_values"][0]
    np.testing.assert_allclose(printed, expected, atol=1e-5)
    assert b"error: the observation is too short" in run("policy", *tensors, given=b"0").stderr
    assert (
        b"error: the policy has no tensor"
        in run("policy", "none:0", tensors[1], given=given).stderr
    )
    assert b"error: Could not find SavedModel" in run("nothing", *tensors, given=given).stderr
