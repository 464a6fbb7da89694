"""The operator's keys: AES-256-GCM, for secrets that the database keeps and must not know.

A key is 32 random bytes in base64, under an id of the operator's choosing. New secrets are sealed under the current
one; the others open what was sealed under them before, until everything has been sealed anew and they can go.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from threadline.core import jsontext
from threadline.core.errors import ExtraMissing, SettingsInvalid

_KEY_BYTES = 32
_NONCE_BYTES = 12


def new_key() -> str:
    """A key as the settings take it."""
    return base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


class Vault:
    """Nothing is decoded or imported before a secret is sealed or opened."""

    def __init__(self, keys: Mapping[str, str], current: str = "") -> None:
        self._keys = dict(keys)
        self._current = current
        self._ciphers: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<vault with keys {sorted(self._keys)}>"

    @property
    def key_id(self) -> str:
        if not self._keys:
            raise SettingsInvalid(
                "there is no key to seal credentials with: `threadline channels key` makes one for [channels.keys]"
            )
        if self._current:
            return self._current
        if len(self._keys) > 1:
            raise SettingsInvalid("there are several keys in [channels.keys]: name the current one as channels.key")
        return next(iter(self._keys))

    def seal(self, plain: bytes, bound_to: Sequence[str]) -> bytes:
        key_id = self.key_id
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed: bytes = self._cipher(key_id).encrypt(nonce, plain, _purpose(key_id, bound_to))
        return nonce + sealed

    def unseal(self, key_id: str, sealed: bytes, bound_to: Sequence[str]) -> bytes:
        aes = self._cipher(key_id)
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

        try:
            plain: bytes = aes.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _purpose(key_id, bound_to))
        except (InvalidTag, ValueError) as exc:
            raise SettingsInvalid(f"key {key_id!r} does not open these credentials: set them again") from exc
        return plain

    def _cipher(self, key_id: str) -> Any:
        """Made once: each message of a platform needs it twice."""
        if key_id not in self._ciphers:
            self._ciphers[key_id] = _aes(self._key(key_id))
        return self._ciphers[key_id]

    def _key(self, key_id: str) -> bytes:
        if key_id not in self._keys:
            raise SettingsInvalid(f"key {key_id!r} is not in [channels.keys]")
        try:
            key = base64.b64decode(self._keys[key_id], altchars=b"-_" if "-" in self._keys[key_id] else None)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != _KEY_BYTES:
            raise SettingsInvalid(f"key {key_id!r} is not 32 bytes in base64: `threadline channels key` makes one")
        return key


def _purpose(key_id: str, bound_to: Sequence[str]) -> bytes:
    # As JSON, so that no two lists of words read the same.
    return jsontext.dump(["threadline", key_id, *bound_to])


def _aes(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as exc:
        raise ExtraMissing("channels", "keeping credentials of platforms") from exc
    return AESGCM(key)
