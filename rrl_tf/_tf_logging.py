"""Less output of TensorFlow and Python on standard error."""

import contextlib
import importlib
import os
import sys


def load_tensorflow() -> None:
    """Import TensorFlow with standard error closed; later messages remain visible.

    `TF_CPP_MIN_LOG_LEVEL` alone does not suffice, because TensorFlow 2.21 writes its first messages
    before it reads the variable. A failed import raises. It does nothing if TensorFlow is loaded.

    Example:
        >>> from rrl_tf._tf_logging import load_tensorflow
        >>> load_tensorflow()
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" not in sys.modules:
        with _closed_standard_error():
            importlib.import_module("tensorflow")


@contextlib.contextmanager
def _closed_standard_error():
    """Close the file descriptor, because C++ does not write to `sys.stderr`."""
    try:
        saved = os.dup(2)
    except OSError:  # a service may run without one
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def interrupt_quietly() -> None:
    """Print "stopped" instead of a traceback if Ctrl-C ends a command during its imports.

    Packages of commands call it first, because TensorFlow takes seconds to import. It does nothing
    in a program that only imports such a package.

    Example:
        >>> from rrl_tf._tf_logging import interrupt_quietly
        >>> interrupt_quietly()
    """
    if sys.argv[:1] != ["-m"]:  # sys.argv[0] while Python looks for the module to run
        return
    original = sys.excepthook

    def hook(kind, error, traceback):
        if issubclass(kind, KeyboardInterrupt):
            print("stopped", file=sys.stderr)
        else:
            original(kind, error, traceback)

    sys.excepthook = hook
