"""The page's sources: their types hold, they say what they own, and a wheel brings what is built from them."""

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


def test_the_types_hold() -> None:
    compiler = page_builder.MODULES / "typescript" / "bin" / "tsc"
    done = subprocess.run(
        [page_builder.NODE, compiler, "--noEmit"],
        cwd=page_builder.WEB,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_source_says_what_it_owns_and_sets_no_markup(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("/**")
    assert text.count("\n") <= LINES
    assert not re.search(r"dangerouslySetInnerHTML|innerHTML|insertAdjacentHTML|\beval\(|document\.write", text)


def test_what_is_built_once_is_not_built_again(built: Path) -> None:
    before = built.stat().st_mtime_ns
    assert page_builder.build().stat().st_mtime_ns == before


def test_the_first_view_is_small(built: Path) -> None:
    import gzip

    index = (built / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r'(?:src|href)="\./(assets/[^"]+)"', index)
    sizes = {name: len(gzip.compress((built / name).read_bytes())) for name in loaded}
    assert len(sizes) == 3
    assert sum(sizes.values()) < 120_000


def test_a_wheel_holds_the_page(built: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=page_builder.ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    shipped = {f"threadline/service/page/{path.relative_to(built)}" for path in built.rglob("*") if path.is_file()}
    assert shipped <= held
    assert not any("node_modules" in name for name in held)
