"""People who use matrix-js-sdk with its Rust crypto, the library that Element is made of, each in a node process."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.matrix.people import PATIENCE
from tests.matrix.synapse import Synapse
from tests.npm_packages import NODE, install

PACKAGES = Path(__file__).with_name("npm")
# A client asks itself what it shows this often while a test waits: it tells nothing by itself.
_LOOK_SECONDS = 0.1


class JsPerson:
    def __init__(self, node: asyncio.subprocess.Process, matrix_id: str) -> None:
        self._node = node
        self.id = matrix_id

    async def do(self, *step: Any) -> dict[str, Any]:
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(json.dumps(step).encode() + b"\n")
        line = await asyncio.wait_for(self._node.stdout.readline(), 2 * PATIENCE)
        answer: dict[str, Any] = json.loads(line)
        assert "failed" not in answer, f"{step[0]}: {answer['failed']}"
        return answer

    async def until(self, *step: Any, is_done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = asyncio.get_running_loop().time() + 2 * PATIENCE
        while not is_done(answer := await self.do(*step)):
            assert asyncio.get_running_loop().time() < end, f"{step} still gives {answer}"
            await asyncio.sleep(_LOOK_SECONDS)
        return answer

    async def hear(self, room: str, by: str, text: str) -> dict[str, Any]:
        """Waits for a message by someone; all messages of the room by then."""

        def is_heard(shown: dict[str, Any]) -> bool:
            return any(each["sender"] == by and text in (each["body"] or "") for each in shown["messages"])

        return await self.until("timeline", room, is_done=is_heard)


@asynccontextmanager
async def js_person(synapse: Synapse, name: str, *, only_signed: bool = True) -> AsyncIterator[JsPerson]:
    password = secrets.token_hex(8)
    matrix_id = await asyncio.to_thread(synapse.register, name, password)
    async with js_client(matrix_id) as person:
        await person.do("begin", synapse.url, matrix_id, password, only_signed)
        yield person


@asynccontextmanager
async def js_client(matrix_id: str) -> AsyncIterator[JsPerson]:
    """A client that is not logged in yet."""
    script = await asyncio.to_thread(install, PACKAGES, "matrix-js") / "person.mjs"
    node = await asyncio.create_subprocess_exec(
        NODE, script, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**24
    )
    try:
        yield JsPerson(node, matrix_id)
    finally:
        node.kill()
        await node.wait()
