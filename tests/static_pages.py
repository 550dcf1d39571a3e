"""Small models and a Node.js runner for tests of the static page."""

import json
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

from rrl_tf.data.perturb import clean
from rrl_tf.envs import doorkey_task
from rrl_tf.export import export_classifier, export_decision_transformer, export_policy
from rrl_tf.models import DecisionTransformer, RelationalClassifier
from rrl_tf.offline import Scaling
from serving.playground.static_page import write_page

ONE_HOT = doorkey_task().preprocessor
ACTIONS = ("left", "right", "forward", "pickup", "toggle")
BLOCK = {"num_heads": 2, "key_size": 4}


def page_with_modules(folder, presets):
    """Write a page and return its folder. Node.js loads its scripts as ES modules."""
    page = write_page(folder / "page", presets)
    (page / "package.json").write_text('{"type": "module"}')
    return page


def save_with_policy(network, version, folder):
    """Write a pretrained model with its policy, as `make_preset` does."""
    files = [path for path in version.rglob("*") if path.is_file()]
    beside = {f"policy/1/{file.relative_to(version)}": file.read_bytes() for file in files}
    return network.save_to_preset(folder, extra_files=beside)


def q_network_preset(folder, network):
    version = export_policy(
        folder / "export", network, ONE_HOT, (7, 7, 4), details={"action_names": ACTIONS}
    )
    return save_with_policy(network, version, folder / "q-network")


def make_transformer(**arguments):
    """Return a small Decision Transformer."""
    size = int(np.prod(ONE_HOT.shape))
    arguments = {"width": 8, "num_blocks": 1, "num_heads": 2, "context_length": 3, **arguments}
    network = DecisionTransformer.from_preset(
        "fast", state_size=size, action_size=5, discrete=True, **arguments
    )
    network.build()
    return shake(network)


def transformer_preset(folder, **arguments):
    """Return the folder of a small pretrained Decision Transformer."""
    network = make_transformer(**arguments)
    size = network.state_size
    scaling = Scaling(
        np.zeros(size, "float32"),
        np.ones(size, "float32"),
        return_scale=2.0,
        preprocessor=ONE_HOT,
        condition="return",
        target_return=0.7,
    )
    details = {"action_names": ACTIONS, "return_scale": 2.0}
    version = export_decision_transformer(
        folder / "export", network, scaling, (7, 7, 4), "uint8", details=details
    )
    return save_with_policy(network, version, folder / "transformer")


def make_classifier(**arguments):
    """Return a small classifier whose convolutions have no norms."""
    sizes = {"conv_filters": (3, 4), "conv_kernel_size": (4, 3), "conv_strides": (3, 2)}
    arguments = {**sizes, "num_classes": 4, "coordinates": {}, "block": BLOCK, **arguments}
    network = RelationalClassifier(**arguments)
    network.build((None, 28, 28, 1))
    return shake(network)


def classifier_preset(folder, **arguments):
    """Return the folder of a small pretrained classifier."""
    network = make_classifier(**arguments)
    version = export_classifier(folder / "export", network, clean, (28, 28))
    return save_with_policy(network, version, folder / "classifier")


def shake(network):
    """Set all weights to random values, because new biases and norms are only zeros and ones."""
    rng = np.random.default_rng(0)
    network.set_weights([rng.normal(0, 0.3, weight.shape) for weight in network.get_weights()])
    return network


def in_page(script, page, asked, tmp_path):
    """Run a script with the page's files in Node.js; return the process and its output file."""
    if not (node := shutil.which("node")):
        pytest.skip("needs node, to run the page's network (apt-get install nodejs)")
    question, out = tmp_path / "asked.json", tmp_path / "said"
    question.write_text(json.dumps(asked))
    file = pathlib.Path(__file__).parent / "serving" / "playground" / script
    command = [node, *map(str, (file, page, question, out))]
    return subprocess.run(command, capture_output=True, text=True, timeout=120), out


def play_in_page(page, name, starts, limit, tmp_path, target=None):
    """Play as `play` does, with the page's files."""
    asked = {"name": name, "starts": [*map(vars, starts)], "limit": limit, "target": target}
    return in_page("play.mjs", page, asked, tmp_path)


def compare(done, out, expected, said):
    """Check that the page printed the expected results and wrote the expected numbers."""
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected
    here = np.fromfile(out, "float32").reshape(said.shape)
    np.testing.assert_allclose(here, said, rtol=0, atol=1e-5)
