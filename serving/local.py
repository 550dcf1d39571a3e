"""Start `serving.server` on an export folder in a child process, and stop it at the end."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from serving.errors import ServingError

__all__ = ["free_ports", "served", "server_command", "wait_until_ready"]


def server_command(
    export_folder: str | os.PathLike[str],
    name: str,
    grpc_port: int = 8500,
    rest_port: int = 8501,
    *flags: str,
) -> list[str]:
    """Return the command that serves an export folder.

    Args:
        export_folder: The folder that contains the version folders.
        name: The name of the model for clients.
        grpc_port: The TCP port for gRPC.
        rest_port: The TCP port for REST.
        flags: Further flags of `serving.server`, such as `"--enable_batching"`.
    """
    return [
        sys.executable,
        "-m",
        "serving.server",
        f"--model_name={name}",
        f"--model_base_path={export_folder}",
        f"--port={grpc_port}",
        f"--rest_api_port={rest_port}",
        *flags,
    ]


@contextlib.contextmanager
def served(
    export_folder: str | os.PathLike[str],
    name: str,
    *flags: str,
    patience: float = 180.0,
) -> Iterator[tuple[str, str]]:
    """Serve the newest version in an export folder for as long as the `with` block runs.

    Args:
        export_folder: The folder that contains the version folders.
        name: The name of the model for clients.
        flags: Further flags of `serving.server`, such as `"--enable_batching"`.
        patience: Seconds that the server may take to start.

    Yields:
        Two addresses for `serving.client.connect`: the one for gRPC and the one for REST.

    Raises:
        ServingError: UNAVAILABLE if the server does not start in time.

    Example:

    >>> import numpy as np
    >>> from rrl_tf.pretrained import pretrained_folder
    >>> from serving.client import connect
    >>> folder = pretrained_folder("doorkey-5x5") / "policy"
    >>> with served(folder, "doorkey") as (grpc, rest):  # doctest: +SKIP
    ...     with connect(grpc, "doorkey") as client:
    ...         client.act(np.zeros((3, 7, 7, 4), "uint8")).shape
    (3,)
    """
    grpc, rest = free_ports(2)
    command = server_command(Path(export_folder).absolute(), name, grpc, rest, *flags)
    process = subprocess.Popen(command)
    try:
        wait_until_ready(f"http://127.0.0.1:{rest}/readyz", process, patience)
        yield f"grpc://127.0.0.1:{grpc}", f"http://127.0.0.1:{rest}"
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(url: str, process: subprocess.Popen, patience: float) -> None:
    """Wait until a URL answers with a 2xx status.

    Args:
        url: The URL to request, such as `http://127.0.0.1:8501/readyz`.
        process: The process of the server.
        patience: Seconds to wait at most.

    Raises:
        ServingError: UNAVAILABLE if the process ends or the time has passed.
    """
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ServingError(
                "UNAVAILABLE", f"the server ended with exit code {process.returncode}"
            )
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1):
            return
        time.sleep(0.1)
    raise ServingError("UNAVAILABLE", f"{url} was not ready within {patience:g} s")


def free_ports(count: int) -> list[int]:
    """Return the numbers of `count` different TCP ports that no program uses at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
