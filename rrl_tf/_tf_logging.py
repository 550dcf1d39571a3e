"""Commands that write to standard error what concerns their user, and nothing else."""

import contextlib
import importlib
import os
import sys


def load_tensorflow() -> None:
    """Imports TensorFlow with standard error closed; what it says later stays visible.

    `TF_CPP_MIN_LOG_LEVEL` alone no longer helps: TensorFlow 2.21 writes its first notes before it
    reads the variable. A failed import still raises. Does nothing if TensorFlow is loaded already.

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
    """The file descriptor, not `sys.stderr`: C++ writes to it."""
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
    """A command that Ctrl-C ends while it still imports says so in a word, without a traceback.

    For packages of commands, to be called first: TensorFlow takes seconds to import. A program
    that imports such a package without being its command keeps Python's way.

    Example:
        >>> from rrl_tf._tf_logging import interrupt_quietly
        >>> interrupt_quietly()
    """
    if sys.argv[:1] != ["-m"]:  # what Python has there while it looks for the module to run
        return
    before = sys.excepthook

    def tell(kind, error, traceback):
        if issubclass(kind, KeyboardInterrupt):
            print("stopped", file=sys.stderr)
        else:
            before(kind, error, traceback)

    sys.excepthook = tell
