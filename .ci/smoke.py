"""Check an installed package from outside the source tree; called by `.ci/package`."""

import argparse
import importlib
import pathlib
import pkgutil
import subprocess
import sys

import numpy as np

BIN = pathlib.Path(sys.executable).parent
EXPORT = pathlib.Path("runs/dqn/CartPole-v1-seed0/export")
TRAIN = (
    *("rrl-train", "dqn", "--env=CartPole-v1", "--steps=800", "--learning-starts=100"),
    *("--log-every=400", "--evaluate-every=400", "--evaluation-episodes=5"),
    *("--checkpoint-every=400", "--no-jit-compile"),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serving", action="store_true", help="the extra is installed")
    if parser.parse_args().serving:
        import_all("serving")
        assert "--rest_api_port" in output("rrl-serve", "--help")
        assert "--address" in output("rrl-bench", "--help")
        ask_a_server()
    else:
        import_all("rrl_tf")
        import_all("train_scripts")
        read_packaged_files()
        lacking = subprocess.run([BIN / "rrl-serve"], capture_output=True, text=True)
        assert lacking.returncode and ".[serving]" in lacking.stderr, lacking.stderr
        assert "\n  dqn " in output("rrl-train", "--help")
        assert "--format" in output("rrl-export", "--help")
        output(*TRAIN)
        assert load().act(np.zeros(4, "float32")) in (0, 1)


def import_all(name):
    """Import a package and all its modules; they must come from the environment."""
    package = importlib.import_module(name)
    assert pathlib.Path(package.__file__).is_relative_to(sys.prefix), package.__file__
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def output(command, *arguments):
    """Run an installed command and return its output."""
    command = [BIN / command, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def load():
    """Return the policy that the training exported."""
    from rrl_tf.export import load_policy

    return load_policy(EXPORT)


def read_packaged_files():
    """Read the data files of the packages."""
    import rrl_tf
    from rrl_tf.data.text import load_text

    assert len(load_text()) > 100_000
    assert (pathlib.Path(rrl_tf.__file__).parent / "py.typed").exists()


def ask_a_server():
    """Serve the policy and compare its actions with those computed in this process."""
    import serving
    from serving.client import connect
    from serving.local import served

    assert list(pathlib.Path(serving.__file__).parent.glob("deploy/kubernetes/*.yaml"))
    observations = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    expected = load().act(observations)
    with served(EXPORT, "cartpole") as addresses:
        for address in addresses:
            with connect(address, "cartpole") as client:
                np.testing.assert_array_equal(client.act(observations), expected)


if __name__ == "__main__":
    main()
