"""Settings: `threadline.toml` and `THREADLINE_*` become one frozen value.

The file is the one named, else the one in the working directory, else the user's own. The environment wins over the
file, and what the command line says wins over both. A key that is not known here is an error that names it, so a
typing mistake never becomes a silent default. `THREADLINE_DATABASE` sets `database`; two underscores go a level down:
`THREADLINE_LIMITS__MESSAGE_BYTES`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from threadline.core.access import TokenRole
from threadline.core.config_errors import explained
from threadline.core.errors import SettingsInvalid
from threadline.core.sealing import Limits
from threadline.core.windows import CHANNEL_WINDOW, READING_WINDOW, Window

_PREFIX = "THREADLINE_"
_FILE_VARIABLE = "THREADLINE_SETTINGS"
_BRIDGE_VARIABLES = "THREADLINE_BRIDGE_"
_NO_SETTINGS = frozenset((_FILE_VARIABLE, "THREADLINE_TOKEN"))


class MaskingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool = True


class GuardSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Off while there is no pattern. A text that matches one is refused with `message`."""

    patterns: tuple[str, ...] = ()
    message: str = "This request was refused by a rule of this service."


class WindowSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of a history an agent is shown: where people read long threads, and on messaging channels."""

    reading: Window = READING_WINDOW
    channels: Window = CHANNEL_WINDOW


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An agent by name: which provider answers, with what."""

    provider: str
    model: str | None = None
    system_prompt: str | None = None
    settings: dict[str, Any] = {}


class JwtSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens that somebody else signs. One kind of key: a shared `secret`, a `public_key_file` in PEM, or `jwks`, a
    file or an address. A claim may be a path, as `realm_access.roles`. `tenant` and `role` are for tokens that say
    none; a token that then still has none is refused."""

    secret: str | None = None
    public_key_file: str | None = None
    jwks: str | None = None
    issuer: str | None = None
    audience: str | None = None
    leeway_seconds: float = 30.0
    tenant_claim: str = "tenant"
    user_claim: str = "sub"
    role_claim: str = "role"
    tenant: str | None = None
    role: TokenRole | None = None

    def __repr__(self) -> str:
        return f"<JWT of {self.issuer or 'any issuer'}>"


class RateLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests per minute, over all workers; 0 is no limit. Without authentication there is none. Whoever acts for a
    user spends what a token of that user may, and of `per_acting_token`."""

    per_token: int = 600
    per_acting_token: int = 6_000
    per_address: int = 1_200


class ServiceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP service. `origins` are the web pages of other addresses that may use it, as `http://localhost:3000`.
    `authentication` asks every caller for an API token or, with `jwt`, for one of those; `jwt` alone asks as well.
    `proxies` are addresses or networks whose `X-Forwarded-For` is believed."""

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 8300
    workers: int = 1
    authentication: bool = False
    jwt: JwtSettings | None = None
    rates: RateLimits = RateLimits()
    proxies: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    body_bytes: int = 1_048_576
    import_bytes: int = 67_108_864
    heartbeat_seconds: float = 15.0
    lease_seconds: float = 30.0
    recovery_seconds: float = 10.0
    grace_seconds: float = 20.0
    handover_seconds: float = 300.0
    log_format: Literal["human", "json"] = "human"

    @property
    def requires_authentication(self) -> bool:
        return self.authentication or self.jwt is not None


class MatrixSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The Matrix bot. Its password or its access token belongs in the environment: `THREADLINE_MATRIX__PASSWORD` or
    `THREADLINE_MATRIX__TOKEN`. Without allow lists it talks to the people of its own server."""

    homeserver: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    folder: str = ""
    """Where the device is kept: its token, its keys, its place in the sync. Default: beside the database's default."""
    device_name: str = "Threadline"
    users: tuple[str, ...] = ()
    """Who may talk to it, by full id, wherever they are."""
    servers: tuple[str, ...] = ()
    """Whose people may talk to it; `*` is every server."""
    auto_link: bool = False
    """Whether someone without a link becomes a user of their own, under their Matrix id."""
    encrypt: bool = False
    """Whether rooms that the bot makes are encrypted."""
    with_service: bool = False
    """Whether `threadline serve` runs the bot as well. One process at a time may."""
    edit_seconds: float = 1.0
    sync_seconds: float = 30.0
    recovery_seconds: float = 5.0

    def __repr__(self) -> str:
        return f"<the Matrix bot {self.user} on {self.homeserver}>"


class ChannelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One messaging platform. `agent` answers there if not the default one; `api` is the address of a local stand-in
    for the platform, for trying things out."""

    enabled: bool = True
    agent: str | None = None
    api: str | None = None


class ChannelsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messaging platforms. `keys` seal their credentials; `key` names the one that new ones are sealed under."""

    keys: dict[str, str] = {}
    key: str = ""
    replay_seconds: float = 86_400.0
    link_minutes: float = 10.0
    sweep_seconds: float = 2.0
    keep_days: float = 30.0
    slack: ChannelSettings = ChannelSettings()
    telegram: ChannelSettings = ChannelSettings()
    whatsapp: ChannelSettings = ChannelSettings()


class TracingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Traces by OpenTelemetry. `content` puts what was said into them as well."""

    enabled: bool = False
    content: bool = False


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    database: str = ""
    tenant: str = "local"
    user: str = "local"
    agent: str = "rehearsal"
    replay_seconds: float = 3600.0
    limits: Limits = Limits()
    masking: MaskingSettings = MaskingSettings()
    guard: GuardSettings = GuardSettings()
    windows: WindowSettings = WindowSettings()
    agents: dict[str, AgentSettings] = {}
    service: ServiceSettings = ServiceSettings()
    channels: ChannelsSettings = ChannelsSettings()
    matrix: MatrixSettings = MatrixSettings()
    tracing: TracingSettings = TracingSettings()


def load(
    path: Path | None = None, *, environ: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """SettingsInvalid names the file or variable and the key that is wrong."""
    env = os.environ if environ is None else environ
    found = _settings_file(path, env)
    tree: dict[str, Any] = _read(found) if found else {}
    _merge_environment(tree, env)
    tree |= {key: value for key, value in (overrides or {}).items() if value is not None}
    try:
        settings = msgspec.convert(tree, Settings, strict=False)
    except msgspec.ValidationError as exc:
        sections, what = explained(str(exc), tree, Settings)
        variable = _PREFIX + "__".join(sections).upper()
        said = variable if variable in env else f"{found or 'the settings'}: {'.'.join(sections)}"
        raise SettingsInvalid(f"{said}: {what}") from exc
    return settings if settings.database else msgspec.structs.replace(settings, database=str(default_database(env)))


def default_matrix_folder(environ: Mapping[str, str]) -> Path:
    return _home(environ, "XDG_DATA_HOME", ".local/share") / "matrix"


def default_database(environ: Mapping[str, str]) -> Path:
    return _home(environ, "XDG_DATA_HOME", ".local/share") / "threadline.sqlite3"


def _home(environ: Mapping[str, str], variable: str, default: str) -> Path:
    base = environ.get(variable)
    return (Path(base) if base else Path(environ.get("HOME", "~")).expanduser() / default) / "threadline"


def _settings_file(path: Path | None, env: Mapping[str, str]) -> Path | None:
    named = path or (Path(env[_FILE_VARIABLE]) if env.get(_FILE_VARIABLE) else None)
    if named is not None:
        if not named.is_file():
            raise SettingsInvalid(f"there is no settings file {named}")
        return named
    candidates = (Path("threadline.toml"), _home(env, "XDG_CONFIG_HOME", ".config") / "threadline.toml")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise SettingsInvalid(f"{path} is not TOML: {exc}") from exc
    except OSError as exc:
        raise SettingsInvalid(f"{path} cannot be read: {exc.strerror}") from exc


def _merge_environment(tree: dict[str, Any], env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not name.startswith(_PREFIX) or name in _NO_SETTINGS or name.startswith(_BRIDGE_VARIABLES):
            continue
        *sections, key = name[len(_PREFIX) :].lower().split("__")
        target = tree
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise SettingsInvalid(f"{name}: {section!r} is not a section")
        target[key] = value
