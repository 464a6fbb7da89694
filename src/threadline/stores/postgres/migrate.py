"""Migrations of the PostgreSQL schema."""


async def apply(dsn: str) -> None:
    """Nothing yet."""
