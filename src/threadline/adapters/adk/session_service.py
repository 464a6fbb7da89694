"""`ThreadlineSessionService`: sessions of Google's ADK are threads, their events are messages of the threads.

The session of an app is the thread of its user with the state key `APP/SESSION`. An event is stored with the state that
it changes in one transaction, and only if nothing was added to the thread since the session was read.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session

from threadline.adapters.adk import session_state
from threadline.adapters.adk.event_parts import shown_parts, shown_role, to_events
from threadline.adapters.exact_log import ExactLog, Shown
from threadline.adapters.loop_bridge import LoopBridge
from threadline.bootstrap import Threadline
from threadline.core.errors import DuplicateId, HeadMoved, NotFound, UnderLegalHold
from threadline.core.ids import is_id, new_id
from threadline.core.messages import Message
from threadline.core.threads import Thread
from threadline.ports import Gateway, GatewayThread
from threadline.sync_api import SyncThreadline

_APP = "adk_app"
_STALE = (
    "the session was changed since it was read: read it again with get_session before appending, "
    "or use one session object at a time"
)
_LONGEST_ID = 100


class ThreadlineSessionService(BaseSessionService):
    """`threadline` is an open database: the users of ADK's calls are its users. What an app shares (`app:` state) and
    lists of all users need an administrator, so the service acts as one; a user's threads stay the user's."""

    def __init__(self, threadline: Threadline | SyncThreadline, *, tenant: str | None = None) -> None:
        self._threadline, self._tenant = threadline, tenant
        self._bridge = LoopBridge(threadline.as_user(tenant=tenant))
        self._log = ExactLog("adk.events")

    def _user(self, user_id: str | None = None) -> Gateway:
        if isinstance(self._threadline, SyncThreadline):
            return self._threadline.as_user(user_id, tenant=self._tenant, role="admin").asynchronous()[0]
        return self._threadline.as_user(user_id, tenant=self._tenant, role="admin")

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        return await self._bridge.run(self._create(app_name, user_id, state or {}, _trimmed(session_id) or new_id()))

    async def _create(self, app_name: str, user_id: str, state: dict[str, Any], session_id: str) -> Session:
        user = self._user(user_id)
        try:
            thread = await user.create_thread(state_key=_key(app_name, session_id), metadata={_APP: app_name})
        except DuplicateId:
            raise AlreadyExistsError(f"session {session_id!r} already exists") from None
        changes = session_state.changes(app_name, state)
        if changes:
            try:
                await thread.values.write(*changes)
            except BaseException:
                # Without its state it would be another session than the one that was asked for.
                await thread.delete()
                await thread.purge()
                raise
        return await self._session(app_name, user, thread, [])

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        return await self._bridge.run(self._get(app_name, user_id, session_id, config or GetSessionConfig()))

    async def _get(self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig) -> Session | None:
        user = self._user(user_id)
        try:
            thread = await user.thread(_key(app_name, _trimmed(session_id)))
            most = config.num_recent_events
            if most == 0:
                messages: list[Message] = []
            else:
                messages = await thread.messages() if most is None else await thread.messages(newest=most)
            events = await self._events(app_name, thread, messages)
            session = await self._session(app_name, user, thread, messages)
        except NotFound:
            return None
        if most is not None:
            # A message that was not written by ADK may be several events.
            events = events[-most:] if most else []
        after = config.after_timestamp
        if events:
            session.last_update_time = events[-1].timestamp
        session.events = [event for event in events if after is None or event.timestamp >= after]
        return session

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        return await self._bridge.run(self._list(app_name, user_id))

    async def _list(self, app_name: str, user_id: str | None) -> ListSessionsResponse:
        app = await session_state.read_app_state(self._user().tenant_values, app_name)
        users: dict[str, tuple[Gateway, dict[str, Any]]] = {}
        sessions = []
        async for info in self._threads(app_name, user_id):
            if info.owner_id not in users:
                user = self._user(info.owner_id)
                users[info.owner_id] = user, await session_state.read_app_state(user.values, app_name)
            user, shared = users[info.owner_id]
            try:
                own = await session_state.read_session_state((await user.thread(info.id)).values)
            except NotFound:
                # It was deleted since the list was read.
                continue
            sessions.append(_new_session(app_name, info, session_state.merged(own, shared, app)))
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def _threads(self, app_name: str, user_id: str | None) -> AsyncIterator[Thread]:
        cursor: str | None = None
        while True:
            if user_id is None:
                page = await self._user().all_threads(limit=100, cursor=cursor, archived=None, where={_APP: app_name})
            else:
                user = self._user(user_id)
                page = await user.threads(limit=100, cursor=cursor, archived=None, where={_APP: app_name})
            for info in page:
                yield info
            cursor = page.next_cursor
            if cursor is None:
                return

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        await self._bridge.run(self._delete(app_name, user_id, session_id))

    async def _delete(self, app_name: str, user_id: str, session_id: str) -> None:
        try:
            thread = await self._user(user_id).thread(_key(app_name, _trimmed(session_id)))
            await thread.delete()
            await thread.purge()
        except (NotFound, UnderLegalHold):
            # A thread under a hold is deleted, but its rows stay until the hold ends.
            return

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return await self._bridge.run(session_state.read_app_state(self._user(user_id).values, app_name))

    async def append_event(self, session: Session, event: Event) -> Event:
        """StaleSessionError if the thread was changed since the session was read; SessionNotFoundError."""
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        if await self._bridge.run(self._append(session, event)):
            self._commit_event_to_session(session, event)
        return event

    async def _append(self, session: Session, event: Event) -> bool:
        """False if the same event was stored before."""
        try:
            thread = await self._user(session.user_id).thread(_key(session.app_name, session.id))
        except NotFound:
            raise SessionNotFoundError(f"session {session.id!r} not found") from None
        stored = event.model_dump(mode="json", exclude_none=True, by_alias=False)
        if any(stored == earlier for earlier in await self._stored(thread, session, event)):
            return False
        shown = Shown(shown_role(event), shown_parts(event, session.events), [stored])
        timeline, count = await self._expected(thread, session)
        for key in (event.id, new_id()):
            if not is_id(key) or len(key) > _LONGEST_ID:
                continue
            batch = self._log.batch([shown], key=key)
            delta = event.actions.state_delta if event.actions else {}
            try:
                appended = await thread.append(
                    *batch.messages,
                    values=[batch.value, *session_state.changes(session.app_name, delta or {})],
                    expected_count=count,
                    expected_timeline=timeline,
                )
            except DuplicateId:
                # Another event has this id; ADK keeps both.
                continue
            except HeadMoved:
                raise StaleSessionError(_STALE) from None
            _set_marker(session, appended.thread.timeline_id, appended.thread.message_count)
            session.last_update_time = event.timestamp
            return True
        raise AlreadyExistsError(f"event {event.id!r} already exists")

    async def _stored(self, thread: GatewayThread, session: Session, event: Event) -> Sequence[Any]:
        """What is stored under the event's id, if the session already has it: an event may be delivered twice."""
        if not any(known.id == event.id for known in session.events):
            return ()
        messages = [message for message in await thread.messages() if message.id.startswith(f"{event.id}.")]
        return [each for exact in await self._log.read(thread, messages) for each in exact or ()]

    async def _expected(self, thread: GatewayThread, session: Session) -> tuple[str, int]:
        """The end of the thread as the session has it. StaleSessionError if it cannot be that."""
        marker = session._storage_update_marker  # noqa: SLF001 - where ADK's services keep what they have stored
        if marker is not None:
            timeline, _, count = marker.rpartition(":")
            return timeline, int(count)
        # A session that was made by hand: its last event must be the last one that is stored.
        messages = await thread.messages(newest=1)
        events = await self._events(session.app_name, thread, messages)
        if [event.id for event in events[-1:]] != [event.id for event in session.events[-1:]]:
            raise StaleSessionError(_STALE)
        return thread.info.timeline_id, messages[-1].seq + 1 if messages else 0

    async def _events(self, app_name: str, thread: GatewayThread, messages: Sequence[Message]) -> list[Event]:
        agent_name = _agent_name(thread.info.agent_id or app_name)
        events: list[Event] = []
        for message, exact in zip(messages, await self._log.read(thread, messages), strict=True):
            if exact is None:
                events.extend(to_events(message, agent_name))
            else:
                events.extend(Event.model_validate(each) for each in exact)
        return events

    async def _session(
        self, app_name: str, user: Gateway, thread: GatewayThread, messages: Sequence[Message]
    ) -> Session:
        own = await session_state.read_session_state(thread.values)
        shared = await session_state.read_app_state(user.values, app_name)
        app = await session_state.read_app_state(user.tenant_values, app_name)
        session = _new_session(app_name, thread.info, session_state.merged(own, shared, app))
        if messages:
            # Newer than what is known of the thread, if another process has just added a message.
            _set_marker(session, thread.info.timeline_id, messages[-1].seq + 1)
        return session


def _trimmed(session_id: str | None) -> str:
    return (session_id or "").strip()


def _key(app_name: str, session_id: str) -> str:
    return f"{session_state.escaped(app_name)}/{session_id}"


def _set_marker(session: Session, timeline_id: str, count: int) -> None:
    session._storage_update_marker = f"{timeline_id}:{count}"  # noqa: SLF001 - as above


def _new_session(app_name: str, info: Thread, state: dict[str, Any]) -> Session:
    session = Session(
        id=info.state_key.partition("/")[2],
        app_name=app_name,
        user_id=info.owner_id,
        state=state,
        last_update_time=info.updated_at.timestamp(),
    )
    _set_marker(session, info.timeline_id, info.message_count)
    return session


def _agent_name(name: str) -> str:
    """ADK's names of agents are identifiers, and `user` is the person."""
    found = re.sub(r"\W", "_", name)
    return f"_{found}" if found == "user" or not found.isidentifier() else found
