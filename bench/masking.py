"""What masking costs: megabytes of chat a second with and without RE2, microseconds a message and a piece of a stream.

The text is what a chat about software looks like, with the words that make a masker look twice (token, key, password,
`sk-`, URLs, code, a UUID) and no secret in it, because almost no message has one. `python -m bench.masking` prints it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial

from threadline.core import messages, parts
from threadline.core.masking import SecretMasker
from threadline.core.sealing import Sealer

CHAT = """\
To rotate the signing key, open the settings page and choose a new one; tokens that were issued before keep working for
an hour. The "token-based" flow is described at https://example.com/docs/auth?step=2#tokens.

```python
def load(path: Path) -> dict[str, int]:
    token = request.headers["x-token"]
    return json.loads(path.read_text())
```

- The task-force asks whether sk-learn's estimators can be used here: yes, they can.
- Commit da39a3ee5e6b4b0d3255bfef95601890afd80709 changed the api-first design of the key-value store.

Im Büro in Zürich läuft alles; l'équipe est prête. Run 550e8400-e29b-41d4-a716-446655440000 took 12.5 seconds and used
1,204 tokens. A password must have twelve characters, a secret is better kept in a vault.

"""
CHATS = CHAT * 4
HOSTILE = ("1-" * 10_000, "eyJ" * 6_000, "a@" * 10_000, "A1" * 50_000, "sk-" * 33_000, "password=" * 11_000)


def run() -> dict[str, float]:
    found: dict[str, float] = {}
    for engine, with_re2 in (("re2", True), ("literals", False)):
        masker = SecretMasker(with_re2=with_re2)
        found[f"text, MB/s, {engine}"] = _megabytes(CHATS.encode(), partial(_mask, masker))
        found[f"JSON, MB/s, {engine}"] = _megabytes(json.dumps([CHATS], ensure_ascii=False).encode(), masker.may_hold)
        found[f"seal 2 kB, µs, {engine}"] = _microseconds(partial(_seal, Sealer(masker=masker)))
        found[f"stream a piece of 20, µs, {engine}"] = _stream(masker)
        found[f"slowest hostile text, ms, {engine}"] = max(_once(masker, text) for text in HOSTILE)
    found["seal 2 kB, µs, without"] = _microseconds(partial(_seal, Sealer()))
    for name, value in found.items():
        print(f"{name:40} {value:10.1f}")
    return found


_MESSAGE = messages.assistant(
    (
        parts.TextPart(CHAT[:800]),
        parts.tool_part(
            "search",
            "call_a1B2c3D4e5F6g7H8i9J0k1L2",
            {"query": "rotate a key", "limit": 3},
            output={"results": [{"title": "Keys", "snippet": CHAT[n : n + 240], "rank": n} for n in range(3)]},
        ),
    )
)


def _mask(masker: SecretMasker, raw: bytes) -> None:
    masker.mask_text(CHATS)


def _seal(sealer: Sealer) -> None:
    sealer.message(_MESSAGE)


def _stream(masker: SecretMasker) -> float:
    pieces = [CHAT[at : at + 20] for at in range(0, len(CHAT), 20)]
    stream = masker.stream()

    def all_pieces() -> None:
        for piece in pieces:
            stream.feed(piece)
        stream.flush()

    return _microseconds(all_pieces, times=3) / len(pieces)


def _once(masker: SecretMasker, text: str) -> float:
    return _microseconds(lambda: masker.mask_text(text), times=1, rounds=3) / 1_000


def _megabytes(raw: bytes, work: Callable[[bytes], object]) -> float:
    return len(raw) / _microseconds(lambda: work(raw), times=20)


def _microseconds(work: Callable[[], object], *, times: int = 200, rounds: int = 25) -> float:
    """The best round's mean, in processor time: other processes of the machine count as little as they can."""
    work()
    best = float("inf")
    for _ in range(rounds):
        started = time.thread_time()
        for _ in range(times):
            work()
        best = min(best, (time.thread_time() - started) / times)
    return best * 1e6


if __name__ == "__main__":
    run()
