"""How the chat page is served: from memory, below any mount point, and the welcome page without it."""

from __future__ import annotations

import gzip
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from threadline.core.errors import NotFound
from threadline.service.http import problems
from threadline.service.routes.page import PageRoutes

SCRIPT = b"let a = 1;" * 200


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "index-1a2b.js").write_bytes(SCRIPT)
    (tmp_path / "index.html").write_text('<!doctype html><base href="/" /><script src="/assets/index-1a2b.js">')
    (tmp_path / "secret.txt").write_text("not for you")
    return tmp_path


def client(folder: Path, root: str = "") -> httpx2.AsyncClient:
    page = Starlette(
        routes=PageRoutes(folder).routes(),
        exception_handlers={NotFound: problems.ErrorHandler()},
    )
    app = Starlette(routes=[Mount(root, page)]) if root else page
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost")


async def test_assets_are_found_by_name_and_cached_for_ever(folder: Path) -> None:
    async with client(folder) as http:
        found = await http.get("/assets/index-1a2b.js", headers={"accept-encoding": "identity"})
        assert (found.content, found.headers["cache-control"]) == (SCRIPT, "public, max-age=31536000, immutable")
        assert "javascript" in found.headers["content-type"]
        for name in ("../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", "", "nothing.js", "/index-1a2b.js"):
            assert (await http.get(f"/assets/{name}")).status_code == 404
        assert (await http.post("/assets/index-1a2b.js")).status_code == 405


async def test_a_script_is_compressed_if_the_client_accepts_gzip(folder: Path) -> None:
    async with client(folder) as http, http.stream("GET", "/assets/index-1a2b.js") as answer:
        packed = b"".join([piece async for piece in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed) == SCRIPT
    assert answer.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(("root", "base"), [("", "/"), ("/chat", "/chat/")])
async def test_the_page_knows_where_it_is_mounted(folder: Path, root: str, base: str) -> None:
    async with client(folder, root) as http:
        for path in ("/", "/t/some-thread"):
            page = await http.get(f"{root}{path}")
            assert f'<base href="{base}" />' in page.text
            assert page.headers["cache-control"] == "no-cache"


async def test_without_a_built_page_the_welcome_page_says_how_to_build_it(tmp_path: Path) -> None:
    async with client(tmp_path) as http:
        page = await http.get("/")
        assert "Build it with <code>make page</code>" in page.text
        assert (await http.get("/t/some-thread")).status_code == 404
