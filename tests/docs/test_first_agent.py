"""Run every line of docs/tutorials/first_agent.md, on other ports."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest
from code_blocks import ROOT, blocks, commands

from serving.local import free_ports, wait_until_ready

pytestmark = [pytest.mark.tf_only, pytest.mark.slow]

PAGE = ROOT / "docs" / "tutorials" / "first_agent.md"
PROGRAMS = {"rrl-serve": "serving.server", "rrl-train": "train_scripts"}


class Newcomer:
    """Runs the code of a page in a folder.

    `answers` has the outputs of `python` and `curl`, `pages` the HTML of the playground.
    """

    def __init__(self, folder):
        self._folder, self._server, self.answers, self.pages = folder, None, [], []
        (self._port,) = free_ports(1)
        self._environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def read(self, page):
        for block in blocks(page):
            text = block.text.replace(":8501", f":{self._port}")
            if block.language == "sh":
                for command in commands(block):
                    self._type(command)
            elif block.file:
                (self._folder / block.file).write_text(text)
            else:
                self.answers.append(self._run(sys.executable, "-c", text))

    def _type(self, command):
        ((program, *words),) = command.programs
        words = [word.replace("8501", str(self._port)) for word in words]
        if program == "rrl-serve":
            self._serve(words)
        elif program == "rrl-train":
            self._run(sys.executable, "-m", PROGRAMS[program], *words)
        elif program == "curl":
            self.answers.append(json.loads(self._run("curl", "--silent", "--fail", *words)))
        else:
            assert (program, words[0]) == ("pip", "install")  # `make package` tests it

    def _run(self, *command):
        return subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    def _serve(self, words):
        self.stop()
        command = [sys.executable, "-m", PROGRAMS["rrl-serve"], *words, "--port=0"]
        self._server = subprocess.Popen(command, cwd=self._folder, env=self._environment)
        address = f"http://127.0.0.1:{self._port}"
        wait_until_ready(f"{address}/readyz", self._server, 180)
        if "--playground" in words:
            with urllib.request.urlopen(f"{address}/playground/") as answer:
                self.pages.append(answer.read().decode())

    def stop(self):
        if self._server:
            self._server.send_signal(signal.SIGINT)  # as Ctrl-C does
            self._server.wait(60)


def test_tutorial_trains_and_serves_a_policy(tmp_path):
    newcomer = Newcomer(tmp_path)
    try:
        newcomer.read(PAGE)
    finally:
        newcomer.stop()
    metadata, played, corridor = newcomer.answers
    assert metadata["model_spec"]["name"] == "doorkey-5x5"
    assert float(played) == 1.0
    (prediction,) = corridor["predictions"]
    assert prediction["action"] == 1
    (page,) = newcomer.pages
    assert "<html" in page
    run = tmp_path / "runs" / "dqn" / "Corridor-v0-seed0"
    assert json.loads((run / "evaluation.json").read_text())["eval/success"] == 1.0
    assert (run / "report.html").exists()
