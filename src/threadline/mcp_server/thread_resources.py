"""Threads as MCP resources: `threadline://threads/{id}` is the newest part of a thread as Markdown."""

from __future__ import annotations

from threadline.core.errors import NotFound
from threadline.core.threads import Page, Thread
from threadline.core.transfer import markdown_head, markdown_message
from threadline.ports import Gateway

PREFIX = "threadline://threads/"
TEMPLATE = PREFIX + "{id}"
MIME_TYPE = "text/markdown"
_PAGE = 50
_MESSAGES = 200
_CHARACTERS = 100_000


async def list_page(gateway: Gateway, cursor: str | None) -> Page[Thread]:
    """Latest activity first."""
    return await gateway.threads(limit=_PAGE, cursor=cursor)


async def read_markdown(gateway: Gateway, uri: str) -> str:
    """NotFound for a resource that does not exist, or is another user's."""
    thread_id = uri.removeprefix(PREFIX)
    if not uri.startswith(PREFIX) or not thread_id:
        raise NotFound("resource", uri)
    thread = await gateway.thread(thread_id)
    blocks: list[str] = []
    left = _CHARACTERS
    for message in reversed(await thread.messages(newest=_MESSAGES) if thread.info.message_count else []):
        block = markdown_message(message)
        left -= len(block)
        if left < 0:
            # The newest message is shown, whatever its length.
            blocks += [] if blocks else [block[:_CHARACTERS]]
            break
        blocks.append(block)
    left_out = thread.info.message_count - len(blocks)
    note = f"\n*{left_out} earlier messages are left out: use the tool read_thread.*\n" if left_out else ""
    return markdown_head(thread.info) + note + "".join(reversed(blocks))
