"""Ed25519 signatures of receipts. `cryptography` is imported on first use: without a key it is not needed."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from threadline.core.errors import ExtraMissing, InvalidInput, SettingsInvalid
from threadline.core.receipts import ErasureReceipt

_KEY_BYTES = 32


class ReceiptSigner:
    """Signs with the key of the settings; without one, receipts stay unsigned."""

    def __init__(self, key: str = "") -> None:
        self._key = key

    def sign(self, receipt: ErasureReceipt) -> ErasureReceipt:
        """SettingsInvalid if the key is not one of `new_signing_key`."""
        if not self._key:
            return receipt
        private = _ed25519().Ed25519PrivateKey.from_private_bytes(_decode_key(self._key))
        named = msgspec.structs.replace(receipt, public_key=_encode(private.public_key().public_bytes_raw()))
        return msgspec.structs.replace(named, signature=_encode(private.sign(named.signed_bytes())))


def new_signing_key() -> str:
    """A private key in the format of the settings."""
    return _encode(_ed25519().Ed25519PrivateKey.generate().private_bytes_raw())


def public_key_of(key: str) -> str:
    """The public key that verifies what this private key signs."""
    private = _ed25519().Ed25519PrivateKey.from_private_bytes(_decode_key(key))
    return _encode(private.public_key().public_bytes_raw())


def verify(receipt: ErasureReceipt, public_key: str) -> None:
    """InvalidInput unless the receipt was signed with the private key of `public_key` and was not changed since. The
    key in the receipt itself proves nothing: a forger would put in their own."""
    if receipt.signature is None or receipt.public_key is None:
        raise InvalidInput("receipt is not signed: the service that made it had no key")
    if receipt.public_key != public_key:
        raise InvalidInput("receipt was signed with another key: check which service made it")
    try:
        public = _ed25519().Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
        public.verify(base64.b64decode(receipt.signature, validate=True), receipt.signed_bytes())
    except (ValueError, binascii.Error, _invalid_signature()) as exc:
        raise InvalidInput("signature does not fit: the receipt was changed, or the key is wrong") from exc


def _decode_key(key: str) -> bytes:
    try:
        decoded = base64.b64decode(key, validate=True)
    except (ValueError, binascii.Error):
        decoded = b""
    if len(decoded) != _KEY_BYTES:
        raise SettingsInvalid("`receipts.key` must be a key from `threadline receipts key`")
    return decoded


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise ExtraMissing("vault", "signing receipts") from exc
    return ed25519


def _invalid_signature() -> type[Exception]:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra

    return InvalidSignature
