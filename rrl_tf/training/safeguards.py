"""Protect training loops: shut down gracefully, stop on divergence, and explain XLA errors."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import not_finite
from rrl_tf.errors import InvalidInput


class GracefulShutdown:
    """Delays SIGINT and SIGTERM until the `with` block ends, so that a loop can save a checkpoint.

    A second signal ends the process at once. Outside the main thread the context does nothing,
    because Python only handles signals in the main thread.

    Args:
        any_host: function that returns whether a flag is set on any host, such as `Replicas.any`;
            by default there is one host.

    Raises:
        KeyboardInterrupt: at the end of the block, after SIGINT.
        SystemExit: at the end of the block, after SIGTERM, with code 143.

    Example:
        >>> with GracefulShutdown() as shutdown:
        ...     for step in range(1, 10):
        ...         if step == 3:
        ...             signal.raise_signal(signal.SIGTERM)  # as `kill` does
        ...         if shutdown.requested():
        ...             print("saved after step", step)
        ...             break
        Traceback (most recent call last):
        SystemExit: 143
    """

    def __init__(self, any_host: Callable[[bool], bool] = bool) -> None:
        self._any_host = any_host
        self._received: int | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> GracefulShutdown:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, error_type: Any, *_: object) -> None:
        self._restore_handlers()
        if error_type is None:
            self._raise()

    def requested(self) -> bool:
        """Return whether any host received a signal; every host must call this method."""
        if self._any_host(self._received is not None) and self._received is None:
            self._received = signal.SIGTERM
        return self._received is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            self._restore_handlers()
            self._raise()
        self._received = number
        with contextlib.suppress(RuntimeError):  # the signal interrupted a write to stderr
            print(
                f"\n{signal.Signals(number).name}: the run stops after it saves a checkpoint; a "
                "second signal stops it at once",
                file=sys.stderr,
            )

    def _restore_handlers(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _raise(self) -> None:
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
        if self._received == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)


def require_finite(step: int, numbers: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` for the first loss or weight that is nan or infinite.

    Call it before you write a checkpoint, so that the previous checkpoint is kept.

    Args:
        step: current training step.
        numbers: dict name → number or array, such as losses and weights.

    Example:
        >>> require_finite(500, {"train/loss": 0.3})
    """
    for name, value in numbers.items():
        if (received := not_finite(np.asarray(value))) is not None:
            raise InvalidInput(
                f"training diverged at step {step:,} and stops without saving: {name} must be "
                f"finite; received {received}. Use a smaller `learning_rate` and another `name`, "
                "and look for nan and very large numbers in rewards and data."
            )


@contextlib.contextmanager
def translate_xla_errors() -> Iterator[None]:
    """Replace TensorFlow's errors for a function that XLA cannot compile by a clear one.

    Raises:
        InvalidInput: instead of TensorFlow's error.

    Example:
        >>> length = tf.function(tf.strings.length, jit_compile=True)  # XLA has no strings
        >>> with translate_xla_errors():  # doctest: +ELLIPSIS
        ...     length(tf.constant("abc"))
        Traceback (most recent call last):
        rrl_tf.errors.InvalidInput: XLA cannot compile the training step; use --no-jit-compile: ...
    """
    try:
        yield
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
        if "XLA" not in error.message:
            raise
        first = error.message.strip().splitlines()[0]
        raise InvalidInput(
            f"XLA cannot compile the training step; use --no-jit-compile: {first[:200]}"
        ) from error
