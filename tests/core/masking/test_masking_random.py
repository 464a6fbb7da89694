"""Random secrets of every promised prefix are all masked, and innocent strings are all untouched."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest

from threadline.core.masking import SecretMasker

MASKER = SecretMasker()
BASE62 = string.ascii_letters + string.digits
BASE64URL = BASE62 + "-_"
BASE64 = BASE62 + "+/"
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
SEED = 20261116

# prefix, alphabet, length
PREFIXES: list[tuple[str, str, int]] = [
    *[(prefix, chars, 32) for prefix in ("sk-", "key-", "token-", "api-", "Bearer ") for chars in (BASE62, BASE64URL)],
    *[(prefix, BASE62, length) for prefix in ("sk-", "key-", "token-", "api-", "Bearer ") for length in (24, 40, 64)],
    *[(prefix, UPPER, 16) for prefix in ("AKIA", "ASIA", "/home/AKIA")],
    ("aws_secret_access_key=", BASE64, 40),
    *[(prefix, BASE62, 36) for prefix in ("ghp_", "gho_", "ghs_", "ghu_", "ghr_")],
    ("github_pat_", BASE62 + "_", 82),
    *[(prefix, BASE62 + "-", 50) for prefix in ("xoxb-", "xoxp-", "xapp-")],
    ("eyJhbGciOiJIUzI1NiJ9.", BASE64URL, 80),
    ("-----BEGIN PRIVATE KEY-----\n", BASE64, 64),
    ("tl_acme_", HEX, 64),
    ("tl_a-longer-tenant-2_", HEX, 64),
    ("AccountKey=", BASE64, 86),
    ("sk-ant-api03-", BASE64URL, 95),
    ("sk-proj-", BASE64URL, 48),
]


def count_missed(prefix: str, chars: str, length: int, tries: int) -> int:
    source = random.Random(f"{SEED} {prefix} {chars}")
    missed = 0
    for _ in range(tries):
        body = "".join(source.choices(chars, k=length))
        missed += body[length // 2 :] in MASKER.mask_text(f"it is {prefix}{body} here")
    return missed


@pytest.mark.req("R-07", "S1-21")
@pytest.mark.parametrize(("prefix", "chars", "length"), PREFIXES)
def test_random_secrets_are_masked(prefix: str, chars: str, length: int) -> None:
    assert count_missed(prefix, chars, length, 1_000) == 0


@pytest.mark.slow
@pytest.mark.req("R-07", "S1-21")
@pytest.mark.parametrize(("prefix", "chars", "length"), PREFIXES)
def test_of_a_hundred_thousand_random_secrets_none_is_missed(prefix: str, chars: str, length: int) -> None:
    assert count_missed(prefix, chars, length, 100_000) == 0


@pytest.mark.req("R-07", "S1-21")
def test_innocent_strings_are_untouched() -> None:
    lines = (Path(__file__).parent / "innocent_strings.txt").read_text().splitlines()
    innocent = [line for line in lines if line and not line.startswith("#")]
    assert len(innocent) > 60
    assert [line for line in innocent if MASKER.mask_text(line) is not line] == []
