"""Hide TensorFlow's start-up messages, and the traceback of a Ctrl-C during imports."""

import contextlib
import importlib.abc
import importlib.util
import os
import sys


def load_tensorflow() -> None:
    """Import TensorFlow without the messages that it prints to standard error during the import.

    Setting `TF_CPP_MIN_LOG_LEVEL` does not suffice, because TensorFlow 2.21 prints its first
    messages before it reads the variable. Standard error is restored after the import, and an
    import error is raised as usual. If TensorFlow is already imported, only the variable is set.

    Example:
        >>> from rrl_tf._tf_logging import load_tensorflow
        >>> load_tensorflow()
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" not in sys.modules:
        with _closed_standard_error():
            importlib.import_module("tensorflow")


def quiet_tensorflow() -> None:
    """Hide these messages when TensorFlow is imported later, as `load_tensorflow` does.

    Example:
        >>> from rrl_tf._tf_logging import quiet_tensorflow
        >>> quiet_tensorflow()
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _QuietFinder())


class _QuietFinder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow, and closes standard error while its module is executed."""

    def find_spec(self, fullname, path, target=None):
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_quietly(module):
                with _closed_standard_error():
                    execute(module)

            spec.loader.exec_module = execute_quietly
        return spec


@contextlib.contextmanager
def _closed_standard_error():
    """Redirect file descriptor 2 to /dev/null, because C++ code does not use `sys.stderr`."""
    try:
        saved = os.dup(2)
    except OSError:  # a service may run without standard error
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

    A package that is run with `python -m` calls this function first, because TensorFlow takes
    seconds to import. The function does nothing in a program that only imports such a package.

    Example:
        >>> from rrl_tf._tf_logging import interrupt_quietly
        >>> interrupt_quietly()
    """
    if sys.argv[:1] != ["-m"]:  # the value of sys.argv[0] while Python looks for the module to run
        return
    original = sys.excepthook

    def hook(kind, error, traceback):
        if issubclass(kind, KeyboardInterrupt):
            print("stopped", file=sys.stderr)
        else:
            original(kind, error, traceback)

    sys.excepthook = hook
