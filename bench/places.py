"""Where things are, and which two databases there are."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

Backend: TypeAlias = Literal["sqlite", "postgres"]
BACKENDS: tuple[Backend, ...] = ("sqlite", "postgres")
ROOT = Path(__file__).resolve().parent.parent
WORKSPACE = ROOT / ".bench"
"""Temporary files of a run."""
