"""Ctrl-C and SIGTERM without a loss: a run ends what it is at, saves, and only then obeys."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rrl_tf.training.replicas import Replicas


class Interruption:
    """Notes SIGINT and SIGTERM while it is entered, for a loop that wants to save first.

    The second signal is obeyed at once. Outside the main thread signals cannot be caught, and
    nothing is changed there.

    Example:
        >>> with Interruption() as interruption:
        ...     for step in range(1, 10):
        ...         if step == 3:
        ...             signal.raise_signal(signal.SIGTERM)  # as `kill` sends it
        ...         if interruption.received:
        ...             break
        >>> print("saved after step", step)
        saved after step 3
        >>> interruption.obey()  # goes on where there was none
        Traceback (most recent call last):
        SystemExit: 143
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            self.__exit__()
            self.obey()
        self.received = signal.Signals(number)
        with contextlib.suppress(RuntimeError):  # the signal came while that was being written to
            print(
                f"\n{self.received.name}: stopping after what is under way is saved; "
                "once more stops at once",
                file=sys.stderr,
            )

    def agreed(self, replicas: Replicas) -> bool:
        """Whether a signal has come to any of the hosts; then it has come to this one, too."""
        came = replicas.any(self.received is not None)
        if came and self.received is None:
            self.received = signal.SIGTERM
        return came

    def obey(self) -> None:
        """Does what the signal asked for, if there was one.

        Raises:
            KeyboardInterrupt: after SIGINT.
            SystemExit: after SIGTERM, with code 143.
        """
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
