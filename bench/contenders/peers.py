"""Which peers are measured on which database, and how to open one.

A peer is imported when its turn comes: a missing one is an error of that case alone, and no peer's import weighs on a
measurement that has nothing to do with it.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from bench.arena import Arena
from bench.contenders import Contender
from bench.places import Backend


class Peer(NamedTuple):
    name: str
    backend: Backend
    module: str
    opener: str


PEERS = (
    Peer("OpenAI Agents SQLiteSession", "sqlite", "openai_agents", "sqlite"),
    Peer("OpenAI Agents AdvancedSQLiteSession", "sqlite", "openai_agents", "advanced_sqlite"),
    Peer("OpenAI Agents SQLAlchemySession", "sqlite", "openai_agents", "sqlalchemy_sqlite"),
    Peer("Google ADK", "sqlite", "google_adk", "sqlite"),
    Peer("Agno", "sqlite", "agno_db", "sqlite"),
    Peer("LangGraph", "sqlite", "langgraph_graph", "sqlite"),
    Peer("JSON array per thread", "sqlite", "json_array", "sqlite"),
    Peer("OpenAI Agents SQLAlchemySession", "postgres", "openai_agents", "sqlalchemy_postgres"),
    Peer("Google ADK", "postgres", "google_adk", "postgres"),
    Peer("Agno", "postgres", "agno_db", "postgres"),
    Peer("LangGraph", "postgres", "langgraph_graph", "postgres"),
    Peer("JSON array per thread", "postgres", "json_array", "postgres"),
)


async def open_peer(peer: Peer, arena: Arena) -> Contender:
    opener = getattr(importlib.import_module(f"bench.contenders.{peer.module}"), peer.opener)
    place = arena.file(peer.module) if arena.backend == "sqlite" else await arena.database()
    contender: Contender = await opener(place)
    return contender
