"""The bot's encryption identity: cross-signing, secret storage and key backup.

`set_up` runs at every start and does what is missing: it publishes cross-signing keys, signs the bot's device, and
stores the private keys and a key backup on the homeserver, encrypted by a recovery key. Private keys are written to the
device's folder before they are published, so that a crash at any step is continued at the next start.
"""

from __future__ import annotations

import json
import logging
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
import vodozemac

from threadline.core.errors import InvalidInput
from threadline.matrix.device import DeviceFolder
from threadline.matrix.homeserver import Homeserver, HomeserverAway, HomeserverRefused, RoomKey
from threadline.matrix.signing_keys import (
    CrossSigningKeys,
    decode_base64,
    decode_recovery_key,
    decrypt_secret,
    encode_base64,
    encrypt_secret,
    new_keys,
    public_key,
    signed,
    storage_description,
    upload_body,
)

log = logging.getLogger("threadline.matrix")

COMMAND = "threadline matrix setup-encryption"
_CLIENT = "/_matrix/client/v3"
_BACKUP_ALGORITHM = "m.megolm_backup.v1.curve25519-aes-sha2"
_SECRETS = {
    "m.cross_signing.master": "master",
    "m.cross_signing.self_signing": "self_signing",
    "m.cross_signing.user_signing": "user_signing",
    "m.megolm_backup.v1": "backup",
}
# Keys in one upload: a first backup may have thousands, and homeservers limit the size of a request.
_UPLOADED_AT_ONCE = 200


class EncryptionIncomplete(Exception):
    """The bot's device cannot be signed without a secret that it does not have. The text names the command."""


class _Published(NamedTuple):
    """What the homeserver shows of the bot: its public keys, and this device."""

    master: str | None
    self_signing: str | None
    device: dict[str, Any] | None


class Encryption:
    def __init__(self, homeserver: Homeserver, folder: DeviceFolder) -> None:
        self._homeserver = homeserver
        self._folder = folder
        self._keys = folder.cross_signing()
        self._backed_up: set[str] | None = None
        self._is_backing_up = False

    @property
    def master_key(self) -> str | None:
        """The public key that is the account's identity."""
        return None if self._keys is None else self._keys.master_id

    async def set_up(self, password: str) -> None:
        """Does what is missing. EncryptionIncomplete; HomeserverAway: call it again; HomeserverRefused."""
        published = await self._published()
        if self._keys is None:
            if published.master is not None:
                raise EncryptionIncomplete(
                    f"{self._homeserver.user_id} has cross-signing keys that this device does not have: run "
                    f"`{COMMAND} --recover` with its recovery key, or `{COMMAND} --reset` to replace them"
                )
            self._store(new_keys())
        await self._publish(self._known(), published, password)

    async def recover(self, recovery_key: str) -> int:
        """Fetches the keys from the account's secret storage, signs this device and imports the key backup; how many
        message keys it had. InvalidInput for a wrong recovery key."""
        storage_key = decode_recovery_key(recovery_key)
        key_id = ((await self._account_data("m.secret_storage.default_key")) or {}).get("key")
        found: dict[str, str] = {}
        for name, field in _SECRETS.items():
            stored = ((await self._account_data(name)) or {}).get("encrypted", {}).get(key_id)
            if stored is None:
                raise InvalidInput(f"the account's secret storage has no {name}: run `{COMMAND} --reset`")
            found[field] = decrypt_secret(storage_key, name, stored).decode().rstrip("=")
        version = await self._backup_version(found["backup"])
        keys = CrossSigningKeys(
            **found, recovery_key=recovery_key.strip(), backup_version=version, is_stored=version is not None
        )
        self._store(keys)
        await self._publish(keys, await self._published(), "")
        return await self._import_backup(keys)

    async def reset(self, password: str) -> None:
        """Replaces the account's cross-signing keys, secret storage and backup."""
        self._store(new_keys())
        await self._upload(self._known(), password)
        await self._publish(self._known(), await self._published(), password)

    async def _publish(self, keys: CrossSigningKeys, published: _Published, password: str) -> None:
        if published.master is None:
            await self._upload(keys, password)
        elif published.master != keys.master_id:
            raise EncryptionIncomplete(
                f"the cross-signing keys of {self._homeserver.user_id} were replaced elsewhere: run `{COMMAND} "
                f"--recover` with the new recovery key, or `{COMMAND} --reset`"
            )
        await self._sign_device(keys, published.device)
        if not keys.is_stored:
            keys = await self._create_backup(keys)
            await self._store_secrets(keys)
            self._store(msgspec.structs.replace(keys, is_stored=True))
            path = self._folder.store_recovery_key(keys.recovery_key)
            log.info("the bot's device is cross-signed; its recovery key is in %s: store it in a safe place", path)

    async def _published(self) -> _Published:
        """Also uploads the device's own keys if the homeserver does not have them yet."""
        me = self._homeserver.user_id
        await self._homeserver.maintain_keys()
        answer = await self._homeserver.request("POST", f"{_CLIENT}/keys/query", {"device_keys": {me: []}})

        def first(kind: str) -> str | None:
            return next(iter(answer.get(kind, {}).get(me, {}).get("keys", {}).values()), None)

        device = answer.get("device_keys", {}).get(me, {}).get(self._homeserver.device_id)
        return _Published(first("master_keys"), first("self_signing_keys"), device)

    async def _upload(self, keys: CrossSigningKeys, password: str) -> None:
        """Homeservers accept the first keys of an account without a password; to replace them they ask for it."""
        body, path = upload_body(keys, self._homeserver.user_id), f"{_CLIENT}/keys/device_signing/upload"
        try:
            await self._homeserver.request("POST", path, body)
            return
        except HomeserverRefused as exc:
            if exc.session is None:
                raise
            session = exc.session
        if not password:
            raise EncryptionIncomplete(
                "the homeserver wants the password before it accepts cross-signing keys: run "
                f"`THREADLINE_MATRIX__PASSWORD=… {COMMAND}`"
            )
        identifier = {"type": "m.id.user", "user": self._homeserver.user_id}
        auth = {"type": "m.login.password", "identifier": identifier, "password": password, "session": session}
        await self._homeserver.request("POST", path, {**body, "auth": auth})

    async def _sign_device(self, keys: CrossSigningKeys, device: dict[str, Any] | None) -> None:
        me, device_id = self._homeserver.user_id, self._homeserver.device_id
        if device is None or device.get("keys") != self._homeserver.identity_keys():
            raise EncryptionIncomplete(
                f"the homeserver shows other keys for the device {device_id} than this folder has: remove the device "
                "from the account and move the folder away, so that the bot gets a new one"
            )
        mine = device.get("signatures", {}).get(me, {})
        if f"ed25519:{keys.self_signing_id}" in mine:
            return
        unsigned = {name: each for name, each in device.items() if name != "unsigned"}
        body = {me: {device_id: signed(unsigned, me, keys.self_signing)}}
        await self._homeserver.request("POST", f"{_CLIENT}/keys/signatures/upload", body)

    async def _create_backup(self, keys: CrossSigningKeys) -> CrossSigningKeys:
        public = _backup_key(keys).public_key().to_base64()
        signing = signed({"public_key": public}, self._homeserver.user_id, keys.master)
        body = {"algorithm": _BACKUP_ALGORITHM, "auth_data": signing}
        answer = await self._homeserver.request("POST", f"{_CLIENT}/room_keys/version", body)
        keys = msgspec.structs.replace(keys, backup_version=str(answer["version"]))
        self._store(keys)
        return keys

    async def _store_secrets(self, keys: CrossSigningKeys) -> None:
        storage_key = decode_recovery_key(keys.recovery_key)
        key_id = public_key(encode_base64(storage_key)).replace("/", "").replace("+", "")[:32]
        await self._put_account_data(f"m.secret_storage.key.{key_id}", storage_description(storage_key))
        for name, field in _SECRETS.items():
            stored = encrypt_secret(storage_key, name, getattr(keys, field).encode())
            await self._put_account_data(name, {"encrypted": {key_id: stored}})
        # Last: clients use the storage from here on.
        await self._put_account_data("m.secret_storage.default_key", {"key": key_id})

    async def back_up(self) -> None:
        """Uploads message keys that the backup does not have; one call at a time. Failures are logged: the keys are
        uploaded after a later sync."""
        keys = self._keys
        if keys is None or keys.backup_version is None or self._is_backing_up:
            return
        self._is_backing_up = True
        try:
            await self._back_up(keys, keys.backup_version)
        except (HomeserverAway, HomeserverRefused) as exc:
            log.info("keys not backed up: %s", exc)
        finally:
            self._is_backing_up = False

    async def _back_up(self, keys: CrossSigningKeys, version: str) -> None:
        if self._backed_up is None:
            self._backed_up = self._folder.backed_up_keys(version)
        missing = self._homeserver.room_keys(without=self._backed_up)
        encryption = vodozemac.PkEncryption.from_key(_backup_key(keys).public_key())
        for start in range(0, len(missing), _UPLOADED_AT_ONCE):
            some = missing[start : start + _UPLOADED_AT_ONCE]
            rooms: dict[str, Any] = {}
            for key in some:
                room = rooms.setdefault(key.room_id, {"sessions": {}})
                room["sessions"][key.session_id] = _backup_entry(key, encryption)
            path = f"{_CLIENT}/room_keys/keys?version={quote(version, safe='')}"
            await self._homeserver.request("PUT", path, {"rooms": rooms})
            self._folder.add_backed_up_keys(version, [key.session_id for key in some])
            self._backed_up.update(key.session_id for key in some)

    async def _backup_version(self, private: str) -> str | None:
        """The current backup, if this key decrypts it."""
        try:
            answer = await self._homeserver.request("GET", f"{_CLIENT}/room_keys/version")
        except HomeserverRefused as exc:
            if exc.code == "M_NOT_FOUND":
                return None
            raise
        public = vodozemac.Curve25519SecretKey.from_bytes(decode_base64(private)).public_key().to_base64()
        is_ours = answer.get("auth_data", {}).get("public_key") == public
        return str(answer["version"]) if is_ours else None

    async def _import_backup(self, keys: CrossSigningKeys) -> int:
        if keys.backup_version is None:
            return 0
        path = f"{_CLIENT}/room_keys/keys?version={quote(keys.backup_version, safe='')}"
        answer = await self._homeserver.request("GET", path)
        decryption = vodozemac.PkDecryption.from_key(_backup_key(keys))
        imported: list[str] = []
        for room_id, room in answer.get("rooms", {}).items():
            for session_id, entry in room.get("sessions", {}).items():
                key = _from_backup(room_id, session_id, entry, decryption)
                if key is not None:
                    self._homeserver.add_room_key(key)
                    imported.append(session_id)
        self._folder.add_backed_up_keys(keys.backup_version, imported)
        return len(imported)

    async def _account_data(self, kind: str) -> dict[str, Any] | None:
        try:
            return await self._homeserver.request("GET", self._data_path(kind))
        except HomeserverRefused as exc:
            if exc.code == "M_NOT_FOUND":
                return None
            raise

    async def _put_account_data(self, kind: str, content: dict[str, Any]) -> None:
        await self._homeserver.request("PUT", self._data_path(kind), content)

    def _data_path(self, kind: str) -> str:
        return f"{_CLIENT}/user/{quote(self._homeserver.user_id, safe='')}/account_data/{quote(kind, safe='')}"

    def _known(self) -> CrossSigningKeys:
        assert self._keys is not None
        return self._keys

    def _store(self, keys: CrossSigningKeys) -> None:
        self._folder.store_cross_signing(keys)
        self._keys = keys


def _backup_key(keys: CrossSigningKeys) -> vodozemac.Curve25519SecretKey:
    return vodozemac.Curve25519SecretKey.from_bytes(decode_base64(keys.backup))


def _backup_entry(key: RoomKey, encryption: vodozemac.PkEncryption) -> dict[str, Any]:
    secret = {
        "algorithm": "m.megolm.v1.aes-sha2",
        "forwarding_curve25519_key_chain": list(key.forwarding_chain),
        "sender_claimed_keys": {"ed25519": key.signing_key},
        "sender_key": key.sender_key,
        "session_key": key.exported,
    }
    message = encryption.encrypt(json.dumps(secret).encode())
    # Not vodozemac's `to_base64`: it gives the parts in another order than its `from_base64` takes them.
    data = {"ciphertext": message.ciphertext, "mac": message.mac, "ephemeral": message.ephemeral_key}
    return {
        "first_message_index": key.first_index,
        "forwarded_count": len(key.forwarding_chain),
        "is_verified": False,
        "session_data": {name: encode_base64(part) for name, part in data.items()},
    }


def _from_backup(
    room_id: str, session_id: str, entry: dict[str, Any], decryption: vodozemac.PkDecryption
) -> RoomKey | None:
    """None for an entry that cannot be decrypted: the homeserver, which cannot read it, may have changed it."""
    try:
        data = entry["session_data"]
        message = vodozemac.Message(*(decode_base64(data[part]) for part in ("ciphertext", "mac", "ephemeral")))
        secret = json.loads(decryption.decrypt(message))
        return RoomKey(
            room_id,
            session_id,
            secret["sender_key"],
            secret["sender_claimed_keys"]["ed25519"],
            secret["session_key"],
            tuple(secret.get("forwarding_curve25519_key_chain", ())),
        )
    except (ValueError, KeyError, TypeError) as exc:
        log.warning("key in the backup not read: %s", type(exc).__name__, extra={"place": room_id})
        return None
