"""JAX lowers every layer, model and gradient for GPUs and TPUs; no such device is needed."""

import importlib.util
import subprocess
import sys

import keras
import pytest
import shared_runs

ON_JAX = """
import inspect
import sys

import jax
import keras
from conformance import CASES
from jax import export, numpy

PLATFORMS = ("cuda", "tpu")


def lowered(case):
    layer = case.make()
    layer.build((None, *case.shape))
    weights = [variable.value for variable in layer.trainable_variables]
    states = [variable.value for variable in layer.non_trainable_variables]
    trains = "training" in inspect.signature(layer.call).parameters
    options = {"training": True} if trains else {}

    def loss(weights, states, x):
        outputs, states = layer.stateless_call(weights, states, x, **options)
        return numpy.square(outputs.astype("float32")).mean(), states

    step = jax.jit(jax.value_and_grad(loss, argnums=(0, 2), has_aux=True))
    return export.export(step, platforms=PLATFORMS)(
        *jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (weights, states)),
        jax.ShapeDtypeStruct((2, *case.shape), "float32"),
    )


for case in CASES:
    if isinstance(case.make(), keras.Model) != (sys.argv[1] == "models"):
        continue
    module = lowered(case)
    assert module.platforms == PLATFORMS, case.name
    assert "stablehlo" in module.mlir_module(), case.name
    print(case.name, flush=True)
"""


@pytest.mark.slow  # each takes a minute
@pytest.mark.parametrize("kind", ["layers", "models"])
def test_every_case_lowers_for_gpus_and_tpus(kind):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    from conformance import CASES

    done = subprocess.run(
        [sys.executable, "-c", ON_JAX, kind],
        env=shared_runs.environment() | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    of_kind = [c.name for c in CASES if isinstance(c.make(), keras.Model) == (kind == "models")]
    assert done.stdout.split() == of_kind and of_kind
