"""A test that says it proves a promise names one that was made."""

from __future__ import annotations

import pytest

from tools import requirements
from tools.requirements import Proof, proofs_in


def test_every_promise_has_an_id_of_the_right_shape() -> None:
    assert [found for found in requirements.promises() if not requirements.SHAPE.fullmatch(found)] == []
    assert len(requirements.promises()) > 100


def test_every_marker_names_a_promise() -> None:
    told = requirements.promises()
    assert [proof for proof in requirements.proofs() if proof.promise_id not in told] == []


@pytest.mark.parametrize(
    ("source", "proofs"),
    [
        (
            '@pytest.mark.req("S1-04", "S1-05")\nasync def test_a(): ...\n',
            [Proof("S1-04", "x.py::test_a"), Proof("S1-05", "x.py::test_a")],
        ),
        ('pytestmark = [pytest.mark.slow, pytest.mark.req("SX-01")]\n', [Proof("SX-01", "x.py")]),
        (
            '@pytest.mark.req("S4-01")\nclass TestA:\n    @pytest.mark.req("S4-02")\n    def test_b(self): ...\n',
            [Proof("S4-02", "x.py::TestA::test_b"), Proof("S4-01", "x.py::TestA")],
        ),
        (
            'CASES = [pytest.param(1, marks=pytest.mark.req("S0-01"))]\n',
            [Proof("S0-01", "x.py")],
        ),
        ('"""A text about pytest.mark.req("S9-99")."""\n', []),
    ],
)
def test_markers_are_found_where_pytest_finds_them(source: str, proofs: list[Proof]) -> None:
    assert list(proofs_in(source, "x.py")) == proofs
