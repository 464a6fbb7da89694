"""JSON bodies that the service sends and the client reads. The OpenAPI document is generated from the same structs.

Keys are camelCase and times are RFC 3339 in UTC. A field whose value is its default is left out, never sent as null:
AI SDK clients reject a null where a key is optional. Readers skip keys they do not know, so that an older client can
read a newer service. Bodies that only the service and its web page use are declared beside their routes.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, TypeAlias

import msgspec

from threadline.core import ids
from threadline.core.channels import LinkState
from threadline.core.messages import Role
from threadline.core.threads import UserRole
from threadline.core.turns import SummarySource, Surface, TurnStatus
from threadline.core.usage import UsageKind

Moment: TypeAlias = Annotated[dt.datetime, msgspec.Meta(tz=True)]
_OWN_KEY = "The thread's key, chosen by the caller. Each user has their own keys."
StateKey: TypeAlias = Annotated[
    str, msgspec.Meta(description=_OWN_KEY, extra_json_schema={"pattern": ids.STATE_KEY_PATTERN})
]
Id: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": ids.ID_PATTERN})]
Name: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        description="Visible characters only.", extra_json_schema={"minLength": 1, "maxLength": ids.NAME_LENGTH}
    ),
]
UiParts: TypeAlias = Annotated[
    msgspec.Raw,
    msgspec.Meta(
        description="Parts of an AI SDK UIMessage. `type` says which kind; the other keys depend on it.",
        extra_json_schema={
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"type": {"type": "string"}, "text": {"type": "string"}},
                "required": ["type"],
            },
        },
    ),
]
"""Raw bytes on both sides: stored parts are sent as they are and decoded only when they are used."""


class ApiStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all response bodies. A field that may be None has None as its default, so it is left out."""


class OkResponse(ApiStruct, frozen=True):
    ok: bool


class ThreadInfo(ApiStruct, frozen=True):
    """A thread without its messages."""

    state_key: str
    id: str
    owner_id: str
    timeline_id: str
    message_count: int
    token_count: int
    created_at: Moment
    updated_at: Moment
    title: str | None = None
    title_by_person: bool = False
    agent_id: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    working_dir: str | None = None
    metadata: dict[str, Any] = {}
    archived_at: Moment | None = None
    deleted_at: Moment | None = None


class ListedThread(ThreadInfo, frozen=True):
    """`surfaces` are the surfaces of its latest turns."""

    surfaces: tuple[Surface, ...] | None = None


class ThreadsResponse(ApiStruct, frozen=True):
    threads: list[ListedThread]
    next_cursor: str | None = None


class ImportResponse(ApiStruct, frozen=True):
    threads: list[ThreadInfo]


class MeResponse(ApiStruct, frozen=True):
    """The caller, as the service authenticated them."""

    tenant: str
    user: str
    role: UserRole
    display_name: str | None = None


class HomeResponse(ApiStruct, frozen=True):
    thread: ThreadInfo | None = None


class MessageInfo(ApiStruct, frozen=True):
    """A stored message in the form of an AI SDK UIMessage."""

    id: str
    role: Role
    parts: UiParts
    metadata: dict[str, Any] = {}


class StoredMessage(ApiStruct, frozen=True):
    """A message as it is stored: the UIMessage and its place in the thread."""

    id: str
    role: Role
    seq: int
    timeline_id: str
    created_at: Moment
    parts: UiParts
    metadata: dict[str, Any] = {}
    turn_id: str | None = None


class MessagesResponse(ApiStruct, frozen=True):
    messages: list[StoredMessage]


class ThreadStateInfo(ApiStruct, frozen=True):
    """The fields of a thread that an append changes, as they are after it."""

    timeline_id: str
    message_count: int
    token_count: int
    updated_at: Moment
    title: str | None = None


class AppendResponse(ApiStruct, frozen=True):
    """`replayed` means that the same request was stored before and nothing was written now."""

    timeline_id: str
    first_seq: int
    message_ids: tuple[str, ...]
    message_count: int
    thread: ThreadStateInfo
    replayed: bool = False
    value_versions: tuple[int, ...] = ()


class ThreadHistory(ThreadInfo, frozen=True, kw_only=True):
    """A thread with messages, the first at `firstSeq`. While a turn runs (`active`), its reply is not among them."""

    active: bool
    first_seq: int
    messages: list[MessageInfo]


class EmptyHistory(ApiStruct, frozen=True):
    """No thread exists under this key yet."""

    state_key: str
    messages: list[MessageInfo]


class ForkPoint(ApiStruct, frozen=True):
    timeline_id: str
    seq: int


class TimelineInfo(ApiStruct, frozen=True):
    """One version of a thread. `parent` is the point where it forked."""

    id: str
    current: bool
    message_count: int
    created_at: Moment
    parent: ForkPoint | None = None


class TimelinesResponse(ApiStruct, frozen=True):
    timelines: list[TimelineInfo]


class SavedPointInfo(ApiStruct, frozen=True):
    """A named point of a thread: all messages up to and including `seq`."""

    name: str
    thread_id: str
    timeline_id: str
    seq: int
    created_at: Moment


class SavedPointsResponse(ApiStruct, frozen=True):
    saves: list[SavedPointInfo]


class TokenUsage(ApiStruct, frozen=True, kw_only=True):
    """Tokens that a turn used. `cachedTokens` are among the input tokens, `reasoningTokens` among the output tokens.
    `cost` is present if the model had a price."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost: float | None = None


class TurnInfo(ApiStruct, frozen=True, kw_only=True):
    """One request and its reply: where it came from, how it ended, what it cost."""

    id: str
    thread_id: str
    status: TurnStatus
    surface: Surface
    agent_id: str | None = None
    provider: str | None = None
    model: str | None = None
    error: str | None = None
    usage: TokenUsage | None = None
    prompt_tokens: int | None = None
    window_tokens: int | None = None
    request_seq: int | None = None
    reply_seq: int | None = None
    created_at: Moment
    finished_at: Moment | None = None
    taken_by: str | None = None


class TurnsResponse(ApiStruct, frozen=True):
    turns: list[TurnInfo]


class UsageEntry(ApiStruct, frozen=True, kw_only=True):
    """What one group used. Keys that it is not grouped by are left out, and `cost` if nothing in it had a price."""

    day: dt.date | None = None
    user: str | None = None
    agent: str | None = None
    provider: str | None = None
    model: str | None = None
    kind: UsageKind | None = None
    turns: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost: float | None = None


class UsageResponse(ApiStruct, frozen=True):
    """`currency` is the currency of every cost."""

    usage: list[UsageEntry]
    currency: str


class StopResponse(ApiStruct, frozen=True):
    """`stopped` is the number of turns that were running."""

    ok: bool
    stopped: int


class SummaryResponse(ApiStruct, frozen=True):
    """The text that replaces the older messages in prompts. Empty if there is none. `source` is who wrote it: `model`,
    `extract` (no model did) or `person` (edited)."""

    timeline_id: str | None = None
    seq: int | None = None
    text: str | None = None
    created_at: Moment | None = None
    source: SummarySource | None = None
    model: str | None = None


class PruneResponse(ApiStruct, frozen=True):
    """`removed` is the number of threads that were removed."""

    removed: int


class ForgetResponse(ApiStruct, frozen=True):
    """`forgotten` is false if there was no such saved point."""

    ok: bool
    forgotten: bool


class AgentInfo(ApiStruct, frozen=True):
    """An agent of the tenant. Secrets in its settings are masked."""

    id: str
    name: str
    provider: str
    settings: dict[str, Any]
    enabled: bool
    model: str | None = None
    system_prompt: str | None = None


class AgentsResponse(ApiStruct, frozen=True):
    """The tenant's agents, the ids of the agents that every tenant has, and the id of the default agent. `models` are
    the models that may be chosen, by agent; an agent that is not in it takes any."""

    agents: list[AgentInfo]
    shared: list[str]
    default: str
    models: dict[str, list[str]] = msgspec.field(default_factory=dict)


class PinnedContext(ApiStruct, frozen=True):
    """The text that a user pinned for an agent."""

    agent_id: str
    owner_id: str
    context: str
    created_at: Moment
    updated_at: Moment


class LinkInfo(ApiStruct, frozen=True):
    """An account on a platform and the user it belongs to. A revoked link blocks the account."""

    platform: Surface
    platform_user_id: str
    user_id: str
    state: LinkState
    created_at: Moment
    updated_at: Moment


class LinksResponse(ApiStruct, frozen=True):
    links: list[LinkInfo]


class RedeemedLinkResponse(ApiStruct, frozen=True):
    """The user that the account is linked to now."""

    user_id: str


class ArrivalResponse(ApiStruct, frozen=True):
    """What became of an event that a bot delivered, and the turn that it began, if any."""

    decision: str
    user_id: str | None = None
    turn_id: str | None = None


class BridgeDelivery(ApiStruct, frozen=True):
    """A delivery that a bot has claimed. `payload` is JSON for the platform's bot."""

    id: str
    recipient: str
    payload: str
    attempts: int
    turn_id: str | None = None


class ClaimedResponse(ApiStruct, frozen=True):
    deliveries: list[BridgeDelivery]


class SettledResponse(ApiStruct, frozen=True):
    """False if the claim is no longer this worker's."""

    settled: bool


class PlaceInfo(ApiStruct, frozen=True):
    """A room that is bound to a thread, or a user's space."""

    place: str
    sender: str
    user_id: str
    thread_id: str
    label: str | None = None
    is_space: bool = False
    is_shared: bool = False


class PlacesResponse(ApiStruct, frozen=True):
    places: list[PlaceInfo]


class RestoredResponse(ApiStruct, frozen=True):
    """False if the place was bound already, or its sender is not linked."""

    restored: bool
