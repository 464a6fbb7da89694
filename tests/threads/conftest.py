"""The scripted agent and a whole Threadline on each database, for the tests of threads."""

from __future__ import annotations

from tests.scripted_agent import me as me
from tests.scripted_agent import scripted_agent as scripted_agent
from tests.scripted_agent import settings as settings
from tests.scripted_agent import threadline as threadline
