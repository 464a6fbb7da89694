"""The page at `/` and at `/t/{stateKey}`: what `tools/page.py` built, held in memory.

Files are looked up by name in what was read at the start, so no path of a request ever reaches the disk. Assets carry
a hash in their name and may be kept for ever; the page itself is asked for each time. Its policy lets nothing in but
its own files: no inline script or style, nothing from elsewhere, and no text ever becomes markup.
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
from threadline.service.operation import ResponseSpec, operation

BUILT = Path(__file__).parents[1] / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'self'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HTML = ("text/html; charset=utf-8",)
_BASE = '<base href="/" />'
_FOREVER = "public, max-age=31536000, immutable"
_WORTH_PACKING = 1024


class Asset:
    """One file, and its packed form once someone asked for it."""

    def __init__(self, path: Path) -> None:
        self._body = path.read_bytes()
        self._type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"

    @cached_property
    def _packed(self) -> bytes:
        return gzip.compress(self._body, mtime=0)

    def response(self, request: Request, cache: str) -> Response:
        headers = {"Cache-Control": cache, "Vary": "Accept-Encoding"}
        if len(self._body) < _WORTH_PACKING or "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self._body, headers=headers, media_type=self._type)
        return Response(self._packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=self._type)


class ChatPage:
    def __init__(self, folder: Path = BUILT) -> None:
        self._index = (folder / "index.html").read_text(encoding="utf-8")
        assert _BASE in self._index, "the page says where it is mounted"
        self._assets = {path.name: Asset(path) for path in sorted((folder / "assets").iterdir())}

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self.index, methods=["GET"]),
            Mount("/t", _gets(self.thread)),
            Mount("/assets", _gets(self.asset)),
        ]

    @operation(
        "page",
        "The page",
        ResponseSpec(200, "The chat page. Its threads have addresses below `/t/`.", str, media_types=_HTML),
        tag="operations",
        needs=None,
    )
    async def index(self, request: Request) -> Response:
        return self._page(request.scope["root_path"])

    async def thread(self, request: Request) -> Response:
        """The same page: which thread it shows is the page's to read from its address."""
        return self._page(request.scope["root_path"].removesuffix("/t"))

    def _page(self, root: str) -> Response:
        headers = {"Cache-Control": "no-cache", "Content-Security-Policy": POLICY}
        shown = self._index.replace(_BASE, f'<base href="{escape(root)}/" />')
        return Response(shown, headers=headers, media_type="text/html")

    async def asset(self, request: Request) -> Response:
        name = request.scope["path"].removeprefix(f"{request.scope['root_path']}/")
        if name not in self._assets:
            raise NotFound("file", name)
        return self._assets[name].response(request, _FOREVER)


def _gets(handler: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    """A handler for whatever lies below a path: names of files and threads, which are no part of the API."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method not in ("GET", "HEAD"):
            raise HTTPException(405, "Method Not Allowed", {"Allow": "GET, HEAD"})
        await (await handler(request))(scope, receive, send)

    return app


def is_built(folder: Path = BUILT) -> bool:
    return (folder / "index.html").is_file()
