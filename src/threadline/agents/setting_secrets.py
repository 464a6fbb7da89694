"""Secrets in the settings of a tenant's agent: encrypted before they are stored, decrypted when the agent is built.

What a masker would hide, and every value under a name that holds a credential, is a secret. A row with secrets stores
its settings twice: as they may be shown, with each secret replaced by `[masked:…]`, and whole, encrypted, under
`$encrypted`. The ciphertext is bound to tenant and agent, so that a row copied to another one cannot be decrypted.
Settings without secrets are stored as they are and need no key.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import msgspec

from threadline.core import jsontext
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import SettingsInvalid
from threadline.core.masking import SecretMasker
from threadline.ports import Cipher

ENCRYPTED = "$encrypted"
"""The key of the ciphertext. No provider has a setting of this name."""
CREDENTIALS = ("api_key", "token", "headers")
"""Settings that hold credentials. A masker recognises most of them; these count whatever their values look like."""
_HIDDEN = "[masked:credential]"
_MASK = re.compile(r"\[masked:[a-z0-9-]+\]")
# A masker of its own: settings are hidden even if messages are not masked.
_MASKER = SecretMasker()


class _Ciphertext(msgspec.Struct, frozen=True):
    key_id: str
    data: str


class SettingSecrets:
    """Encrypts and decrypts the settings of agents' rows."""

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher

    def encrypt(self, tenant_id: str, row: AgentRow) -> AgentRow:
        """The row as it is stored, from one with all its settings. SettingsInvalid if it has secrets and there is no
        key to encrypt them with."""
        shown = hide_secrets(row.settings)
        if shown == row.settings:
            return row
        plain = jsontext.dump(row.settings, "settings")
        sealed = self._cipher.encrypt(plain, _bound_to(tenant_id, row.id))
        stored = {"key_id": self._cipher.key_id, "data": base64.b64encode(sealed).decode()}
        return msgspec.structs.replace(row, settings={**shown, ENCRYPTED: stored})

    def decrypt(self, tenant_id: str, row: AgentRow) -> AgentRow:
        """The row with all its settings. SettingsInvalid if its key is not in the settings, or is another one."""
        found = _ciphertext(row)
        if found is None:
            return row
        try:
            sealed = base64.b64decode(found.data, validate=True)
        except binascii.Error as exc:
            raise SettingsInvalid(f"settings of agent {row.id!r} are damaged: set them again") from exc
        try:
            plain = self._cipher.decrypt(found.key_id, sealed, _bound_to(tenant_id, row.id))
        except SettingsInvalid as exc:
            raise SettingsInvalid(f"settings of agent {row.id!r}: {exc}") from exc
        return msgspec.structs.replace(row, settings=jsontext.parse(plain, "settings"))


def key_of(row: AgentRow) -> str | None:
    """The id of the key that encrypts the row's secrets; None if it has no encrypted secrets."""
    found = _ciphertext(row)
    return None if found is None else found.key_id


def has_clear_secrets(row: AgentRow) -> bool:
    """Whether the row stores secrets without encryption, as rows of earlier versions do."""
    return ENCRYPTED not in row.settings and hide_secrets(row.settings) != row.settings


def shown_settings(row: AgentRow) -> dict[str, Any]:
    """The settings as an administrator may read them."""
    return hide_secrets({name: value for name, value in row.settings.items() if name != ENCRYPTED})


def hide_secrets(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with each secret replaced. Settings without secrets are returned unchanged."""
    masked: dict[str, Any] = _MASKER.mask_json(settings)
    hidden = {name: _hide(settings[name], masked[name]) for name in CREDENTIALS if name in settings}
    return {**masked, **hidden} if hidden else masked


def is_hidden(value: Any) -> bool:
    """Whether a value is, or contains, what is shown in the place of a secret, and so is no secret itself."""
    if isinstance(value, dict):
        return any(map(is_hidden, value.values()))
    return isinstance(value, str) and _MASK.fullmatch(value) is not None


def _hide(value: Any, masked: Any) -> Any:
    """A credential in any shape: an object keeps its keys, so that it can be seen which headers are set."""
    if isinstance(value, dict):
        return {key: _hide(item, masked.get(key, item)) for key, item in value.items()}
    return masked if value in (None, "") or masked != value or is_hidden(value) else _HIDDEN


def _ciphertext(row: AgentRow) -> _Ciphertext | None:
    stored = row.settings.get(ENCRYPTED)
    if stored is None:
        return None
    try:
        return msgspec.convert(stored, _Ciphertext)
    except msgspec.ValidationError as exc:
        raise SettingsInvalid(f"settings of agent {row.id!r} are damaged: set them again") from exc


def _bound_to(tenant_id: str, agent_id: str) -> tuple[str, str, str]:
    return ("agent", tenant_id, agent_id)
