"""The chat page at `/` and `/t/{stateKey}`, and the welcome page at `/welcome`.

The chat page is what `tools/page.py` built. Its files are looked up by name among those read at the start, so no path
of a request reaches the disk. Assets have a hash in their name and are cached for ever; the page itself is revalidated
each time. Its content security policy allows only its own files: no inline script or style, nothing from other origins,
and no text that becomes markup. If it is not built, the welcome page is at `/` too.
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
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from threadline.core.errors import NotFound
from threadline.service.openapi.operation import ResponseSpec, operation
from threadline.version import __version__

BUILT = Path(__file__).parents[1] / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'self'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HTML = ("text/html; charset=utf-8",)
_BASE = '<base href="/" />'
_FOREVER = "public, max-age=31536000, immutable"
# Smaller files fit into one packet anyway.
_MIN_GZIP_BYTES = 1024

COMMANDS = (
    (
        "Send a message. The answer is streamed, and the thread is stored under the key you choose:",
        """curl -N {url}/api/v1/ai/chat -H 'content-type: application/json' \\
  -d '{{"id": "first", "message": {{"role": "user", "parts": [{{"type": "text", "text": "Hello"}}]}}}}'""",
    ),
    (
        "Send another. The history comes from the database, so you send only the new message:",
        """curl -N {url}/api/v1/ai/chat -H 'content-type: application/json' \\
  -d '{{"id": "first", "message": {{"role": "user", "content": "What did I say first?"}}}}'""",
    ),
    ("Read the thread as UI messages:", "curl {url}/api/v1/ai/threads/first"),
    ("List your threads, or search them:", "curl '{url}/api/v1/ai/threads?q=hello'"),
    ("Undo the last message and its answer:", "curl -X POST {url}/api/v1/ai/threads/first/undo"),
)

_WELCOME = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Threadline</title>
<style>
  body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem; }}
  pre {{ background: #8881; padding: .75rem 1rem; border-radius: .4rem; overflow-x: auto; }}
  :root {{ color-scheme: light dark; }}
</style>
<h1>Threadline {version}</h1>
<p>This is a Threadline service: it stores conversations between people and AI agents. Threads are stored on the
server, so clients cannot forge their history, and an interrupted stream can be resumed.</p>
<p>It implements the protocol of the AI SDK: point <code>useChat</code> at <code>{url}/api/v1/ai/chat</code>. From a
terminal:</p>
{commands}
{chat_page}
<p>All routes are described in <a href="docs">the API reference</a>, and for programs in
<a href="openapi.json">openapi.json</a>.</p>
<p>The agent <code>rehearsal</code> answers without an API key or a network. Send it <code>help</code>.</p>
</html>
"""

_CHAT_PAGE = '<p>To chat in the browser, open <a href="./">the chat page</a>.</p>'
_NO_CHAT_PAGE = """<p>The chat page is not built here. Build it with <code>make page</code>, which needs npm's
registry, or install a wheel, which contains it.</p>"""


class Asset:
    """One file. Compressed on the first request that accepts gzip."""

    def __init__(self, path: Path) -> None:
        self._body = path.read_bytes()
        self._type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"

    @cached_property
    def _compressed(self) -> bytes:
        # Without a time stamp, so that the same file always compresses to the same bytes.
        return gzip.compress(self._body, mtime=0)

    def response(self, request: Request, cache: str) -> Response:
        headers = {"Cache-Control": cache, "Vary": "Accept-Encoding"}
        if len(self._body) < _MIN_GZIP_BYTES or "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self._body, headers=headers, media_type=self._type)
        return Response(self._compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=self._type)


class ChatPage:
    def __init__(self, folder: Path) -> None:
        self._index = (folder / "index.html").read_text(encoding="utf-8")
        assert _BASE in self._index, "index.html needs the base element, which says where the app is mounted"
        self._assets = {path.name: Asset(path) for path in sorted((folder / "assets").iterdir())}

    def page(self, root: str) -> Response:
        headers = {"Cache-Control": "no-cache", "Content-Security-Policy": POLICY}
        html = self._index.replace(_BASE, f'<base href="{escape(root)}/" />')
        return Response(html, headers=headers, media_type="text/html")

    async def read_thread_page(self, request: Request) -> Response:
        """The same page. Its script reads the thread's key from the address."""
        return self.page(request.scope["root_path"].removesuffix("/t"))

    async def read_asset(self, request: Request) -> Response:
        name = request.scope["path"].removeprefix(f"{request.scope['root_path']}/")
        if name not in self._assets:
            raise NotFound("file", name)
        return self._assets[name].response(request, _FOREVER)


class PageRoutes:
    """`folder` is where the chat page was built, if it was."""

    def __init__(self, folder: Path = BUILT) -> None:
        self._chat_page = ChatPage(folder) if (folder / "index.html").is_file() else None

    def routes(self) -> list[BaseRoute]:
        routes: list[BaseRoute] = [
            Route("/", self.read_page, methods=["GET"]),
            Route("/welcome", self.read_welcome, methods=["GET"]),
        ]
        if self._chat_page is not None:
            routes += [
                Mount("/t", _get_only(self._chat_page.read_thread_page)),
                Mount("/assets", _get_only(self._chat_page.read_asset)),
            ]
        return routes

    @operation(
        "page",
        "Open the chat page",
        ResponseSpec(200, "The chat page, or the welcome page if it is not built.", str, media_types=_HTML),
        tag="operations",
    )
    async def read_page(self, request: Request) -> Response:
        if self._chat_page is None:
            return self._welcome(request)
        return self._chat_page.page(request.scope["root_path"])

    @operation(
        "welcome",
        "Open the welcome page",
        ResponseSpec(200, "An HTML page with commands to try.", str, media_types=_HTML),
        tag="operations",
    )
    async def read_welcome(self, request: Request) -> Response:
        return self._welcome(request)

    def _welcome(self, request: Request) -> Response:
        url = str(request.base_url).rstrip("/")
        commands = "\n".join(
            f"<p>{escape(what)}</p>\n<pre>{escape(command.format(url=url), quote=False)}</pre>"
            for what, command in COMMANDS
        )
        chat_page = _NO_CHAT_PAGE if self._chat_page is None else _CHAT_PAGE
        return HTMLResponse(
            _WELCOME.format(version=__version__, url=escape(url), commands=commands, chat_page=chat_page)
        )


def _get_only(handler: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    """An ASGI app for everything below a path. File names and thread keys are not part of the API document."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method not in ("GET", "HEAD"):
            raise HTTPException(405, "Method Not Allowed", {"Allow": "GET, HEAD"})
        await (await handler(request))(scope, receive, send)

    return app
