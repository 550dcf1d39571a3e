"""Write a policy as a SavedModel, an ONNX file or a TFLite file.

rrl-export doorkey-5x5 --format onnx
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rrl_tf._tf_logging import load_tensorflow
from rrl_tf.errors import InvalidInput

# Format -> (the default path, a program that runs the file).
_FORMATS = {
    "saved_model": (
        "policy",
        """import numpy as np
import tensorflow as tf
inputs = {{{inputs}}}
act = tf.saved_model.load({path}).signatures[{signature}]
print(act(**{{name: tf.constant(array) for name, array in inputs.items()}}))""",
    ),
    "onnx": (
        "policy.onnx",
        """import numpy as np
import onnxruntime  # pip install onnxruntime
inputs = {{{inputs}}}
session = onnxruntime.InferenceSession({path})
print(session.run(None, inputs))""",
    ),
    "tflite": (
        "policy.tflite",
        """import numpy as np
from ai_edge_litert.interpreter import Interpreter  # pip install ai-edge-litert
inputs = {{{inputs}}}
act = Interpreter({path}).get_signature_runner()
print(act(**inputs))""",
    ),
}


def main() -> None:
    """Parse the command line, write the file or folder, and print what it contains."""
    parser = argparse.ArgumentParser(
        prog="rrl-export", description="Write a policy for a program without Python."
    )
    parser.add_argument(
        "policy",
        help="run folder, export folder, or name of a pretrained model such as doorkey-5x5",
    )
    parser.add_argument("--format", choices=_FORMATS, required=True)
    parser.add_argument("--output", help="file or folder to write; default: policy[.FORMAT]")
    parser.add_argument(
        "--signature",
        default="serving_default",
        help="signature to convert, such as act_with_attention or initial_memory",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    options = parser.parse_args()
    load_tensorflow()  # after the options are parsed, because it takes seconds
    from rrl_tf.export.formats import convert_policy
    from rrl_tf.export.load import load_policy

    path = options.output or _FORMATS[options.format][0]
    try:
        policy = load_policy(options.policy)
        written = convert_policy(policy, path, options.format, options.signature, options.overwrite)
    except (InvalidInput, OSError) as error:
        parser.exit(1, f"error: {error}\n")
    print(_report(written, options.format, options.signature, policy.signatures[options.signature]))


def _report(path: Path, format: str, signature: str, sides: dict) -> str:
    """Return the size of a written policy, its inputs and outputs, and a program that runs it."""
    files = [path, *path.rglob("*")]
    size = sum(file.stat().st_size for file in files if file.is_file())
    lines = [f"wrote {path} ({size / 1e3:.0f} kB), signature {signature}"]
    tensors = _tensor_names(path, signature) if format == "saved_model" else {}
    for side in ("inputs", "outputs"):
        for name, (dtype, shape) in sides[side].items():
            sizes = ", ".join("batch" if size == -1 else str(size) for size in shape)
            lines.append(f"  {side[:-1]} {name}: {dtype} ({sizes}){tensors.get((side, name), '')}")
    arrays = (  # -1 is any size; here the batch size is 1
        f'\n    {json.dumps(name)}: np.ones({tuple(map(abs, shape))}, "{dtype}"),'
        for name, (dtype, shape) in sides["inputs"].items()
    )
    program = _FORMATS[format][1].format(
        path=json.dumps(str(path)),
        signature=json.dumps(signature),
        inputs="".join([*arrays, "\n"]),
    )
    lines += [
        "",
        "Run it in Python, or see 'Run a policy without Python' in the documentation:",
        "",
    ]
    return "\n".join([*lines, program])


def _tensor_names(path: Path, signature: str) -> dict[tuple[str, str], str]:
    """Return a dict (side, name) -> the name of the tensor, which TensorFlow's C API needs."""
    from rrl_tf.export.session import SavedModelSession

    definition = SavedModelSession(path).signatures[signature]
    return {
        (side, name): f", tensor {tensor.name}"
        for side in ("inputs", "outputs")
        for name, tensor in getattr(definition, side).items()
    }


if __name__ == "__main__":
    main()
