"""Checks, normalises and masks the fields of a thread before they reach a store."""

from __future__ import annotations

from typing import Any

import msgspec

from threadline.core.ids import check_id, check_name, check_thread_key, check_title, new_id, new_state_key
from threadline.core.sealing import Sealer
from threadline.core.threads import NewThread, ThreadChanges
from threadline.core.turn_options import TurnOptions, stored_options


def admit_thread(sealer: Sealer, new: NewThread) -> NewThread:
    """The same thread with an id and a key, every text clean. A title given here is a person's."""
    return msgspec.structs.replace(
        new,
        id=new_id() if new.id is None else check_id("thread", new.id),
        state_key=new_state_key() if new.state_key is None else check_thread_key(new.state_key),
        title=None if new.title is None else admit_title(sealer, new.title),
        title_by_person=new.title is not None,
        agent_id=None if new.agent_id is None else check_id("agent", new.agent_id),
        model=_text(sealer, new.model, "model"),
        system_prompt=_text(sealer, new.system_prompt, "system prompt"),
        working_dir=_text(sealer, new.working_dir, "working directory"),
        metadata=_metadata(sealer, new.metadata),
    )


def admit_changes(sealer: Sealer, changes: ThreadChanges) -> ThreadChanges:
    checked: dict[str, Any] = {}
    for field in ("model", "system_prompt", "working_dir"):
        value = getattr(changes, field)
        if isinstance(value, str):
            checked[field] = _text(sealer, value, field.replace("_", " "))
    if isinstance(changes.title, str):
        checked |= {"title": admit_title(sealer, changes.title), "title_by_person": True}
    if isinstance(changes.agent_id, str):
        checked["agent_id"] = check_id("agent", changes.agent_id)
    if isinstance(changes.metadata, dict):
        checked["metadata"] = _metadata(sealer, changes.metadata)
    return msgspec.structs.replace(changes, **checked)


def admit_title(sealer: Sealer, title: str) -> str:
    return check_title(sealer.text(title, "title"))


def admit_name(sealer: Sealer, kind: str, name: str) -> str:
    return check_name(kind, sealer.text(name, f"{kind} name"))


def admit_options(sealer: Sealer, options: TurnOptions) -> dict[str, Any]:
    """The options for `Turn.seen`, every text clean. InvalidInput."""
    clean = msgspec.structs.replace(
        options,
        instructions=_text(sealer, options.instructions, "instructions"),
        metadata=_metadata(sealer, options.metadata),
    )
    return stored_options(clean)


def admit_model(sealer: Sealer, model: str) -> str:
    """InvalidName for a name that no provider can have."""
    return check_name("model", sealer.text(model, "model"))


def _text(sealer: Sealer, value: str | None, what: str) -> str | None:
    return None if value is None else sealer.text(value, what)


def _metadata(sealer: Sealer, value: dict[str, Any]) -> dict[str, Any]:
    if not value:
        return {}
    found = msgspec.json.decode(sealer.json(value, "metadata"))
    assert isinstance(found, dict)
    return found
