"""The page at `/welcome`: what this is and how to talk to it from a terminal. Where no chat page is, `/` leads there.

It is plain, needs no script, and every command on it works as it stands.
"""

from __future__ import annotations

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from threadline.service.operation import ResponseSpec, operation
from threadline.service.routes.page import is_built
from threadline.version import __version__

COMMANDS = (
    (
        "Say something. The answer is streamed, and the thread is kept under the key you choose:",
        """curl -N {url}/api/v1/ai/chat -H 'content-type: application/json' \\
  -d '{{"id": "first", "message": {{"role": "user", "parts": [{{"type": "text", "text": "Hello"}}]}}}}'""",
    ),
    (
        "Say more. The agent knows what was said before, from the store and not from you:",
        """curl -N {url}/api/v1/ai/chat -H 'content-type: application/json' \\
  -d '{{"id": "first", "message": {{"role": "user", "content": "What did I say first?"}}}}'""",
    ),
    ("Read the thread, as UI messages:", "curl {url}/api/v1/ai/threads/first"),
    ("List your threads, or search in them:", "curl '{url}/api/v1/ai/threads?q=hello'"),
    ("Take the last question back:", "curl -X POST {url}/api/v1/ai/threads/first/undo"),
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
<p>This is a Threadline service: it keeps the conversations between people and AI agents. Threads live here, on the
server, so nobody can forge their history, and a stream that is cut off can be read again from its start.</p>
<p>It speaks the protocol of the AI SDK: point <code>useChat</code> at <code>{url}/api/v1/ai/chat</code>. From a
terminal:</p>
{commands}
{chat_page}
<p>Every call is described in <a href="docs">the reference</a>, and for programs in
<a href="openapi.json">openapi.json</a>.</p>
<p>Without a key and a network the agent <code>rehearsal</code> answers. Say <code>help</code> to it.</p>
</html>
"""

_HTML = ("text/html; charset=utf-8",)
_THERE = '<p>To talk in the browser, open <a href="./">the chat page</a>.</p>'
_MISSING = """<p>The chat page is not part of this copy: it is built by <code>make page</code>, which needs npm's
registry, and it comes with every wheel.</p>"""


class Welcome:
    def routes(self) -> list[Route]:
        """Both places; a chat page that stands before it takes `/`."""
        shown = [Route("/welcome", self.page, methods=["GET"])]
        return shown if is_built() else [*shown, Route("/", self.front, methods=["GET"])]

    @operation(
        "welcome",
        "A page that says what this is",
        ResponseSpec(200, "A page.", str, media_types=_HTML),
        tag="operations",
        needs=None,
    )
    async def page(self, request: Request) -> Response:
        url = str(request.base_url).rstrip("/")
        shown = "\n".join(
            f"<p>{escape(what)}</p>\n<pre>{escape(command.format(url=url), quote=False)}</pre>"
            for what, command in COMMANDS
        )
        chat_page = _THERE if is_built() else _MISSING
        return HTMLResponse(_PAGE.format(version=__version__, url=escape(url), commands=shown, chat_page=chat_page))

    @operation(
        "page",
        "The page",
        ResponseSpec(200, "The same as `/welcome`, because the chat page was not built.", str, media_types=_HTML),
        tag="operations",
        needs=None,
    )
    async def front(self, request: Request) -> Response:
        return await self.page(request)
