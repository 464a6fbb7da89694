"""The sources of the chat page: lint, types, size, and that a wheel contains the built page."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import page as page_builder

SOURCES = sorted((page_builder.WEB / "src").rglob("*.ts*"))
LINES = 260


@pytest.fixture(scope="module", autouse=True)
def built() -> Path:
    return page_builder.build()


def test_format_lint_and_types_are_clean() -> None:
    """Otherwise: `make format`, and fix what is left."""
    page_builder.lint()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_sources_start_with_a_comment_and_set_no_html(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("/**")
    assert text.count("\n") <= LINES
    assert not re.search(r"dangerouslySetInnerHTML|innerHTML|insertAdjacentHTML|\beval\(|document\.write", text)


def test_an_unchanged_page_is_not_built_again(built: Path) -> None:
    before = built.stat().st_mtime_ns
    assert page_builder.build().stat().st_mtime_ns == before


def test_the_first_view_is_small(built: Path) -> None:
    import gzip

    index = (built / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r'(?:src|href)="\./(assets/[^"]+)"', index)
    sizes = {name: len(gzip.compress((built / name).read_bytes())) for name in loaded}
    assert len(sizes) == 3
    assert sum(sizes.values()) < 120_000


def test_a_wheel_contains_the_page(built: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=page_builder.ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    shipped = {f"threadline/service/page/{path.relative_to(built)}" for path in built.rglob("*") if path.is_file()}
    assert shipped <= held
    assert not any("node_modules" in name for name in held)
