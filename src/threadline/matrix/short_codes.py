"""One verification by short codes (SAS) that another client began: the arithmetic, without I/O.

Both sides agree on a secret over an untrusted homeserver and show a code that is made from it; people compare the
codes. Then each side sends a MAC of its keys under that secret. The other client starts, the bot accepts. Formats are
those of the Matrix specification (end-to-end encryption, short authentication string verification), with the only key
agreement, hash and MAC that it does not deprecate. vodozemac has the cryptography, matrix-nio the table of emojis.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import vodozemac
from nio.crypto import Sas

from threadline.matrix.signing_keys import canonical, encode_base64

METHOD = "m.sas.v1"
_AGREEMENT, _HASH, _MAC = "curve25519-hkdf-sha256", "sha256", "hkdf-hmac-sha256.v2"


class VerificationFailed(Exception):
    """The verification ends. `code` is what the other client is told."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Device(NamedTuple):
    user_id: str
    device_id: str


class ShortCode(NamedTuple):
    """What people compare: seven emojis with their names, and three numbers."""

    emojis: tuple[tuple[str, str], ...]
    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join(f"{emoji} {name}" for emoji, name in self.emojis) + f" ({'-'.join(map(str, self.numbers))})"


class ShortCodeExchange:
    """`transaction_id` names the verification in both clients' messages. VerificationFailed from every call."""

    def __init__(self, transaction_id: str, ours: Device, theirs: Device, start: Mapping[str, Any]) -> None:
        for field, wanted in (
            ("key_agreement_protocols", _AGREEMENT),
            ("hashes", _HASH),
            ("message_authentication_codes", _MAC),
        ):
            if start.get("method") != METHOD or wanted not in _strings(start.get(field)):
                raise VerificationFailed("m.unknown_method", f"the client does not offer {wanted}")
        self._transaction_id = transaction_id
        self._ours = ours
        self._theirs = theirs
        self._sas = vodozemac.Sas()
        self._public = self._sas.public_key.to_base64()
        self._commitment = encode_base64(hashlib.sha256(self._public.encode() + canonical(dict(start))).digest())
        self._secret: vodozemac.EstablishedSas | None = None

    def accepted(self) -> dict[str, Any]:
        """The content of our `accept`."""
        return {
            "method": METHOD,
            "key_agreement_protocol": _AGREEMENT,
            "hash": _HASH,
            "message_authentication_code": _MAC,
            "short_authentication_string": ["decimal", "emoji"],
            "commitment": self._commitment,
        }

    def take_key(self, content: Mapping[str, Any]) -> tuple[dict[str, Any], ShortCode]:
        """Their public key; the content of our `key`, and the code to compare."""
        if self._secret is not None:
            raise VerificationFailed("m.unexpected_message", "a second key")
        theirs = content.get("key")
        try:
            self._secret = self._sas.diffie_hellman(vodozemac.Curve25519PublicKey.from_base64(str(theirs)))
        except (ValueError, vodozemac.SasException, vodozemac.KeyException) as exc:
            raise VerificationFailed("m.invalid_message", "a key that cannot be read") from exc
        starter, accepter = self._theirs, self._ours
        info = (
            f"MATRIX_KEY_VERIFICATION_SAS|{starter.user_id}|{starter.device_id}|{theirs}|"
            f"{accepter.user_id}|{accepter.device_id}|{self._public}|{self._transaction_id}"
        )
        code = self._secret.bytes(info)
        emojis = tuple(Sas.emoji[index] for index in code.emoji_indices)
        return {"key": self._public}, ShortCode(emojis, tuple(code.decimals))

    def check_macs(self, content: Mapping[str, Any], keys: Mapping[str, str]) -> None:
        """`keys` are the keys of their user as the homeserver shows them, by id."""
        given, secret = content.get("mac"), self._secret
        device = f"ed25519:{self._theirs.device_id}"
        if secret is None:
            raise VerificationFailed("m.unexpected_message", "a MAC before the key")
        if not isinstance(given, dict) or device not in given or device not in keys:
            raise VerificationFailed("m.invalid_message", "no MAC of the device's key")
        info = self._info(self._theirs, self._ours)
        tags = {name: tag for name, tag in given.items() if name in keys}
        try:
            secret.verify_mac(",".join(sorted(given)), f"{info}KEY_IDS", str(content.get("keys")))
            for name, tag in tags.items():
                secret.verify_mac(keys[name], info + name, str(tag))
        except (ValueError, vodozemac.SasException) as exc:
            raise VerificationFailed("m.key_mismatch", "a MAC that does not fit the user's keys") from exc

    def macs(self, keys: Mapping[str, str]) -> dict[str, Any]:
        """The content of our `mac`, for our keys by id."""
        if self._secret is None:
            raise VerificationFailed("m.unexpected_message", "a MAC before the key")
        info = self._info(self._ours, self._theirs)
        return {
            "mac": {name: self._secret.calculate_mac(key, info + name) for name, key in keys.items()},
            "keys": self._secret.calculate_mac(",".join(sorted(keys)), f"{info}KEY_IDS"),
        }

    def _info(self, by: Device, to: Device) -> str:
        names = f"{by.user_id}{by.device_id}{to.user_id}{to.device_id}"
        return f"MATRIX_KEY_VERIFICATION_MAC{names}{self._transaction_id}"


def _strings(value: object) -> list[object]:
    return value if isinstance(value, list) else []
