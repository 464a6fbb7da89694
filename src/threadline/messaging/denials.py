"""Denials: why a linked user may not ask the agent now, and what they are told."""

from __future__ import annotations

from typing import NamedTuple

from threadline.core.errors import BudgetExceeded, ExtraMissing, GuardRefused, NotFound, RoleRefused, SettingsInvalid
from threadline.core.reply_text import NO_AGENT_TEXT, NOT_ALLOWED_TEXT, budget_text
from threadline.core.threads import Scope
from threadline.core.turns import TurnStatus
from threadline.messaging.receipts import Decision
from threadline.turns.acceptance import TurnRequest, Turns
from threadline.turns.runner import AgentFinder


class Denial(NamedTuple):
    status: TurnStatus
    said: str

    @property
    def decision(self) -> Decision:
        match self.status:
            case "denied_rbac" | "denied_no_agent" | "denied_sentinel" | "denied_budget":
                return self.status
        raise AssertionError(f"{self.status} is not a denial")


async def find_denial(
    turns: Turns, directory: AgentFinder, asker: Scope, request: TurnRequest, agent_id: str
) -> Denial | None:
    """None if the user may ask this."""
    try:
        await turns.check(asker, request)
        await directory.find(asker, agent_id)
    except RoleRefused:
        return Denial("denied_rbac", NOT_ALLOWED_TEXT)
    except GuardRefused as exc:
        return Denial("denied_sentinel", str(exc))
    except BudgetExceeded as exc:
        return Denial("denied_budget", budget_text(str(exc)))
    except NotFound:
        return Denial("denied_no_agent", NO_AGENT_TEXT)
    except (SettingsInvalid, ExtraMissing):
        # The agent exists and cannot be built: the turn fails and says so.
        return None
    return None
