"""The MCP project's own servers from npm: `everything` over standard input and HTTP, and `filesystem`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.npm_packages import NODE, install
from tests.ports import free_port

HERE = Path(__file__).parent / "mcp_servers"
MISBEHAVING = str(HERE / "faulty_server.py")


def server_command(name: str, *arguments: str) -> tuple[str, ...]:
    home = install(HERE / "npm", "mcp-servers")
    script = home / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    return (str(NODE), str(script), *arguments)


@contextmanager
def everything_over_http() -> Iterator[str]:
    """The URL of the server."""
    port = free_port()
    environment = {**os.environ, "PORT": str(port)}
    command = server_command("everything", "streamableHttp")
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if "listening" in line.lower():
                    break
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.kill()
            server.communicate()
