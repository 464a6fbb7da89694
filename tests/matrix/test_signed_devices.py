"""The bot's encryption identity, seen by the client library that Element uses, in the mode that accepts only signed
devices."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.js_people import js_client, js_person
from tests.matrix.test_command import start
from threadline.matrix.encryption import Encryption


def own_keys(world: World, token: str) -> dict[str, Any]:
    found: dict[str, Any] = world.synapse.call(
        "POST", "/_matrix/client/v3/keys/query", {"device_keys": {world.bot_id: []}}, token
    )
    return found


@pytest.mark.req("M-01", "S2-19")
async def test_a_client_that_accepts_only_signed_devices_talks_to_the_bot_also_after_a_restart(world: World) -> None:
    async with js_person(world.synapse, f"ada-{world.tag}") as ada:
        async with world.running():
            room = (await ada.do("room", world.bot_id))["room"]
            await ada.hear(room, world.bot_id, "You can write here")
            await ada.do("say", room, "A secret")
            heard = await ada.hear(room, world.bot_id, "1. You said: A secret")
            assert [each["unreadable"] for each in heard["messages"]] == [None] * 3
            trust = await ada.do("trust", world.bot_id)
            assert (trust["hasIdentity"], trust["signed"]) == (True, [True])
        await ada.do("say", room, "While you slept")
        async with world.running():
            await ada.hear(room, world.bot_id, "2. You said: While you slept")
            await ada.do("say", room, "And now")
            heard = await ada.hear(room, world.bot_id, "3. You said: And now")
            assert all(each["unreadable"] is None for each in heard["messages"])


def device_of(world: World) -> Path:
    assert world.matrix.folder
    return Path(world.matrix.folder)


@pytest.mark.req("M-01")
async def test_keys_and_recovery_key_are_private_and_stay_the_same(world: World) -> None:
    async with world.running():
        pass
    folder = device_of(world)
    token = json.loads((folder / "device.json").read_bytes())["token"]
    first = own_keys(world, token)
    assert first["master_keys"]
    for name in ("cross_signing.json", "recovery_key.txt"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    async with world.running():
        pass
    assert own_keys(world, token) == first


@pytest.mark.req("M-01")
async def test_a_bot_from_before_cross_signing_is_signed_at_its_next_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(self: Encryption, password: str) -> None:
        return None

    with monkeypatch.context() as earlier:
        earlier.setattr(Encryption, "set_up", nothing)
        async with world.running():
            pass
    token = json.loads((device_of(world) / "device.json").read_bytes())["token"]
    assert not own_keys(world, token).get("master_keys")
    world.change(password="")
    async with world.running():
        pass
    found = own_keys(world, token)
    (device,) = found["device_keys"][world.bot_id].values()
    assert len(device["signatures"][world.bot_id]) == 2


async def lose_folder_and_set_up(
    world: World, tmp_path: Path, *options: str, said: str = ""
) -> tuple[int | None, str, str]:
    """`setup-encryption` in a process of its own, with an empty device folder."""
    shutil.rmtree(device_of(world), ignore_errors=True)
    settings = (
        f'[matrix]\nhomeserver = "{world.synapse.url}"\nuser = "{world.bot_id}"\nfolder = "{world.matrix.folder}"\n'
    )
    (tmp_path / "threadline.toml").write_text(settings)
    command = await start(
        tmp_path, "matrix", "setup-encryption", *options, THREADLINE_MATRIX__PASSWORD=world.matrix.password
    )
    told, failed = await asyncio.wait_for(command.communicate(said.encode()), 60)
    return command.returncode, told.decode(), failed.decode()


@pytest.mark.req("M-01")
async def test_a_lost_folder_is_recovered_with_the_recovery_key(world: World, tmp_path: Path) -> None:
    async with js_person(world.synapse, f"ada-{world.tag}") as ada:
        async with world.running():
            room = (await ada.do("room", world.bot_id))["room"]
            await ada.hear(room, world.bot_id, "You can write here")
            await ada.do("say", room, "Remember")
            await ada.hear(room, world.bot_id, "1. You said: Remember")
        recovery = (device_of(world) / "recovery_key.txt").read_text()
        code, _, failed = await lose_folder_and_set_up(world, tmp_path)
        assert code == 2
        assert "`threadline matrix setup-encryption --recover`" in failed
        wrong = recovery.replace(recovery[10], "2" if recovery[10] != "2" else "3", 1)
        code, _, failed = await lose_folder_and_set_up(world, tmp_path, "--recover", said=wrong)
        assert (code, "typing mistake" in failed) == (2, True)
        code, told, failed = await lose_folder_and_set_up(world, tmp_path, "--recover", said=recovery)
        assert code == 0, failed
        assert "imported 0 message keys" not in told
        async with world.running():
            await ada.do("say", room, "Hello again")
            await ada.hear(room, world.bot_id, "2. You said: Hello again")
        # Secret storage and backup are those of the specification: the other library reads them as well.
        async with js_client(world.bot_id) as other:
            found = await other.do("recover", world.synapse.url, world.bot_id, world.matrix.password, recovery.strip())
            assert found["imported"] == found["total"] > 0
            # It learns of its own signature when it asks for its keys again.
            await other.until("own", is_done=lambda shown: bool(shown["signed"]))


@pytest.mark.req("M-01")
async def test_keys_can_be_replaced_with_the_password(world: World, tmp_path: Path) -> None:
    async with world.running():
        pass
    before = (device_of(world) / "recovery_key.txt").read_text().strip()
    code, told, failed = await lose_folder_and_set_up(world, tmp_path, "--reset")
    assert (code, failed) == (0, "")
    assert before not in told
    assert (device_of(world) / "recovery_key.txt").read_text().strip() in told
