"""Every training command of the documentation runs with toy numbers, and its export is served."""

import gzip
import struct
import subprocess
import sys

import numpy as np
import pytest
from code_blocks import PAGES, blocks, commands

from serving.local import free_ports, wait_until_ready

pytestmark = [pytest.mark.tf_only, pytest.mark.slow]

DQN = (
    "--steps=96 --num-envs=4 --batch-size=8 --learning-starts=20 --updates-per-step=0.1 "
    "--evaluate-every=48 --evaluation-episodes=3 --replay-capacity=500 --no-jit-compile"
)
TOY = {
    "train_dqn": DQN,
    "train_doorkey": DQN,
    "train_recurrent": "--steps=320 --num-envs=4 --batch-size=2 --learning-starts=280 "
    "--updates-per-step=0.05 --evaluate-every=160 --evaluation-episodes=2",
    "train_box_world": f"{DQN} --max-steps=12",
    "train_atari": DQN.replace("episodes=3", "episodes=1"),
    "train_mnist": "--steps=2 --batch-size=4 --held-out=4 --log-every=2 --checkpoint-every=2 "
    "--draw-every=2 --warmup-steps=1 --data=mnist",
    "train_nth_farthest": "--steps=4 --log-every=2 --batch-size=4 --warmup-steps=1 "
    "--checkpoint-every=2 --draw-every=2 --evaluation-questions=20 --no-jit-compile",
    "train_sort_of_clevr": "--steps=2 --batch-size=2 --log-every=1 --checkpoint-every=1 "
    "--draw-every=2 --warmup-steps=1 --validation-pictures=3 --test-pictures=4",
    "train_graphs": "--steps=2 --batch-size=4 --log-every=1 --checkpoint-every=1 "
    "--warmup-steps=1 --test-graphs=8 --num-rounds=2",
    "train_text": "--epochs=1 --batch-size=200 --length=100 --embedding=4 --mem-slots=2 "
    "--head-size=3 --num-heads=2 --units=8",
    "train_decision_transformer": "--steps=4 --log-every=2 --evaluate-every=2 "
    "--checkpoint-every=2 --evaluation-episodes=2 --progress-episodes=2 "
    "--context-length=4 --held-out=0.3 --warmup-steps=1",
    "collect_dataset": "--episodes=4",
}
# Replaces the 2,000 episodes of the pages, which need a trained agent.
RECORDED = ("--data", "minari:runs/datasets/rrl/doorkey-5x5/random-v0")
NEEDS_DATA = ("tfds:", "minari:mujoco", "minari:FOLDER", "policies")


def training(page):
    """Yield a page's commands that train or serve, in order, with toy numbers."""
    for block in blocks(page):
        for command in commands(block) if block.language == "sh" else ():
            _, *words = command.programs[0]
            script = words[1].removeprefix("train_scripts.") if words[:1] == ["-m"] else ""
            if any(each.startswith(NEEDS_DATA) for each in words):
                continue
            if script in TOY and "--help" not in words:
                own = {"--data", "pendulum", "cartpole"}  # these choose the data
                recorded = script == "train_decision_transformer" and not own & {*words}
                yield command, [*words, *TOY[script].split(), *(RECORDED if recorded else ())]
            elif script == "serving.server":
                yield command, words


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(training(page))], ids=lambda page: page.name
)
def test_training_commands_run_and_their_exports_are_served(page, working_directory):
    write_inputs(working_directory)
    for block in blocks(page):
        if block.file:
            (working_directory / block.file).write_text(block.text)
    for command, words in training(page):
        print(command, *words, flush=True)
        if "serving.server" in words:
            check_served(words, working_directory)
        else:
            subprocess.run([sys.executable, *words], check=True)


def write_inputs(folder):
    """Create the input files of the commands: a text, digits and recorded episodes."""
    (folder / "FILE").write_text("to be or not to be, " * 20_000)
    play = ["-m", "train_scripts.collect_dataset", "--policies=random", "--episodes=4"]
    subprocess.run([sys.executable, *play], check=True)
    rng = np.random.default_rng(0)
    (folder / "mnist").mkdir()
    for part in ("train", "t10k"):
        digits = {
            "images-idx3": rng.integers(0, 256, (40, 28, 28), np.uint8),
            "labels-idx1": np.arange(40, dtype=np.uint8) % 10,
        }
        for name, array in digits.items():
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            with gzip.open(folder / "mnist" / f"{part}-{name}-ubyte.gz", "wb") as file:
                file.write(header + array.tobytes())


def check_served(words, folder):
    """Start the server of a page on other ports, and wait until its models are ready."""
    grpc_port, rest_port = free_ports(2)
    shown = {"$PWD": folder, "=8500": f"={grpc_port}", "=8501": f"={rest_port}"}
    for name, real in shown.items():
        words = [word.replace(name, str(real)) for word in words]
    process = subprocess.Popen([sys.executable, *words])
    try:
        wait_until_ready(f"http://127.0.0.1:{rest_port}/readyz", process, 180)
    finally:
        process.terminate()
        process.wait()
