"""Define `ModelAddress`, which describes where a served model is and how to reach it."""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Collection


def split_address(address: str, schemes: Collection[str]) -> urllib.parse.SplitResult:
    """Return the parts of an address `scheme://host:port`.

    Raises:
        ValueError: If the address has a different form, or its scheme is not in `schemes`.
    """
    try:
        parts = urllib.parse.urlsplit(address)
        fits = parts.scheme in schemes and parts.hostname and parts.port
        fits = fits and not parts.path.strip("/")
    except ValueError:  # the port is not a number, or the bracket of an IPv6 address is not closed
        fits = False
    if not fits:
        raise ValueError(
            f"`address` must be grpc://host:port or http://host:port; received {address!r}."
        )
    return parts


@dataclasses.dataclass(frozen=True)
class ModelAddress:
    """The address of a model on a server; `serving.client.connect` describes the fields."""

    server: urllib.parse.SplitResult
    model: str
    version: int | None = None
    label: str | None = None
    certificates: str | None = None
    identity: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.label is not None:
            raise ValueError(
                "`version` and `label` must not both be given; "
                f"received {self.version!r} and {self.label!r}."
            )
        if (self.certificates or self.identity) is not None and not self.secure:
            raise ValueError(
                "`certificates` and `identity` need an address with grpcs:// or https://; "
                f"received {self.server.geturl()!r}."
            )

    @property
    def secure(self) -> bool:
        """Whether the connection uses TLS."""
        return self.server.scheme in ("grpcs", "https")
