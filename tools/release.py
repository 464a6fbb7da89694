"""Release checks: a tag fits the version and the changelog; the notes of a release are its part of the changelog.

Run by `.github/workflows/release.yml`: `python tools/release.py check v0.2.0`, `python tools/release.py notes v0.2.0`.
"""

from __future__ import annotations

import argparse
import re
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
VERSION = ROOT / "src" / "threadline" / "version.py"


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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("check", "notes"))
    parser.add_argument("tag")
    arguments = parser.parse_args()
    version = runpy.run_path(str(VERSION))["__version__"]
    changelog = CHANGELOG.read_text(encoding="utf-8")
    fault = find_fault(arguments.tag, version, changelog)
    if fault is not None:
        print(f"release: {fault}", file=sys.stderr)
        return 1
    if arguments.action == "notes":
        print(read_notes(arguments.tag, changelog))
    return 0


if __name__ == "__main__":
    sys.exit(main())
