"""The tools that MCP clients get: list, search, read, append, branch and save. None deletes or overwrites anything.

A tool is a struct of arguments and a function of a gateway that returns plain JSON data. Answers are bounded: what was
left out is named, together with the call that reads it. Nothing here knows the MCP SDK.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from threadline.core.errors import InvalidInput, quote
from threadline.core.ids import new_id
from threadline.core.messages import Message, NewMessage, new_message
from threadline.core.threads import SavedPoint, Thread, ThreadHits
from threadline.core.transfer import markdown_body
from threadline.ports import Gateway

ANSWER_CHARACTERS = 60_000
"""Of the texts of one answer. A longer one fills the context of many models."""
_MOST_SAVED_POINTS = 200
_THREAD = "id or state key of the thread, as list_threads and search_threads return it"
_AT = "a message: its number `seq` or its id; the end of the thread if omitted"

ThreadName = Annotated[str, msgspec.Meta(min_length=1, max_length=256, description=_THREAD)]
Place = Annotated[int | str | None, msgspec.Meta(description=_AT)]
From = Annotated[int, msgspec.Meta(ge=0)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Title = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Cursor = Annotated[str | None, msgspec.Meta(description="`next_cursor` of the page before")]


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a tool."""


class ListThreads(Arguments, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    cursor: Cursor = None
    archived: Annotated[bool | None, msgspec.Meta(description="null lists archived and other threads")] = False
    tag: str | None = None
    agent: Annotated[str | None, msgspec.Meta(description="id of the thread's agent")] = None


class SearchThreads(Arguments, frozen=True):
    query: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, description="words that must all occur")]
    limit: Annotated[int, msgspec.Meta(ge=1, le=50)] = 10
    cursor: Cursor = None


class ReadThread(Arguments, frozen=True):
    thread: ThreadName
    first: Annotated[From | None, msgspec.Meta(description="`seq` to begin at; the newest if omitted")] = None
    around: Annotated[int | str | None, msgspec.Meta(description="a hit of a search: its `seq` or message id")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="messages")] = 20
    characters: Annotated[int, msgspec.Meta(ge=100, le=50_000, description="of each message")] = 4_000


class Said(Arguments, frozen=True):
    """A message to append."""

    role: Literal["user", "assistant"]
    text: Annotated[str, msgspec.Meta(min_length=1)]


class AppendMessages(Arguments, frozen=True):
    messages: Annotated[list[Said], msgspec.Meta(min_length=1, max_length=50)]
    thread: Annotated[Text | None, msgspec.Meta(description=f"{_THREAD}; a new thread if omitted")] = None
    title: Annotated[Title | None, msgspec.Meta(description="of a new thread")] = None
    key: Annotated[
        Title | None,
        msgspec.Meta(description="any id of this call: a repeat with the same key stores nothing twice"),
    ] = None


class BranchThread(Arguments, frozen=True):
    thread: ThreadName
    at: Place = None
    title: Title | None = None


class SavePoint(Arguments, frozen=True):
    thread: ThreadName
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100, description="a name used before moves")]
    at: Place = None


class ListSavedPoints(Arguments, frozen=True):
    pass


class ToolSpec(NamedTuple):
    name: str
    title: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Gateway, Any], Awaitable[dict[str, Any]]]
    writes: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """The arguments as JSON Schema."""
        (reference,), components = msgspec.json.schema_components([self.arguments], ref_template="#/$defs/{name}")
        name = reference["$ref"].rpartition("/")[2]
        plain = {key: value for key, value in components.pop(name).items() if key not in ("title", "description")}
        return {**plain, "$defs": components} if components else plain


async def _list_threads(gateway: Gateway, given: ListThreads) -> dict[str, Any]:
    page = await gateway.threads(
        limit=given.limit, cursor=given.cursor, archived=given.archived, tag=given.tag, agent=given.agent
    )
    return _with_cursor({"threads": [_thread(thread) for thread in page]}, page.next_cursor)


async def _search_threads(gateway: Gateway, given: SearchThreads) -> dict[str, Any]:
    page = await gateway.search_threads(given.query, limit=given.limit, cursor=given.cursor, passages=3)
    return _with_cursor({"threads": [_found(hits) for hits in page]}, page.next_cursor)


def _found(found: ThreadHits) -> dict[str, Any]:
    hits = [{"seq": hit.seq, "message": hit.message_id, "role": hit.role, "text": hit.snippet} for hit in found.hits]
    return {"thread": found.thread_id, "title": found.title, "hit_count": found.hit_count, "hits": hits}


async def _read_thread(gateway: Gateway, given: ReadThread) -> dict[str, Any]:
    if given.first is not None and given.around is not None:
        raise InvalidInput("`first` and `around` cannot be combined: give one of them")
    thread = await gateway.thread(given.thread)
    is_newest = given.first is None and given.around is None
    if given.around is not None:
        found = await thread.messages(around=given.around, within=given.limit // 2)
    elif given.first is not None:
        found = await thread.messages(first=given.first, last=given.first + given.limit - 1)
    else:
        found = await thread.messages(newest=given.limit)
    shown = _bounded(reversed(found) if is_newest else found, given.characters)
    if is_newest:
        shown.reverse()
    answer: dict[str, Any] = {"thread": _thread(thread.info), "messages": shown}
    if shown and shown[0]["seq"] > 0:
        answer["earlier"] = f"read_thread with first={max(0, shown[0]['seq'] - given.limit)}"
    if shown and shown[-1]["seq"] + 1 < thread.info.message_count:
        answer["later"] = f"read_thread with first={shown[-1]['seq'] + 1}"
    return answer


def _bounded(messages: Iterable[Message], characters: int) -> list[dict[str, Any]]:
    """At least one message, and as many more as fit into an answer."""
    shown: list[dict[str, Any]] = []
    left = ANSWER_CHARACTERS
    for message in messages:
        text = markdown_body(message).strip()
        entry = {
            "seq": message.seq,
            "id": message.id,
            "role": message.role,
            "at": message.created_at.isoformat(timespec="seconds"),
            "text": text[:characters],
        }
        if len(text) > characters:
            entry["left_out"] = f"{len(text) - characters} characters: read_thread with a larger `characters`"
        left -= min(len(text), characters) + 100
        if shown and left < 0:
            break
        shown.append(entry)
    return shown


async def _append_messages(gateway: Gateway, given: AppendMessages) -> dict[str, Any]:
    # Hashed, because a service takes only some characters in keys.
    key = None if given.key is None else f"mcp-{hashlib.sha256(given.key.encode()).hexdigest()[:32]}"
    if given.thread is not None:
        if given.title is not None:
            raise InvalidInput("`title` is for a new thread: leave out `thread` or `title`")
        thread = await gateway.thread(given.thread)
    elif key is not None:
        thread = await gateway.open_thread(key, title=given.title)
    else:
        thread = await gateway.create_thread(title=given.title)
    new: list[NewMessage] = [new_message(each.role, each.text, id=new_id()) for each in given.messages]
    done = await thread.append(*new, key=key)
    return {
        "thread": thread.id,
        "messages": [
            {"seq": done.first_seq + place, "id": message_id} for place, message_id in enumerate(done.message_ids)
        ],
        "was_stored_before": done.replayed,
    }


async def _branch_thread(gateway: Gateway, given: BranchThread) -> dict[str, Any]:
    thread = await gateway.thread(given.thread)
    branch = await thread.branch(at=given.at, title=given.title)
    return {"thread": _thread(branch.info)}


async def _save_point(gateway: Gateway, given: SavePoint) -> dict[str, Any]:
    thread = await gateway.thread(given.thread)
    return {"saved": _saved(await thread.save(given.name, at=given.at))}


async def _list_saved_points(gateway: Gateway, given: ListSavedPoints) -> dict[str, Any]:
    points = await gateway.saved_points()
    answer: dict[str, Any] = {"saved_points": [_saved(point) for point in points[:_MOST_SAVED_POINTS]]}
    if len(points) > _MOST_SAVED_POINTS:
        answer["left_out"] = len(points) - _MOST_SAVED_POINTS
    return answer


def _thread(thread: Thread) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": thread.id,
        "title": thread.title,
        "message_count": thread.message_count,
        "updated_at": thread.updated_at.isoformat(timespec="seconds"),
    }
    if thread.archived_at is not None:
        shown["is_archived"] = True
    if isinstance(tags := thread.metadata.get("tags"), list):
        shown["tags"] = tags[:20]
    return shown


def _saved(point: SavedPoint) -> dict[str, Any]:
    return {"name": point.name, "thread": point.thread_id, "seq": point.point.seq}


def _with_cursor(answer: dict[str, Any], cursor: str | None) -> dict[str, Any]:
    return answer if cursor is None else {**answer, "next_cursor": cursor}


TOOLS = (
    ToolSpec(
        "list_threads", "List threads", "Lists the user's threads, latest activity first.", ListThreads, _list_threads
    ),
    ToolSpec(
        "search_threads",
        "Search threads",
        "Finds threads by their titles and messages, with the best passages. Read around a hit with read_thread.",
        SearchThreads,
        _search_threads,
    ),
    ToolSpec(
        "read_thread",
        "Read a thread",
        "Reads messages of a thread: the newest, those from `first` on, or those around a hit.",
        ReadThread,
        _read_thread,
    ),
    ToolSpec(
        "list_saved_points",
        "List saved points",
        "Lists the points of threads that the user gave a name.",
        ListSavedPoints,
        _list_saved_points,
    ),
    ToolSpec(
        "append_messages",
        "Append messages",
        "Stores messages at the end of a thread, or in a new one. No agent answers them.",
        AppendMessages,
        _append_messages,
        writes=True,
    ),
    ToolSpec(
        "branch_thread",
        "Branch a thread",
        "Creates a new thread that begins as this one, up to and with a message. This one does not change.",
        BranchThread,
        _branch_thread,
        writes=True,
    ),
    ToolSpec(
        "save_point",
        "Save a point",
        "Gives a point of a thread a name, so that it can be found and continued later.",
        SavePoint,
        _save_point,
        writes=True,
    ),
)


def find_tool(name: str) -> ToolSpec:
    """InvalidInput if there is none."""
    for tool in TOOLS:
        if tool.name == name:
            return tool
    raise InvalidInput(f"tool must be one of {', '.join(tool.name for tool in TOOLS)}, got {quote(name)}")


async def call_tool(gateway: Gateway, name: str, arguments: dict[str, Any] | None) -> bytes:
    """The answer as JSON. InvalidInput names a wrong argument."""
    tool = find_tool(name)
    try:
        given = msgspec.convert(arguments or {}, tool.arguments)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"arguments of {name} are not valid: {exc}") from exc
    return msgspec.json.encode(await tool.run(gateway, given))
