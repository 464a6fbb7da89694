"""The fields of a thread as attributes, for the thread objects of the library, the client and the synchronous API."""

from __future__ import annotations

import datetime as dt
from typing import Any, Protocol

from threadline.core.threads import Thread


class ThreadAttributes(Protocol):
    """The fields of a thread as attributes of an object that has its `info`."""

    info: Thread

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def state_key(self) -> str:
        return self.info.state_key

    @property
    def title(self) -> str | None:
        return self.info.title

    @property
    def agent_id(self) -> str | None:
        return self.info.agent_id

    @property
    def model(self) -> str | None:
        return self.info.model

    @property
    def system_prompt(self) -> str | None:
        return self.info.system_prompt

    @property
    def working_dir(self) -> str | None:
        return self.info.working_dir

    @property
    def metadata(self) -> dict[str, Any]:
        return self.info.metadata

    @property
    def message_count(self) -> int:
        return self.info.message_count

    @property
    def token_count(self) -> int:
        return self.info.token_count

    @property
    def timeline_id(self) -> str:
        return self.info.timeline_id

    @property
    def created_at(self) -> dt.datetime:
        return self.info.created_at

    @property
    def updated_at(self) -> dt.datetime:
        return self.info.updated_at

    @property
    def is_archived(self) -> bool:
        return self.info.archived_at is not None

    def __repr__(self) -> str:
        return f"<thread {self.id} {self.title!r}, {self.message_count} messages>"
