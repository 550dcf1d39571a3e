"""Public functions have annotations, which mypy checks."""

import importlib
import inspect

import pytest

pytestmark = pytest.mark.tf_only

ROOMS = (
    "rrl_tf.agents",
    "rrl_tf.convert",
    "rrl_tf.data",
    "rrl_tf.envs",
    "rrl_tf.export",
    "rrl_tf.layers",
    "rrl_tf.models",
    "rrl_tf._tf_logging",
    "rrl_tf.training",
    "rrl_tf.viz",
    "serving.bench",
    "serving.client",
    "serving.local",
    "serving.server",
    "serving.sessions",
    "train_scripts.__main__",
    "train_scripts.command_line",
)


def public(room):
    """Yield (name, function) for public functions of a module and methods of its classes."""
    module = importlib.import_module(room)
    own = [n for n, v in vars(module).items() if getattr(v, "__module__", None) == room]
    for name in getattr(module, "__all__", [n for n in own if not n.startswith("_")]):
        value = getattr(module, name)
        if inspect.isclass(value):
            for method, function in vars(value).items():
                function = getattr(function, "__func__", getattr(function, "fget", function))
                if inspect.isfunction(function) and (method == "__init__" or method[0] != "_"):
                    yield f"{room}.{name}.{method}", function
        elif inspect.isfunction(value):
            yield f"{room}.{name}", value


def lacking(function):
    """Return the names of parameters without annotation, and `return` if it has none."""
    signature = inspect.signature(function)
    bare = [
        parameter.name
        for position, parameter in enumerate(signature.parameters.values())
        if parameter.annotation is parameter.empty
        and not (position == 0 and parameter.name in ("self", "cls"))
    ]
    return bare + ["return"] * (signature.return_annotation is signature.empty)


@pytest.mark.parametrize("room", ROOMS)
def test_public_signatures_are_annotated(room):
    offered = dict(public(room))
    assert offered
    found = {name: names for name, function in offered.items() if (names := lacking(function))}
    assert not found
