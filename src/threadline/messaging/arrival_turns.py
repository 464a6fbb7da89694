"""The turn that a platform's message begins: its request, and the claim on the message in the inbox."""

from __future__ import annotations

from threadline.core.authors import Author, author_metadata, plain_name
from threadline.core.messages import new_message
from threadline.core.platform_messages import Arrival
from threadline.core.reply_text import inbox_key, turn_key, with_quote
from threadline.core.sanitize import sanitize_text
from threadline.core.threads import NewThread, Scope
from threadline.core.turn_commits import ArrivalClaim, HomeClaim
from threadline.core.turns import Policy
from threadline.messaging.bindings import place_of
from threadline.messaging.home_threads import HomeThreads
from threadline.messaging.rooms import ROOM_PLATFORMS
from threadline.turns.acceptance import TurnRequest


def home_of(scope: Scope, arrival: Arrival, agent_id: str, homes: HomeThreads) -> HomeClaim | None:
    """What a private place without a thread continues. In a shared place a reply must not use private messages, and no
    two rooms share a thread: such places get threads of their own."""
    has_own_thread = arrival.shared or arrival.platform in ROOM_PLATFORMS
    return None if has_own_thread else homes.claim(scope.user_id, agent_id)


def turn_request(arrival: Arrival, agent_id: str, policy: Policy, home: HomeClaim | None) -> TurnRequest:
    text = arrival.text if arrival.quoted is None else with_quote(arrival.text, arrival.quoted)
    author = arrival.author
    metadata = None
    if author is not None:
        name = plain_name(sanitize_text(arrival.sender_name or ""))
        metadata = author_metadata(Author(author.user_id, name, arrival.sender))
    return TurnRequest(
        message=new_message("user", sanitize_text(text), metadata=metadata),
        surface=arrival.platform,
        agent_id=agent_id,
        key=turn_key(arrival.platform, inbox_key(arrival.key)),
        # What one person writes does not belong in the reply to another.
        policy=policy if author is None else "queue",
        new_thread=NewThread(agent_id=agent_id, state_key=None if home is None else home.keys[0]),
        asked_by=arrival.author_id,
    )


def claim_of(scope: Scope, arrival: Arrival, correlation_id: str, home: HomeClaim | None) -> ArrivalClaim:
    return ArrivalClaim(
        platform=arrival.platform,
        key=inbox_key(arrival.key),
        fingerprint=arrival.sender,
        correlation_id=correlation_id,
        reply_to=arrival.recipient,
        place=place_of(arrival, scope.user_id),
        home=home,
    )
