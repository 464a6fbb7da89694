"""One cluster for all tests of this folder, which are skipped where no PostgreSQL with Citus is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.citus.cluster import Cluster, find_binaries


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL with Citus is installed")
    cluster = Cluster(binaries)
    try:
        try:
            asyncio.run(cluster.start())
        except RuntimeError as error:
            if "could not load library" not in str(error):
                raise
            pytest.skip("the installed Citus was built for another version of PostgreSQL")
        yield cluster
    finally:
        cluster.discard()


@pytest.fixture
def database(cluster: Cluster) -> str:
    return cluster.address()
