"""From nothing to a served agent: trains on DoorKey, draws what it attends to, asks it for actions.

make demo
python -m train_scripts.demo --retrain
"""

import contextlib
import dataclasses
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.export import load_policy, newest_version
from serving.client import connect
from train_scripts import command_line, train_doorkey


@dataclasses.dataclass(frozen=True)
class Config:
    """What the demonstration may be asked to do differently."""

    retrain: bool = False
    """Throw the trained agent away and train again."""
    episodes: int = 10
    """Episodes played through the server, over each transport."""
    seed: int = 0
    """Of the training."""


def main(config):
    """Trains a relational agent on MiniGrid DoorKey, draws it, serves it and plays through it."""
    training = dataclasses.replace(
        train_doorkey.FAST, name="demo", seed=config.seed, stop_after_perfect=3
    )
    if config.retrain:
        shutil.rmtree(command_line.run_path(training), ignore_errors=True)
    announce("1. A relational double DQN learns to fetch the key, open the door, reach the goal")
    begun = time.perf_counter()
    folder, _ = train_doorkey.main(training)
    print(f"   {time.perf_counter() - begun:.0f} s")

    announce("2. What it attends to")
    for picture in sorted(folder.figures.iterdir()):
        print(f"   {picture}")

    announce("3. The policy as a SavedModel, served over gRPC and REST")
    version = newest_version(folder.export)
    print(f"   {version}")
    with served(folder.export.resolve(), "doorkey") as (grpc_port, rest_port):
        for address in (f"grpc://127.0.0.1:{grpc_port}", f"http://127.0.0.1:{rest_port}"):
            play_through(address, load_policy(version), training, config.episodes)
    print(f"\nServe it yourself:\n   {' '.join(server_command(folder.export, 'doorkey'))}")
    print(f"Watch the training:\n   {sys.executable} -m tensorboard.main --logdir {folder.path}")


def announce(title):
    """Prints a heading."""
    print(f"\n{title}", flush=True)


def server_command(export, model, grpc_port=8500, rest_port=8501):
    """The command that serves an export folder."""
    return [
        sys.executable,
        "-m",
        "serving.server",
        f"--model_name={model}",
        f"--model_base_path={export}",
        f"--port={grpc_port}",
        f"--rest_api_port={rest_port}",
    ]


@contextlib.contextmanager
def served(export, model, patience=180.0):
    """A server process with the newest version of a model, as its two ports; stopped at the end."""
    ports = free_ports(2)
    process = subprocess.Popen(server_command(export, model, *ports))
    try:
        wait_until_available(f"http://127.0.0.1:{ports[1]}/v1/models/{model}", process, patience)
        yield ports
    finally:
        process.terminate()
        process.wait()


def wait_until_available(url, process, patience):
    """Polls a model's status page until a version is available."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if process.poll() is not None:
            raise OSError(f"the server ended with exit code {process.returncode}")
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:
            if b'"AVAILABLE"' in answer.read():
                return
        time.sleep(0.1)
    raise OSError(f"{url} shows no available version after {patience:.0f} s")


def free_ports(count):
    """Port numbers that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def play_through(address, policy, training, episodes):
    """Plays with actions asked from a server, and holds each against the policy in this process.

    Raises:
        ValueError: if an action differs.
    """
    env = train_doorkey.make_env(training)
    solved, seconds = 0, []
    with connect(address, "doorkey") as client:
        for reset in train_doorkey.evaluation_resets(training)[:episodes]:
            observation, _ = env.reset(**reset)
            over = False
            while not over:
                begun = time.perf_counter()
                action = client.act(observation)
                seconds.append(time.perf_counter() - begun)
                if action != (expected := policy.act(observation)):
                    raise InvalidInput(f"{address} answered {action}, expected {expected}")
                observation, _, terminated, truncated, info = env.step(action)
                over = terminated or truncated
            solved += info["success"]
    names = env.get_wrapper_attr("action_names")
    print(
        f"   {address}: {solved} of {episodes} episodes solved; {len(seconds)} actions, all equal "
        f"to those in process, the last one {names[action]!r}; "
        f"median {1e3 * np.median(seconds):.2f} ms an answer",
        flush=True,
    )


if __name__ == "__main__":
    command_line.run(main, Config)
