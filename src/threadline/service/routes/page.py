"""The chat page at `/` and at `/t/{stateKey}`: what `tools/page.py` built, held in memory.

Files are looked up by name among those read at the start, so no path of a request reaches the disk. Assets have a hash
in their name and are cached for ever; the page itself is revalidated each time. Its content security policy allows only
its own files: no inline script or style, nothing from other origins, and no text that becomes markup.
"""

from __future__ import annotations

import gzip
import mimetypes
from collections.abc import Awaitable, Callable
from functools import cached_property
from html import escape
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from threadline.core.errors import NotFound
from threadline.service.openapi.operation import ResponseSpec, operation

BUILT = Path(__file__).parents[1] / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'self'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HTML = ("text/html; charset=utf-8",)
_BASE = '<base href="/" />'
_FOREVER = "public, max-age=31536000, immutable"
_MIN_GZIP_BYTES = 1024


class Asset:
    """One file. Compressed on the first request that accepts gzip."""

    def __init__(self, path: Path) -> None:
        self._body = path.read_bytes()
        self._type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"

    @cached_property
    def _compressed(self) -> bytes:
        return gzip.compress(self._body, mtime=0)

    def response(self, request: Request, cache: str) -> Response:
        headers = {"Cache-Control": cache, "Vary": "Accept-Encoding"}
        if len(self._body) < _MIN_GZIP_BYTES or "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self._body, headers=headers, media_type=self._type)
        return Response(self._compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=self._type)


class PageRoutes:
    def __init__(self, folder: Path = BUILT) -> None:
        self._index = (folder / "index.html").read_text(encoding="utf-8")
        assert _BASE in self._index, "index.html needs the base element, which says where the app is mounted"
        self._assets = {path.name: Asset(path) for path in sorted((folder / "assets").iterdir())}

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self.read_page, methods=["GET"]),
            Mount("/t", _get_only(self.read_thread_page)),
            Mount("/assets", _get_only(self.read_asset)),
        ]

    @operation(
        "page",
        "Open the chat page",
        ResponseSpec(200, "The chat page. Threads have addresses below `/t/`.", str, media_types=_HTML),
        tag="operations",
    )
    async def read_page(self, request: Request) -> Response:
        return self._page(request.scope["root_path"])

    async def read_thread_page(self, request: Request) -> Response:
        """The same page. Its script reads the thread's key from the address."""
        return self._page(request.scope["root_path"].removesuffix("/t"))

    def _page(self, root: str) -> Response:
        headers = {"Cache-Control": "no-cache", "Content-Security-Policy": POLICY}
        html = self._index.replace(_BASE, f'<base href="{escape(root)}/" />')
        return Response(html, headers=headers, media_type="text/html")

    async def read_asset(self, request: Request) -> Response:
        name = request.scope["path"].removeprefix(f"{request.scope['root_path']}/")
        if name not in self._assets:
            raise NotFound("file", name)
        return self._assets[name].response(request, _FOREVER)


def _get_only(handler: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    """An ASGI app for everything below a path. File names and thread keys are not part of the API document."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method not in ("GET", "HEAD"):
            raise HTTPException(405, "Method Not Allowed", {"Allow": "GET, HEAD"})
        await (await handler(request))(scope, receive, send)

    return app


def is_built(folder: Path = BUILT) -> bool:
    return (folder / "index.html").is_file()
