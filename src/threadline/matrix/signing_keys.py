"""Cross-signing keys, the recovery key and secret storage: the arithmetic, without I/O.

An account has three signing keys. The master key is its identity; the self-signing key, signed by it, signs the
account's devices; the user-signing key signs other users' master keys. Clients that accept only signed devices accept a
device with such a chain. The recovery key encrypts all of them, and the key of the key backup, in the account's secret
storage on the homeserver. Formats are those of the Matrix specification (end-to-end encryption, secrets).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import secrets
from typing import Any

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from threadline.core.errors import InvalidInput

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
# The first two bytes of every recovery key: a typing mistake is then likely to be noticed.
_RECOVERY_PREFIX = b"\x8b\x01"
_KEY_BYTES = 32


class CrossSigningKeys(msgspec.Struct, frozen=True):
    """Private keys, each as unpadded base64 of 32 bytes. `backup` decrypts the key backup `backup_version`;
    `recovery_key` is the secret storage's key. `is_stored`: secret storage and backup exist on the homeserver."""

    master: str
    self_signing: str
    user_signing: str
    backup: str
    recovery_key: str
    backup_version: str | None = None
    is_stored: bool = False

    def __repr__(self) -> str:
        return "<cross-signing keys>"

    @property
    def master_id(self) -> str:
        return public_key(self.master)

    @property
    def self_signing_id(self) -> str:
        return public_key(self.self_signing)


def new_keys() -> CrossSigningKeys:
    master, self_signing, user_signing, backup, storage = (
        encode_base64(secrets.token_bytes(_KEY_BYTES)) for _ in range(5)
    )
    return CrossSigningKeys(master, self_signing, user_signing, backup, encode_recovery_key(decode_base64(storage)))


def public_key(private: str) -> str:
    return encode_base64(_private(private).public_key().public_bytes_raw())


def _private(private: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(decode_base64(private))


def signature(value: dict[str, Any], private: str) -> str:
    """The signature of a JSON object, without its signatures and its unsigned part."""
    return encode_base64(_private(private).sign(canonical(value)))


def canonical(value: dict[str, Any]) -> bytes:
    """The form in which the specification signs JSON."""
    signed = {name: each for name, each in value.items() if name not in {"signatures", "unsigned"}}
    return json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def signed(value: dict[str, Any], user_id: str, private: str) -> dict[str, Any]:
    """The object with one more signature."""
    before = value.get("signatures", {})
    mine = {**before.get(user_id, {}), f"ed25519:{public_key(private)}": signature(value, private)}
    return {**value, "signatures": {**before, user_id: mine}}


def upload_body(keys: CrossSigningKeys, user_id: str) -> dict[str, Any]:
    """What publishes the three public keys."""

    def described(private: str, usage: str) -> dict[str, Any]:
        public = public_key(private)
        return {"user_id": user_id, "usage": [usage], "keys": {f"ed25519:{public}": public}}

    return {
        "master_key": described(keys.master, "master"),
        "self_signing_key": signed(described(keys.self_signing, "self_signing"), user_id, keys.master),
        "user_signing_key": signed(described(keys.user_signing, "user_signing"), user_id, keys.master),
    }


def encode_recovery_key(key: bytes) -> str:
    """The key as a person writes it down: base58 in groups of four, with a parity byte."""
    raw = _RECOVERY_PREFIX + key
    raw += bytes([_parity(raw)])
    number, text = int.from_bytes(raw, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = _BASE58[digit] + text
    return " ".join(text[start : start + 4] for start in range(0, len(text), 4))


def decode_recovery_key(text: str) -> bytes:
    """InvalidInput if it is no recovery key."""
    number = 0
    for char in "".join(text.split()):
        digit = _BASE58.find(char)
        if digit < 0:
            raise InvalidInput(f"a recovery key has letters and digits only, got {char!r}")
        number = number * 58 + digit
    length = len(_RECOVERY_PREFIX) + _KEY_BYTES + 1
    raw = number.to_bytes(length, "big") if number < 256**length else b""
    if not raw.startswith(_RECOVERY_PREFIX) or _parity(raw) != 0:
        raise InvalidInput("this is not a recovery key, or it has a typing mistake: it begins with Es")
    return raw[len(_RECOVERY_PREFIX) : -1]


def _parity(raw: bytes) -> int:
    parity = 0
    for byte in raw:
        parity ^= byte
    return parity


def encrypt_secret(key: bytes, name: str, secret: bytes) -> dict[str, str]:
    """A secret as secret storage holds it (`m.secret_storage.v1.aes-hmac-sha2`)."""
    initial = bytearray(secrets.token_bytes(16))
    # Bit 63 is 0, so that implementations with a 64-bit counter agree.
    initial[8] &= 0x7F
    return _encrypt(key, name, secret, bytes(initial))


def _encrypt(key: bytes, name: str, secret: bytes, initial: bytes) -> dict[str, str]:
    cipher_key, mac_key = _derive(key, name)
    encryptor = Cipher(algorithms.AES(cipher_key), modes.CTR(initial)).encryptor()
    ciphertext = encryptor.update(secret) + encryptor.finalize()
    mac = hmac.digest(mac_key, ciphertext, "sha256")
    return {"iv": encode_base64(initial), "ciphertext": encode_base64(ciphertext), "mac": encode_base64(mac)}


def decrypt_secret(key: bytes, name: str, stored: dict[str, str]) -> bytes:
    """InvalidInput if the key is another one."""
    try:
        initial, ciphertext, mac = (decode_base64(stored[part]) for part in ("iv", "ciphertext", "mac"))
    except (KeyError, TypeError, ValueError) as exc:
        raise InvalidInput(f"the secret {name} in the account's secret storage cannot be read") from exc
    cipher_key, mac_key = _derive(key, name)
    if not hmac.compare_digest(hmac.digest(mac_key, ciphertext, "sha256"), mac):
        raise InvalidInput("this recovery key does not fit the account's secret storage")
    decryptor = Cipher(algorithms.AES(cipher_key), modes.CTR(initial)).decryptor()
    return decryptor.update(ciphertext) + decryptor.finalize()


def storage_description(key: bytes) -> dict[str, str]:
    """What describes the secret storage's key: clients check a recovery key against it."""
    checked = encrypt_secret(key, "", bytes(_KEY_BYTES))
    return {"algorithm": "m.secret_storage.v1.aes-hmac-sha2", "iv": checked["iv"], "mac": checked["mac"]}


def _derive(key: bytes, name: str) -> tuple[bytes, bytes]:
    derived = HKDF(hashes.SHA256(), 64, salt=bytes(32), info=name.encode()).derive(key)
    return derived[:32], derived[32:]


def encode_base64(raw: bytes) -> str:
    """Unpadded, as the specification has it."""
    return base64.b64encode(raw).decode().rstrip("=")


def decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as exc:
        raise ValueError(f"not base64: {exc}") from exc
