"""The playground: a page where trained policies act, told by `--playground` to be served.

Its files, all under `serving/playground/`, are read once, at start; only their names are answered
for, so that no path leads anywhere else.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import pathlib
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from serving.repository import Repository

ROOT = "/playground/"
_FOLDER = pathlib.Path(__file__).parent / "static"
_CONFIG = ROOT + "config.json"
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
    """Answers what is below `/playground/`.

    Args:
        repository: `Repository` whose models `config.json` lists.

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
        files = [path for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES]
        self._files = {ROOT + path.name: _read(path) for path in files}
        self._files[ROOT] = self._files.pop(ROOT + "index.html")

    async def answer(self, method: str, path: str, headers: Any) -> web.Response | None:
        """Returns the answer to a request, or None where there is nothing of that name.

        Args:
            method: Only GET and HEAD are answered.
            path: Of the request, without its query.
            headers: Of the request, by name.
        """
        if method not in ("GET", "HEAD"):
            return None
        if path == ROOT.rstrip("/"):
            return web.Response(status=308, headers={**_SAFE, "Location": ROOT})
        if path == _CONFIG:
            return await self._config()
        if path not in self._files:
            return None
        body, kind, tag = self._files[path]
        # A browser asks each time whether its copy is the newest: the package may be a newer one.
        caching = {**_SAFE, "Cache-Control": "no-cache", "ETag": tag}
        if headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=caching)
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=caching)

    async def _config(self):
        found = [
            (name, model.versions[max(model.available)].servable)
            for name, model in self._repository.models.items()
            if model.available
        ]
        models = await asyncio.to_thread(_descriptions, found)
        return web.Response(
            body=json.dumps({"models": models}).encode(),
            content_type="application/json",
            headers={**_SAFE, "Cache-Control": "no-store"},
        )


def _read(path):
    """Returns a file's content, its type, and a tag that another content would not have."""
    body = path.read_bytes()
    return body, _TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:16]}"'


def _descriptions(found):
    """Returns what the page has to know of each (name, `Servable`)."""
    return [
        {"name": name, "version": servable.version, "policy": _policy(servable.directory)}
        for name, servable in found
    ]


def _policy(directory):
    """Returns what an exported policy says of itself; None of a SavedModel from elsewhere."""
    try:
        path = pathlib.Path(directory) / "assets.extra" / "policy.json"
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
