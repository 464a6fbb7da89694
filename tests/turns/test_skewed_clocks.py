"""Two processes whose clocks differ by an hour, and that cannot see whether the other one runs, as on two machines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import threadline
from tests.turns.dying_process import settings_of, tell
from tests.turns.test_dead_holders import ANSWERED, PARTIAL, begin, kill, log
from threadline.bootstrap import Threadline
from threadline.core.turns import Surface

_HOUR = 3600.0
_LEASE_SECONDS = 2.0
_PATIENCE = 20.0


@pytest.fixture
async def tl(database: str, tenant_id: str, tmp_path: Path) -> AsyncIterator[Threadline]:
    settings = settings_of(database, tenant_id, str(tmp_path / "here"), _LEASE_SECONDS)
    async with threadline.open(settings=settings, agents={"teller": tell}) as opened:
        yield opened


def elsewhere(tmp_path: Path, ahead: float) -> list[str]:
    """The options of a process on another machine."""
    folder = str(tmp_path / f"there {ahead}")
    return ["--clock-ahead", str(ahead), "--process-folder", folder, "--lease-seconds", str(_LEASE_SECONDS)]


@pytest.mark.req("R-02")
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@pytest.mark.parametrize("ahead", [_HOUR, -_HOUR])
async def test_a_process_with_a_wrong_clock_ends_no_turn_of_another(
    tl: Threadline, ahead: float, tmp_path: Path
) -> None:
    thread = await tl.as_user(surface="web").create_thread()
    process = await begin(tl, thread, "web", *elsewhere(tmp_path, 0.0))
    sweeping = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.turns.dying_process",
        tl.settings.database, tl.settings.tenant, thread.id, "", "web", "--sweep", *elsewhere(tmp_path, ahead),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    found, _ = await sweeping.communicate()
    assert found == b"0\n"
    assert [turn.status for turn in await thread.turns()] == ["running"]
    await kill(process)


@pytest.mark.req("R-02")
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@pytest.mark.parametrize("ahead", [_HOUR, -_HOUR])
async def test_the_turn_of_a_process_with_a_wrong_clock_is_renewed_and_then_taken_over(
    tl: Threadline, ahead: float, tmp_path: Path
) -> None:
    thread = await tl.as_user(surface="web").create_thread()
    process = await begin(tl, thread, "web", "--key", "k1", *elsewhere(tmp_path, ahead))
    session = tl.store.scoped(tl.as_user().scope)
    (first,) = await session.active_turns(thread.id)
    async with asyncio.timeout(_PATIENCE):
        # Until it was renewed, so that it has lived for longer than its first lease promised.
        while (await session.active_turns(thread.id))[0].lease_until == first.lease_until:
            assert await tl.recovery.recover(tl.as_user().scope) == 0
            await asyncio.sleep(0.1)
        await kill(process)
        await thread.ask("Tell me a story", key="k1", policy="queue")
    assert await log(thread) == ANSWERED


@pytest.mark.req("R-02", "S1-28")
@pytest.mark.parametrize("database", ["file"], indirect=True)
@pytest.mark.parametrize("act", ["ask", "stop", "retry"])
async def test_a_lease_an_hour_ahead_lasts_no_longer_than_others_than_any_other(
    tl: Threadline, act: str, tmp_path: Path
) -> None:
    """As when the clock of a machine was set right after it had started."""
    surface: Surface = "web"
    thread = await tl.as_user(surface=surface).create_thread()
    await kill(await begin(tl, thread, surface, "--key", "k1", *elsewhere(tmp_path, _HOUR)))
    async with asyncio.timeout(_PATIENCE):
        match act:
            case "ask":
                await thread.ask("And now?", policy="queue")
                assert sorted(str(status) for *_, status in await log(thread)) == ["None"] * 3 + ["interrupted"]
            case "stop":
                assert await thread.stop()
                assert (await log(thread))[-1] == ("assistant", PARTIAL, "stopped")
            case _:
                await thread.ask("Tell me a story", key="k1", policy="queue")
                assert await log(thread) == ANSWERED
