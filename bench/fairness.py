"""How long `/healthz` waits while sixty agents that never await write 20,000 words each.

The service runs in a process of its own, the client in this one. `python -m bench.fairness` prints the waits.
"""

from __future__ import annotations

import asyncio
import http.client
import subprocess
import sys
import time
from collections.abc import AsyncGenerator

TURNS, WORDS = 60, 20_000


async def flood(prompt: str) -> AsyncGenerator[str, None]:
    for number in range(WORDS):
        yield f"word{number} "


async def serve() -> None:
    """Prints the port, starts the turns at the first line on standard input, ends when they have ended."""
    import threadline  # noqa: PLC0415 - only the service's process needs it
    from threadline.service.process.server import Server, listen  # noqa: PLC0415

    async with threadline.open(":memory:", agents={"flood": flood}) as tl:
        listening = listen("127.0.0.1", 0)
        server = Server(threadline.build_app(tl), grace_seconds=1)
        running = asyncio.create_task(server.serve(sockets=[listening]))
        await server.ready.wait()
        print(listening.getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        threads = [await tl.as_user("ada").create_thread(agent_id="flood") for _ in range(TURNS)]
        ended = await asyncio.gather(*[thread.ask("Go").ended() for thread in threads])
        print(sum(turn.status == "executed" for turn in ended), flush=True)
        server.should_exit = True
        await running


def run() -> dict[str, float]:
    command = [sys.executable, "-m", "bench.fairness", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdin is not None
        assert service.stdout is not None
        port = int(service.stdout.readline())
        service.stdin.write("\n")
        service.stdin.flush()
        began, waits = time.perf_counter(), list[float]()
        while service.poll() is None:
            try:
                waits.append(_ask(port))
            except OSError:
                # The service has ended.
                break
            time.sleep(0.05)
        executed = int(service.stdout.readline())
    waits.sort()
    found = {
        "turns executed": executed,
        "seconds": time.perf_counter() - began,
        "requests": len(waits),
        "median, ms": waits[len(waits) // 2] * 1e3,
        "p99, ms": waits[int(len(waits) * 0.99)] * 1e3,
        "longest, ms": waits[-1] * 1e3,
    }
    for name, value in found.items():
        print(f"{name:20} {value:10.1f}")
    return found


def _ask(port: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    began = time.perf_counter()
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()
    return time.perf_counter() - began


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    else:
        run()
