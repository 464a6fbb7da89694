"""The page at `/welcome`: what the service is and how to call it from a terminal. Also at `/` if the chat page is not
built.

It has no script, and a test runs every command on it.
"""

from __future__ import annotations

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from threadline.service.openapi.operation import ResponseSpec, operation
from threadline.service.routes.page import is_built
from threadline.version import __version__

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

_PAGE = """<!doctype html>
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

_HTML = ("text/html; charset=utf-8",)
_CHAT_PAGE = '<p>To chat in the browser, open <a href="./">the chat page</a>.</p>'
_NO_CHAT_PAGE = """<p>The chat page is not built here. Build it with <code>make page</code>, which needs npm's
registry, or install a wheel, which contains it.</p>"""


class WelcomeRoutes:
    def routes(self) -> list[Route]:
        routes = [Route("/welcome", self.read_page, methods=["GET"])]
        return routes if is_built() else [*routes, Route("/", self.read_front_page, methods=["GET"])]

    @operation(
        "welcome",
        "Open the welcome page",
        ResponseSpec(200, "An HTML page with commands to try.", str, media_types=_HTML),
        tag="operations",
    )
    async def read_page(self, request: Request) -> Response:
        url = str(request.base_url).rstrip("/")
        commands = "\n".join(
            f"<p>{escape(what)}</p>\n<pre>{escape(command.format(url=url), quote=False)}</pre>"
            for what, command in COMMANDS
        )
        chat_page = _CHAT_PAGE if is_built() else _NO_CHAT_PAGE
        return HTMLResponse(_PAGE.format(version=__version__, url=escape(url), commands=commands, chat_page=chat_page))

    @operation(
        "page",
        "Open the chat page",
        ResponseSpec(200, "The same as `/welcome`, because the chat page is not built.", str, media_types=_HTML),
        tag="operations",
    )
    async def read_front_page(self, request: Request) -> Response:
        return await self.read_page(request)
