"""Serve the playground under `/playground/` of a server with `--playground`.

The files of `static/` are read once, at the start. A request is answered only if its path is the
name of one of these files, so no path leads out of the folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import pathlib
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from serving.server.repository import Repository

ROOT = "/playground/"
_FOLDER = pathlib.Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_SAFE = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Page:
    """The handler of requests below `/playground/`.

    Args:
        repository: The `Repository` with the models that `config.json` lists.

    Example:

    >>> from serving.server import Flags, running
    >>> with running(Flags(preset="doorkey-5x5", port=0)) as server:
    ...     page = Page(server.repository)
    ...     response = asyncio.run(page.answer("GET", "/playground/config.json", {}))
    >>> [model["name"] for model in json.loads(response.body)["models"]]
    ['doorkey-5x5']
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._files = {ROOT + path.name: path.read_bytes() for path in sorted(_FOLDER.iterdir())}

    async def answer(self, method: str, path: str, headers: Any) -> web.Response | None:
        """Return the response to a request, or None for an unknown path or method.

        Args:
            method: The HTTP method; only GET and HEAD are supported.
            path: The path of the request, without the query string.
            headers: name -> value of the request's headers.
        """
        if method not in ("GET", "HEAD"):
            return None
        if path == ROOT.rstrip("/"):
            return web.Response(status=308, headers={**_SAFE, "Location": ROOT})
        if path == ROOT + "config.json":
            return await self._config()
        path = ROOT + "index.html" if path == ROOT else path
        if path not in self._files:
            return None
        body = self._files[path]
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        # The browser validates its copy at each request, because the files may be newer after an
        # upgrade of the server.
        headers_sent = {**_SAFE, "Cache-Control": "no-cache", "ETag": tag}
        if headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers_sent)
        kind = _TYPES[pathlib.PurePath(path).suffix]
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers_sent)

    async def _config(self):
        servables = {
            name: model.versions[max(model.available)].servable
            for name, model in self._repository.models.items()
            if model.available
        }
        models = [
            {
                "name": name,
                "version": servable.version,
                "policy": await asyncio.to_thread(_policy_details, servable.directory),
            }
            for name, servable in servables.items()
        ]
        return web.Response(
            body=json.dumps({"models": models}).encode(),
            content_type="application/json",
            headers={**_SAFE, "Cache-Control": "no-store"},
        )


def _policy_details(directory):
    """Return the `policy.json` of a version, or None for a SavedModel that has no such file."""
    try:
        path = pathlib.Path(directory) / "assets.extra" / "policy.json"
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
