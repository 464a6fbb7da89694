"""Source distributions of frameworks: they hold the frameworks' own tests, which wheels do not.

One is fetched once into `.tools/`. The lock of the frameworks' environment decides: its hashes are those of every file
of a version.
"""

from __future__ import annotations

import hashlib
import html
import io
import os
import re
import tarfile
import tempfile
import urllib.parse
from pathlib import Path

from tests.framework_packages import LOCK, TOOLS
from tools.bootstrap import fetch, index_url


def source_distribution(name: str) -> Path:
    """The unpacked folder of the locked version."""
    entry = _entry(name)
    file = f"{name.replace('-', '_')}-{entry.split()[0].partition('==')[2]}.tar.gz"
    home = TOOLS / file.removesuffix(".tar.gz")
    if home.is_dir():
        return home
    TOOLS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TOOLS) as folder:
        with tarfile.open(fileobj=io.BytesIO(_fetch(name, file, entry))) as archive:
            archive.extractall(folder, filter="data")
        try:
            (Path(folder) / home.name).rename(home)
        except OSError:
            # Another run was faster.
            if not home.is_dir():
                raise
    return home


def _entry(name: str) -> str:
    """The lines of the lock that pin it: the version and the hashes."""
    found = re.search(rf"^{re.escape(name)}==.*(?:\n    --hash=.*)+", LOCK.read_text(), re.MULTILINE)
    assert found is not None, f"{LOCK} does not pin {name}"
    return found[0]


def _fetch(name: str, file: str, entry: str) -> bytes:
    page_url = f"{index_url().rstrip('/')}/{name}/"
    link = re.search(rf'href="([^"]*{re.escape(file)}[^"]*)"', fetch(page_url).decode())
    assert link is not None, f"{page_url} does not offer {file}"
    data = fetch(urllib.parse.urljoin(page_url, html.unescape(link[1])))
    digest = hashlib.sha256(data).hexdigest()
    assert f"sha256:{digest}" in entry, f"{file} is not the file that {os.fspath(LOCK)} pins"
    return data
