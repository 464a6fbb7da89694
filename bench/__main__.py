"""`python -m bench`: the same command line, in the bench's own environment, which is made first if it is not there."""

from __future__ import annotations

from bench.environment import enter

enter()
