"""Who people are, asked of the house in its process and over HTTP: the same assertions for both. No homeserver."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.client.platforms import ASKING, acting_client
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.threads import Scope
from threadline.matrix.remote import RemoteIdentities
from threadline.messaging.identities import StoredIdentities
from threadline.ports import Identities

ADA = "@ada:example.org"

pytestmark = pytest.mark.req("S2-03")


@pytest.fixture
async def threadline() -> AsyncIterator[Threadline]:
    async with open_threadline(settings=ASKING) as opened:
        yield opened


@pytest.fixture(params=["in process", "over http"])
async def identities(request: pytest.FixtureRequest, threadline: Threadline) -> AsyncIterator[Identities]:
    links = threadline.messaging.links
    if request.param == "in process":
        yield StoredIdentities(threadline.store, links, "local", "matrix")
        return
    async with acting_client(threadline) as client, open_threadline(settings=ASKING) as book:
        yield RemoteIdentities(client, book.store, book.messaging.links, "local")


async def code_for(threadline: Threadline, user_id: str, platform: str = "matrix") -> str:
    return (await threadline.messaging.links.new_code(Scope("local", user_id), platform)).code


async def test_a_stranger_is_nobody_unless_they_are_adopted(identities: Identities) -> None:
    assert await identities.find(ADA) is None
    adopted = await identities.find(ADA, adopt=True)
    assert adopted == Scope("local", ADA)
    assert await identities.find(ADA, adopt=True) == adopted


async def test_a_code_links_a_sender_once_with_whoever_made_it(identities: Identities, threadline: Threadline) -> None:
    code = await code_for(threadline, "ada")
    assert await identities.redeem(ADA, "WRONG") == ("link_refused", None)
    assert await identities.redeem(ADA, code) == ("linked", "ada")
    assert await identities.find(ADA) == Scope("local", "ada")
    assert await identities.find(ADA, adopt=True) == Scope("local", "ada")
    assert await identities.redeem("@eve:example.org", code) == ("link_refused", None)
    assert await identities.redeem("@eve:example.org", await code_for(threadline, "ada", "slack")) == (
        "link_refused",
        None,
    )
    assert await identities.find("@eve:example.org") is None


async def test_a_sender_has_a_few_attempts(identities: Identities, threadline: Threadline) -> None:
    results = [(await identities.redeem(ADA, "WRONG")).result for _ in range(6)]
    assert results == ["link_refused"] * 5 + ["link_limited"]
    assert await identities.redeem(ADA, await code_for(threadline, "ada")) == ("link_limited", None)


async def test_only_ones_own_link_is_ended(identities: Identities, threadline: Threadline) -> None:
    await identities.redeem(ADA, await code_for(threadline, "ada"))
    assert not await identities.unlink(ADA, Scope("local", "eve"))
    assert await identities.find(ADA) == Scope("local", "ada")
    assert await identities.unlink(ADA, Scope("local", "ada"))
    assert await identities.find(ADA) is None
    assert not await identities.unlink(ADA, Scope("local", "ada"))


async def test_who_was_barred_is_not_adopted(identities: Identities, threadline: Threadline) -> None:
    admin = Scope("local", "root", "admin")
    await threadline.messaging.links.put(admin, "matrix", ADA, "ada", revoked=True)
    assert await identities.find(ADA, adopt=True) is None
    assert await identities.redeem(ADA, await code_for(threadline, "ada")) == ("link_refused", None)


async def test_a_stranger_is_told_how_to_link_once_in_a_while(identities: Identities) -> None:
    assert [await identities.may_hint(ADA) for _ in range(3)] == [True, False, False]
    assert await identities.may_hint("@eve:example.org")
