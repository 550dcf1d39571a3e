"""Where the server listens, and why it cannot."""

from __future__ import annotations

import os
import socket

from serving.server.options import StartError


def refuse_if_taken(path: str) -> None:
    """Raises StartError if someone listens on a Unix socket, which gRPC would take away."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except TimeoutError:
            pass  # someone does, and is too busy to answer
        except OSError:
            return
    raise StartError(f"cannot listen on unix:{path} for gRPC: another server does")


def why_not(address: str) -> str:
    """Returns why nobody can listen on an address, which gRPC does not tell."""
    kind, _, path = address.partition(":")
    host, _, port = address.rpartition(":")
    try:
        if kind == "unix":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.bind(path)
            os.unlink(path)
        else:
            places = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
            family, kind_of_socket, protocol, _, place = places[0]
            with socket.socket(family, kind_of_socket, protocol) as probe:
                probe.bind(place)
    except OSError as error:
        return error.strerror or str(error)
    return "is it in use?"


def written(host: str, port: int) -> str:
    """Returns an address as gRPC takes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
