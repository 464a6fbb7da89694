"""One thread on three surfaces: begun on the web, resumed in the terminal, branched from Matrix."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from starlette.requests import Request

from tests.matrix.bot_fixtures import World
from tests.matrix.people import PATIENCE
from tests.matrix.test_rooms import accepted, bindings
from tests.service.running_service import client_of, serving
from threadline.core.threads import Scope


async def in_the_terminal(world: World, user: str, thread_id: str, text: str) -> str:
    words = ["chat", "--resume", thread_id, "-p", text]
    where = ["--database", world.settings.database, "--user", user]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("THREADLINE_")}
    # Not as an option, which would change the thread's agent.
    kept["THREADLINE_AGENT"] = "rehearsal"
    program = Path(sys.executable).parent / "threadline"
    ran = await asyncio.create_subprocess_exec(
        program, *words, *where, cwd=world.folder, env=kept, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(ran.communicate(), PATIENCE)
    assert ran.returncode == 0
    return out.decode()


@pytest.mark.req("SX-02")
async def test_a_thread_begun_on_the_web_is_resumed_in_the_terminal_and_branched_from_matrix(world: World) -> None:
    alice = await world.person("alice")

    async def as_alice(request: Request) -> Scope:
        return Scope("local", alice.id)

    async with world.running(), serving(world.threadline, authenticate=as_alice) as anyone:
        web = client_of(anyone.url)
        await web.ask("begun on the web", "trip")
        thread = await world.threadline.as_user(alice.id).thread("trip")
        assert "begun on the web" in await in_the_terminal(world, alice.id, thread.id, "what did I say first?")
        room = await world.room_with(alice)
        assert "4 messages" in (await alice.ask(room, world.bot_id, f"!open {thread.id}")).text
        assert "“Fork” is ready" in (await alice.ask(room, world.bot_id, "!branch Fork")).text
        bound = {each.label: each for each in (await bindings(world, alice)).values()}
        fork = await accepted(alice, bound["C3"].place)
        assert (await alice.ask(fork, world.bot_id, "only in the fork")).text == "3. You said: only in the fork"
        await web.ask("only on the web", "trip")
        begun = ["begun on the web", "what did I say first?"]
        forked = await (await world.threadline.as_user(alice.id).thread(bound["C3"].thread_id)).messages()
        assert [message.text for message in forked if message.role == "user"] == [*begun, "only in the fork"]
        asked = [text for role, text in await web.messages("trip") if role == "user"]
        assert asked == [*begun, "only on the web"]
        await web.close()
