"""Encryption of secrets with the operator's keys: AES-256-GCM. The database stores only ciphertext.

Secrets are the credentials of platforms and the keys and tokens in the settings of tenants' agents.

A key is 32 random bytes in base64, with an id that the operator chooses. New secrets are encrypted with the current
key; older keys decrypt what was encrypted with them, until everything has been encrypted again and they can be removed.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from threadline.core import jsontext
from threadline.core.errors import EncryptionKeyMissing, ExtraMissing, SettingsInvalid, quote

_KEY_BYTES = 32
_NONCE_BYTES = 12


class Rotated(NamedTuple):
    """How many secrets were encrypted with the current key, and how many no key in the settings can decrypt."""

    encrypted: int = 0
    unreadable: int = 0

    def add(self, other: Rotated) -> Rotated:
        return Rotated(self.encrypted + other.encrypted, self.unreadable + other.unreadable)


def new_key() -> str:
    """A random key in the format of the settings."""
    return base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


class Vault:
    """Keys are decoded and `cryptography` is imported on first use: without secrets, neither is needed."""

    def __init__(self, keys: Mapping[str, str], current: str = "") -> None:
        self._keys = dict(keys)
        self._current = current
        self._ciphers: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<vault with keys {sorted(self._keys)}>"

    @property
    def has_keys(self) -> bool:
        return bool(self._keys)

    @property
    def key_id(self) -> str:
        if not self._keys:
            raise EncryptionKeyMissing
        if self._current:
            return self._current
        if len(self._keys) > 1:
            raise SettingsInvalid("[vault.keys] has several keys: set `vault.key` to the id of the current one")
        return next(iter(self._keys))

    def encrypt(self, plain: bytes, bound_to: Sequence[str]) -> bytes:
        key_id = self.key_id
        nonce = secrets.token_bytes(_NONCE_BYTES)
        ciphertext: bytes = self._cipher(key_id).encrypt(nonce, plain, _associated_data(key_id, bound_to))
        return nonce + ciphertext

    def decrypt(self, key_id: str, sealed: bytes, bound_to: Sequence[str]) -> bytes:
        aes = self._cipher(key_id)
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

        try:
            plain: bytes = aes.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _associated_data(key_id, bound_to))
        except (InvalidTag, ValueError) as exc:
            raise SettingsInvalid(f"key {quote(key_id)} cannot decrypt these secrets: set them again") from exc
        return plain

    def _cipher(self, key_id: str) -> Any:
        """Cached: each message of a platform needs it twice."""
        if key_id not in self._ciphers:
            self._ciphers[key_id] = _aes(self._key(key_id))
        return self._ciphers[key_id]

    def _key(self, key_id: str) -> bytes:
        if key_id not in self._keys:
            raise SettingsInvalid(f"key {quote(key_id)} is not in [vault.keys]: add it")
        try:
            key = base64.b64decode(self._keys[key_id], altchars=b"-_" if "-" in self._keys[key_id] else None)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != _KEY_BYTES:
            # The value is a secret, so it is not quoted.
            raise SettingsInvalid(f"key {quote(key_id)} must be 32 bytes in base64: run `threadline vault key`")
        return key


def _associated_data(key_id: str, bound_to: Sequence[str]) -> bytes:
    # Authenticated with the ciphertext, so that it cannot be moved to another tenant or platform. JSON is unambiguous.
    return jsontext.dump(["threadline", key_id, *bound_to])


def _aes(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as exc:
        raise ExtraMissing("vault", "storing secrets") from exc
    return AESGCM(key)
