"""Releases: a tag fits the version and the changelog; the files of a release contain the page and are reproducible.

Run by `.github/workflows/release.yml`:

    python -m tools.release check v0.2.0    the tag fits the version and the changelog
    python -m tools.release notes v0.2.0    its part of the changelog
    python -m tools.release build           source distribution, wheel, bill of materials and their hashes, in `dist/`
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import uuid
import zipfile
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from tools import page

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
VERSION = ROOT / "src" / "threadline" / "version.py"
LOCK = ROOT / "requirements-serve.lock"
PAGE_FILE = "threadline/service/page/index.html"
_PIN = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)[^\n]*\n(?P<hashes>(?:    --hash=[^\n]*\n)+)(?P<via>(?:    #[^\n]*\n)+)",
    re.MULTILINE,
)
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})")


class ReleaseFailed(Exception):
    """The text is for the terminal."""


def find_fault(tag: str, version: str, changelog: str) -> str | None:
    """Why this tag cannot be released; None if it can."""
    if tag != f"v{version}":
        return f"tag must be v{version}, the version of {VERSION.relative_to(ROOT)}, got {tag}"
    if read_notes(tag, changelog) is None:
        return f"CHANGELOG.md must have a section '## {version}' with text in it"
    return None


def read_notes(tag: str, changelog: str) -> str | None:
    """The changelog's section for this tag; None if there is none or it is empty."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    for section in sections:
        heading, _, text = section.partition("\n")
        if heading.split()[0] == tag.removeprefix("v") and text.strip():
            return text.strip()
    return None


def read_version() -> str:
    version: str = runpy.run_path(str(VERSION))["__version__"]
    return version


def build(folder: Path) -> None:
    """Everything a release publishes. Two builds of one commit are the same bytes. ReleaseFailed."""
    page.build()
    shutil.rmtree(folder, ignore_errors=True)
    # The times in the archives are the commit's and not today's.
    epoch = _run("git", "-C", str(ROOT), "log", "-1", "--format=%ct").strip()
    uv = str(Path(sys.executable).with_name("uv"))
    # The wheel is built from the source distribution, as it is by those who install that.
    options = ("--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(folder))
    _run(uv, "build", *options, str(ROOT), SOURCE_DATE_EPOCH=epoch)
    for path in sorted(folder.iterdir()):
        if path.suffix in {".gz", ".whl"} and not _has_page(path):
            raise ReleaseFailed(f"{path.name} has no page: {PAGE_FILE} is not in it")
    (folder / "threadline.cdx.json").write_text(list_materials(LOCK.read_text(encoding="utf-8")), encoding="utf-8")
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def list_materials(lock: str) -> str:
    """The bill of materials of a service, in CycloneDX: every package that the lock pins, with its hashes."""
    version = read_version()
    # Derived from the content: a random number would make two builds differ.
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"threadline {version} {lock}"))
    bom.metadata.timestamp = None  # type: ignore[assignment]  # optional in the format, and it would differ
    root = Component(name="threadline", version=version, type=ComponentType.APPLICATION, bom_ref="threadline")
    bom.metadata.component = root
    for pin in _PIN.finditer(lock):
        url = PackageURL("pypi", None, pin["name"], pin["version"])
        component = Component(
            name=pin["name"],
            version=pin["version"],
            purl=url,
            bom_ref=url.to_string(),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=text) for text in _SHA256.findall(pin["hashes"])],
        )
        bom.components.add(component)
        if "# via threadline" in pin["via"] or "#   threadline" in pin["via"]:
            bom.register_dependency(root, [component])
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)


def _has_page(path: Path) -> bool:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return PAGE_FILE in wheel.namelist()
    with tarfile.open(path) as archive:
        return any(name.endswith(f"/src/{PAGE_FILE}") for name in archive.getnames())


def _run(*words: str, **environment: str) -> str:
    done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseFailed(f"`{' '.join(words)}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    for action in ("check", "notes"):
        actions.add_parser(action).add_argument("tag")
    actions.add_parser("build").add_argument("--to", type=Path, default=ROOT / "dist", help="folder, emptied first")
    arguments = parser.parse_args()
    try:
        if arguments.action == "build":
            build(arguments.to)
            return 0
        changelog = CHANGELOG.read_text(encoding="utf-8")
        fault = find_fault(arguments.tag, read_version(), changelog)
        if fault is not None:
            raise ReleaseFailed(fault)
        if arguments.action == "notes":
            print(read_notes(arguments.tag, changelog))
    except (ReleaseFailed, page.PageFailed) as failure:
        print(f"release: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
