"""Where a served model is, and how it is reached."""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Collection


def split_address(address: str, schemes: Collection[str]) -> urllib.parse.SplitResult:
    """Return the parts of `scheme://host:port`; raise ValueError for any other form."""
    try:
        parts = urllib.parse.urlsplit(address)
        fits = parts.scheme in schemes and parts.hostname and parts.port
        fits = fits and not parts.path.strip("/")
    except ValueError:  # a port that is not a number, or an open bracket
        fits = False
    if not fits:
        raise ValueError(
            f"`address` must be grpc://host:port or http://host:port; received {address!r}."
        )
    return parts


@dataclasses.dataclass(frozen=True)
class ModelAddress:
    """A model on a server; the fields are the arguments of `serving.client.connect`."""

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
